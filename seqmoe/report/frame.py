"""Records as a data frame: one row per cell and repeat, with its metrics, its share of full load and its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace

import pandas as pd

from seqmoe.harness import metrics, same_answer
from seqmoe.harness.conditions import model_digest
from seqmoe.harness.record import Record
from seqmoe.harness.store import latest
from seqmoe.spec.errors import InputError
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import Cell
from seqmoe.spec.system import SYSTEMS

# Rows that agree in these did the same work in the same way; only such rows are set against each other.
WORKLOAD = [
    "suite", "host", "device", "lane", "hardware", "model", "panel", "batch", "dataset", "prompts", "decode_tokens",
    "seed", "weights", "layers",
]  # fmt: skip
METRICS = ("tok_s", "ttft_s", "hit_rate", "share")
# Beside the hit rate, always: the rate per assignment, expert bytes over the link per output token, the routing's
# diversity, and of an emulated run the overlap ratio asked for and reached, the factor that time was stretched by and
# the layers that it was too little for; then the time spent waiting for experts, and the gaps between tokens.
CIRCUMSTANCES = (
    "assignment_hit_rate", "bytes_on_demand", "bytes_prefetched", "bytes_wasted", "bytes_late", "distinct_experts",
    "overlap_ratio", "overlap_achieved", "dilation", "overrun_share", "stall_share", "itl_p50_s", "itl_p95_s",
)  # fmt: skip

# Every predictor that a suite names; a model's own is not.
PREDICTOR_TITLES = {
    "mamba2": "Mamba2",
    "first_order": "first-order",
    "online_first_order": "first-order online",
    "previous": "previous token",
}

REFERENCE, SAME, DIFFERS, UNKNOWN = "reference", "same", "differs", "unknown"


def records_frame(records: Iterable[Record], home: Home) -> pd.DataFrame:
    """One row per host, cell and repeat (the last written); hosts in turn, each in the order of writing.

    ``records`` are comparable (`seqmoe.harness.conditions.newest_only`). Columns: the cell's fields, ``host``,
    ``device`` (cpu or cuda, empty where a record does not tell), ``system_title``, ``model_title``, ``repeat``,
    ``status``, ``reason``, ``hint``, `METRICS` (NaN where there is none, with ``hit_note`` for a missing hit rate;
    ``share`` is of full load's throughput in the same repeat), `CIRCUMSTANCES`, ``answer`` (how the greedy tokens
    compare with full load's), ``matched`` (the mean share of tokens before the first difference) and ``tokens_sha256``
    (of all greedy tokens). A row of our own runtime whose tokens differ is `invalid`.
    """
    hosts: dict[str, list[Record]] = {}
    for record in records:
        hosts.setdefault(_host(record), []).append(record)
    rows = [row for group in hosts.values() for row in _rows(latest(group), home)]
    return _with_shares(pd.DataFrame(rows, columns=list(rows[0]) if rows else _NO_ROWS))


_NO_ROWS = [
    "suite", "panel", "system", "model", "lane", "residency", "batch", "dataset", "prompts", "decode_tokens",
    "hardware", "seed", "routing", "predictor", "execution", "link", "weights", "layers", "what_if", "cell_key",
    "host", "device", "system_title", "model_title", "repeat", "status", "reason", "hint", "tok_s", "ttft_s",
    "hit_rate", "hit_note", *CIRCUMSTANCES, "answer", "matched", "tokens_sha256",
]  # fmt: skip


def _rows(records: list[Record], home: Home) -> Iterator[dict[str, object]]:
    """The rows of one host. Its own full load is what its answers are held to: other arithmetic may say other words."""
    full = {_question(r): r for r in records if r.status.ok and r.cell.system == same_answer.FULL}
    for record in records:
        reference = full.get(_question(record))
        beside = [reference] if reference is not None else []
        answer = same_answer.compare(record, reference)
        digest = model_digest(record.environment)
        status = same_answer.verdict(record.cell, record.status, record.observations, beside, digest)
        yield _row(replace(record, status=status), answer, home)


def _question(record: Record) -> tuple[object, ...]:
    """What was asked of which weights: the answers to one question must agree."""
    return (model_digest(record.environment), *same_answer.workload(record.cell))


def _row(record: Record, answer: same_answer.Answer | metrics.Missing, home: Home) -> dict[str, object]:
    hit_rate = metrics.hit_rate(record)
    return {
        **asdict(record.cell),
        "cell_key": record.cell_key,
        "host": _host(record),
        "device": str(record.environment.get("device", "")),
        "system_title": system_title(record.cell),
        "model_title": model_title(home, record.cell.model),
        "repeat": record.repeat,
        "status": record.status.kind,
        "reason": record.status.reason,
        "hint": record.status.hint,
        "tok_s": _number(metrics.decode_tok_s(record)),
        "ttft_s": _number(metrics.ttft_s(record)),
        "hit_rate": _number(hit_rate),
        "hit_note": hit_rate.reason if isinstance(hit_rate, metrics.Missing) and record.status.ok else "",
        "assignment_hit_rate": _number(metrics.stat(record, "per_assignment_hit_rate")),
        **{f"bytes_{kind}": _number(metrics.bytes_per_output_token(record, kind)) for kind in metrics.BYTES},
        "distinct_experts": _number(metrics.distinct_experts_per_layer(record)),
        "overlap_ratio": _number(metrics.stat(record, "overlap_ratio")),
        "overlap_achieved": _number(metrics.stat(record, "overlap_ratio_achieved")),
        "dilation": _number(metrics.stat(record, "dilation")),
        "overrun_share": _number(metrics.stat(record, "overrun_share")),
        "stall_share": _number(metrics.stall_share(record)),
        "itl_p50_s": _number(metrics.itl_s(record, 50)),
        "itl_p95_s": _number(metrics.itl_s(record, 95)),
        "answer": _answer(record, answer),
        "matched": _matched(record, answer),
        "tokens_sha256": "" if isinstance(digest := metrics.tokens_sha256(record), metrics.Missing) else digest,
    }


def system_title(cell: Cell) -> str:
    """A system's name for people, with the predictor that its suite names."""
    title = SYSTEMS[cell.system].title if cell.system in SYSTEMS else cell.system
    return f"{title}, {PREDICTOR_TITLES[cell.predictor]}" if cell.predictor in PREDICTOR_TITLES else title


def _answer(record: Record, answer: same_answer.Answer | metrics.Missing) -> str:
    if isinstance(answer, metrics.Missing):
        return UNKNOWN
    if not answer.same:
        return DIFFERS
    return REFERENCE if record.cell.system == same_answer.FULL else SAME


def _matched(record: Record, answer: same_answer.Answer | metrics.Missing) -> float:
    return float("nan") if isinstance(answer, metrics.Missing) else answer.common_prefix / record.cell.decode_tokens


def _host(record: Record) -> str:
    return str(record.environment.get("host", "unknown host"))


def model_title(home: Home, name: str) -> str:
    """A model's title, or its name where it is not declared."""
    try:
        return load_model(home, name).title
    except InputError:
        # Records outlive declarations: a model given by its path, or one that was since removed, goes by its own name.
        return name


def _number(value: float | metrics.Missing) -> float:
    return float("nan") if isinstance(value, metrics.Missing) else value


def _with_shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Divide by full load's throughput of the same workload in the same repeat; NaN where that repeat has none."""
    full = frame[(frame["system"] == "full") & frame["tok_s"].notna()]
    keys = [*WORKLOAD, "repeat"]
    joined = frame.join(full.set_index(keys)["tok_s"].rename("full_tok_s"), on=keys)
    return joined.assign(share=joined["tok_s"] / joined["full_tok_s"]).drop(columns="full_tok_s")
