"""Records as a data frame: one row per cell and repeat, with its metrics, its share of full load and its answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import numpy as np
import pandas as pd

from seqmoe.harness import metrics
from seqmoe.harness.record import Record
from seqmoe.harness.store import latest
from seqmoe.spec.errors import InputError
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.system import SYSTEMS

# Rows that agree in these did the same work in the same way; only such rows are set against each other.
WORKLOAD = [
    "suite", "host", "lane", "hardware", "model", "panel", "batch", "dataset", "prompts", "decode_tokens", "seed",
]  # fmt: skip
# What decides which tokens a model says; where they come from (lane, panel, machine) must not.
QUESTION = ["model", "batch", "dataset", "prompts", "decode_tokens", "seed"]
METRICS = ("tok_s", "ttft_s", "hit_rate", "share")

REFERENCE, SAME, DIFFERS, UNKNOWN = "reference", "same", "differs", "unknown"


def records_frame(records: Iterable[Record], home: Home) -> pd.DataFrame:
    """One row per host, cell and repeat (the last written); hosts in turn, each in the order of writing.

    Columns: the cell's fields, ``host``, ``system_title``, ``model_title``, ``repeat``, ``status``, ``reason``,
    ``hint``, the metrics (NaN where there is none, with ``hit_note`` for a missing hit rate), ``answer`` (how the
    greedy tokens compare with full load's) and ``matched`` (the share of tokens before the first difference), ``share``
    (of full load's throughput in the same repeat). A row of our own runtime whose tokens differ is `invalid`.
    """
    hosts: dict[str, list[Record]] = {}
    for record in records:
        hosts.setdefault(_host(record), []).append(record)
    kept = [record for group in hosts.values() for record in latest(group)]
    rows = [_row(record, home) for record in kept]
    frame = pd.DataFrame(rows, columns=list(rows[0]) if rows else _NO_ROWS)
    frame = _with_answers(frame, kept)
    return _with_shares(frame)


_NO_ROWS = [
    "suite", "panel", "system", "model", "lane", "residency", "batch", "dataset", "prompts", "decode_tokens",
    "hardware", "seed", "cell_key", "host", "system_title", "model_title", "repeat", "status", "reason", "hint",
    "tok_s", "ttft_s", "hit_rate", "hit_note", "overlap_ratio",
]  # fmt: skip


def _row(record: Record, home: Home) -> dict[str, object]:
    hit_rate = metrics.hit_rate(record)
    spec = SYSTEMS.get(record.cell.system)
    return {
        **asdict(record.cell),
        "cell_key": record.cell_key,
        "host": _host(record),
        "system_title": spec.title if spec else record.cell.system,
        "model_title": _model_title(home, record.cell.model),
        "repeat": record.repeat,
        "status": record.status.kind,
        "reason": record.status.reason,
        "hint": record.status.hint,
        "tok_s": _number(metrics.decode_tok_s(record)),
        "ttft_s": _number(metrics.ttft_s(record)),
        "hit_rate": _number(hit_rate),
        "hit_note": hit_rate.reason if isinstance(hit_rate, metrics.Missing) and record.status.ok else "",
        "overlap_ratio": _number(metrics.stat(record, "overlap_ratio")),
    }


def _host(record: Record) -> str:
    return str(record.environment.get("host", "unknown host"))


def _model_title(home: Home, name: str) -> str:
    try:
        return load_model(home, name).title
    except InputError:
        # Records outlive declarations: a model given by its path, or one that was since removed, goes by its own name.
        return name


def _number(value: float | metrics.Missing) -> float:
    return float("nan") if isinstance(value, metrics.Missing) else value


def _with_answers(frame: pd.DataFrame, records: list[Record]) -> pd.DataFrame:
    """Compare every row's greedy tokens with those of full load on the same question."""
    references: dict[tuple[object, ...], list[tuple[int | None, ...]]] = {}
    for record in records:
        if record.status.ok and record.cell.system == "full":
            references.setdefault(_question(record), _tokens(record))
    answers, matched = [], []
    for record in records:
        reference = references.get(_question(record))
        answer, share = _compare(_tokens(record), reference) if record.status.ok else (UNKNOWN, float("nan"))
        answers.append(REFERENCE if record.cell.system == "full" and answer == SAME else answer)
        matched.append(share)
    frame = frame.assign(answer=answers, matched=np.asarray(matched, dtype=np.float64))
    ours = (frame["answer"] == DIFFERS) & frame["system"].isin(list(SYSTEMS))
    frame.loc[ours, "status"] = "invalid"
    frame.loc[ours, "reason"] = frame.loc[ours, "matched"].map(
        lambda share: f"its tokens differ from full load's ({share:.0%} agree before the first difference)"
    )
    frame.loc[ours, ["tok_s", "ttft_s", "hit_rate"]] = float("nan")
    return frame


def _question(record: Record) -> tuple[object, ...]:
    return tuple(getattr(record.cell, key) for key in QUESTION)


def _tokens(record: Record) -> list[tuple[int | None, ...]]:
    return [prompt.tokens for prompt in record.observations.prompts]


def _compare(tokens: list[tuple[int | None, ...]], reference: list[tuple[int | None, ...]] | None) -> tuple[str, float]:
    """`SAME`, `DIFFERS` or `UNKNOWN`, and the mean share of each prompt's tokens before the first difference."""
    if reference is None or any(token is None for prompt in (*tokens, *reference) for token in prompt):
        return UNKNOWN, float("nan")
    shares = []
    for ours, theirs in zip(tokens, reference, strict=True):
        agreed = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), len(theirs))
        shares.append(agreed / len(theirs))
    return (SAME if min(shares) == 1.0 else DIFFERS), float(np.mean(shares))


def _with_shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Divide by full load's throughput of the same workload in the same repeat; NaN where that repeat has none."""
    full = frame[(frame["system"] == "full") & frame["tok_s"].notna()]
    keys = [*WORKLOAD, "repeat"]
    joined = frame.join(full.set_index(keys)["tok_s"].rename("full_tok_s"), on=keys)
    return joined.assign(share=joined["tok_s"] / joined["full_tok_s"]).drop(columns="full_tok_s")
