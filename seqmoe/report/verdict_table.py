"""The verdicts as text: cells of a table, plain values for JSON, and a table for a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from seqmoe.harness.claims.evidence import Evidence, Sample
from seqmoe.harness.claims.verdict import INPUT, NOT_REPRODUCED, REFUTED, REPRODUCED, UNTESTED, Judged

_STYLES = {REPRODUCED: "green", NOT_REPRODUCED: "yellow", REFUTED: "red", UNTESTED: "dim", INPUT: "cyan"}


def number(value: float, unit: str) -> str:
    """A number with its unit: "84.6%", "1.39 experts/layer"; no more digits than mean something."""
    digits = 0 if abs(value) >= 1000 else 2 if abs(value) < 3 else 1
    text = f"{value:.{digits}f}".replace("-", "−")
    return text + _unit(unit)


def printed(one: Judged) -> str:
    """What the paper says, as it is printed."""
    if one.claim.value is None:
        return {"sets": "the printed sets"}.get(one.claim.unit, one.claim.unit)
    at_least = "at least " if one.claim.unit.endswith("at least") else ""
    return f"{at_least}{one.claim.value:g}{_unit(one.claim.unit)}"


def ours(one: Judged, evidence: Evidence) -> str:
    """What evidence says: a number with its interval, or words."""
    if evidence.sample is None:
        return evidence.text
    text = number(evidence.sample.value, one.claim.unit)
    return f"{text} [{interval(evidence.sample)}]" if evidence.sample.has_interval else text


def interval(sample: Sample) -> str:
    """The ends of an interval."""
    digits = 2 if abs(sample.value) < 3 else 1
    return f"{sample.low:.{digits}f}, {sample.high:.{digits}f}".replace("-", "−")


def tolerance(one: Judged) -> str:
    """What agrees, in words."""
    if one.claim.value is None:
        return "as stated"
    if one.claim.unit.endswith("at least"):
        return "at least" if not one.test.tolerance else f"at least, less {one.test.tolerance:g}"
    if one.test.relative:
        return f"±{one.test.tolerance:.0%}"
    return f"±{one.test.tolerance:g}" + (" points" if one.claim.unit in ("%", "percentage points") else "")


def note(one: Judged) -> str:
    """What a reader must know besides: whose model it is, what a test takes, why an input is none."""
    parts = []
    first = one.evidence[0] if one.evidence else None
    if one.verdict == INPUT:
        parts.append("the simulator was fitted to it, so its agreement says nothing")
    if one.verdict == UNTESTED:
        parts.append(f"takes {one.test.takes}")
    elif one.deciding is not None and not one.deciding.own_terms:
        parts.append(f"on another model; the paper's takes {one.test.takes}")
    if one.verdict == UNTESTED and first is not None:
        parts.append("nearest evidence is on another model")
    return "; ".join(filter(None, [*parts, one.test.remark]))


def as_plain(one: Judged) -> dict[str, Any]:
    """One claim for JSON: the deciding evidence at the top, all of it in ``evidence``."""
    deciding = one.deciding
    sample = deciding.sample if deciding else None
    return {
        "id": one.claim.id,
        "figure": one.claim.figure,
        "statement": one.claim.statement,
        "model": one.claim.model,
        "paper": one.claim.value,
        "unit": one.claim.unit,
        "verdict": one.verdict,
        "lane": deciding.lane if deciding else None,
        "ours": _finite(sample.value) if sample else None,
        "interval": [sample.low, sample.high] if sample and sample.has_interval else None,
        "text": ours(one, deciding) if deciding else None,
        "tolerance": tolerance(one),
        "why": one.test.why,
        "takes": one.test.takes,
        "note": note(one),
        "evidence": [_evidence(one, evidence) for evidence in one.evidence],
    }


def origins(judged: Sequence[Judged]) -> dict[str, str]:
    """For each verdict that evidence decided, how many by what: "27 simulated, 5 computed, 2 replayed"."""
    found: dict[str, Counter[str]] = {}
    for one in judged:
        if one.deciding is not None:
            replayed = one.deciding.lane == "simulated" and not one.deciding.synthetic
            found.setdefault(one.verdict, Counter())["replayed" if replayed else one.deciding.lane] += 1
    return {
        verdict: ", ".join(f"{number} {origin}" for origin, number in counter.most_common())
        for verdict, counter in found.items()
    }


def terminal_table(judged: Sequence[Judged]) -> Table:
    """One line for each claim, in the order of claims.csv."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("Claim", "Paper", "Ours", "Lane", "Verdict"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("Lane", "Verdict"))
    for one in judged:
        first = one.evidence[0] if one.evidence else None
        text = "–" if first is None else ours(one, first) + ("" if first.own_terms else f"\non {first.model}")
        lane = first.lane if first else "–"
        verdict = Text(one.verdict, style=_STYLES[one.verdict])
        table.add_row(_name(one), printed(one), Text(text), lane, verdict)
    return table


def _name(one: Judged) -> Text:
    """The claim's id, its model on a line of its own."""
    short = one.claim.id.removesuffix(f"-{one.claim.model}")
    return Text(short) if short == one.claim.id else Text.assemble(short, (f"\n{one.claim.model}", "dim"))


def _unit(unit: str) -> str:
    return {"%": "%", "% at least": "%", "percentage points": " points"}.get(unit, f" {unit}")


def _evidence(one: Judged, evidence: Evidence) -> dict[str, Any]:
    sample = evidence.sample
    return {
        "lane": evidence.lane,
        "model": evidence.model,
        "basis": evidence.basis,
        "own_terms": evidence.own_terms,
        "synthetic_routing": evidence.synthetic,
        "value": _finite(sample.value) if sample else None,
        "interval": [sample.low, sample.high] if sample and sample.has_interval else None,
        "text": ours(one, evidence),
        "agrees": one.agrees(evidence),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
