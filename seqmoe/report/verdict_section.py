"""The page's part on the paper's claims: how many have which verdict, and a row for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from seqmoe.harness.claims.verdict import INPUT, NOT_REPRODUCED, REFUTED, REPRODUCED, UNTESTED, Judged, counts
from seqmoe.report.page import Section, fill
from seqmoe.report.verdict_table import as_plain, note, origins, ours, printed, tolerance

TITLE = "Every claim of the paper, and what became of it"
COLOURS = {
    REPRODUCED: "#2a9d6f", NOT_REPRODUCED: "#e0a100", REFUTED: "#c8371c", UNTESTED: "#8a94a0", INPUT: "#4a7fc1",
}  # fmt: skip
_MEANINGS = {
    REPRODUCED: "on the paper's own terms within the tolerance; an order also on another real model",
    NOT_REPRODUCED: "tested, and not found; the difference may lie in how it was tested",
    REFUTED: "measured or computed on the paper's own terms, and clearly otherwise",
    UNTESTED: "no record on the paper's own terms; beside each is what it takes",
    INPUT: "the simulator was fitted to it, so its agreement says nothing",
}
_DATA = ("id", "figure", "model", "paper", "unit", "verdict", "lane", "ours", "text", "tolerance", "note")


def section_verdict(judged: Sequence[Judged]) -> Section:
    """The section; it needs no record, since arithmetic settles some claims."""
    found, by = counts(judged), origins(judged)
    groups = [
        {"verdict": name, "number": number, "colour": COLOURS[name], "origin": by.get(name, ""),
         "meaning": f"{_MEANINGS[name]}."}
        for name, number in found.items()
    ]  # fmt: skip
    body = fill("verdict.html.j2", groups=groups, rows=[_row(one) for one in judged], sentences=sentences(judged))
    return Section("verdict", TITLE, body, True)


def verdicts_data(judged: Sequence[Judged]) -> pd.DataFrame:
    """One line for each claim, with the evidence that decided."""
    return pd.DataFrame([{name: as_plain(one)[name] for name in _DATA} for one in judged])


def sentences(judged: Sequence[Judged]) -> list[str]:
    """What a reader should not overlook: that simulated is not measured, and what is refuted."""
    found = []
    decided = [one.deciding for one in judged if one.verdict == REPRODUCED and one.deciding is not None]
    drawn = sum(1 for evidence in decided if evidence.synthetic)
    if drawn:
        found.append(
            f"{drawn} of the {len(decided)} that are reproduced are predictions of the simulator on synthetic routing, "
            f"for machines that no record here is from: they say that the paper's figures fit together, not that they "
            f"were seen again."
        )
    for one in judged:
        if one.verdict == REFUTED and one.deciding is not None:
            remark = f" {one.test.remark[0].upper()}{one.test.remark[1:]}." if one.test.remark else ""
            here = ours(one, one.deciding)
            found.append(f"Refuted: {one.claim.id}, {printed(one)} in the paper, {here} here.{remark}")
    return found


def _row(one: Judged) -> dict[str, Any]:
    first = one.evidence[0] if one.evidence else None
    return {
        "id": one.claim.id,
        "statement": one.claim.statement[:1].upper() + one.claim.statement[1:],
        "model": one.claim.model if one.claim.model not in ("all", "-") else "",
        "printed": printed(one),
        "key": "" if one.claim.value is None else one.claim.value,
        "source": one.claim.source.split(";")[0].split("(")[0].strip(),
        "evidence": [
            {"text": ours(one, evidence), "model": evidence.model, "basis": evidence.basis, "lane": evidence.lane,
             "own_terms": evidence.own_terms}
            for evidence in one.evidence
        ],
        "ours_key": first.sample.value if first is not None and first.sample is not None else "",
        "lane": first.lane if first is not None else "–",
        "tolerance": tolerance(one),
        "why": one.test.why,
        "verdict": one.verdict,
        "colour": COLOURS[one.verdict],
        "note": note(one),
    }  # fmt: skip
