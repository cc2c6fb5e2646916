"""What the page says first: the few numbers that the figure is about, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from seqmoe.report import paper, style
from seqmoe.report.frame import DIFFERS, SAME
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.system import SYSTEMS

_OURS, _RIVAL = "seqmoe", "lru"


@dataclass(frozen=True, slots=True)
class Fact:
    """A number in words, what it is, and what the paper says of it (empty where it says nothing)."""

    title: str
    value: str
    detail: str
    printed: str = ""


@dataclass(frozen=True, slots=True)
class Absence:
    """Cells that did not run for one reason; ``hint`` is what they need."""

    systems: str
    status: str
    cells: int
    reason: str
    hint: str


def facts(summary: pd.DataFrame, home: Home) -> list[Fact]:
    """Share of full load and hit rate of SeqMoE at its highest residency, sameness of answers, and what ran."""
    found: list[Fact] = []
    ours = summary[(summary["system"] == _OURS) & summary["share"].notna()]
    if len(ours):
        place = ours["lane"].map(list(style.LANES).index)
        # The paper's SeqMoE forecasts with Mamba2.
        order = ours.assign(place=place, held=-ours["residency"], other=ours["predictor"] != "mamba2")
        row = order.sort_values(["place", "held", "other"], kind="stable").iloc[0]
        found += [_share(row, home), *_hits(row, summary, home)]
    return [*found, *_answers(summary), *([_coverage(summary)] if len(summary) else [])]


def absences(summary: pd.DataFrame) -> list[Absence]:
    """What did not run, by reason, most cells first."""
    groups = summary[summary["status"] != "ok"].groupby(["status", "reason", "hint"], sort=False)
    rows = []
    for (status, reason, hint), cells in groups:
        systems = ", ".join(dict.fromkeys(cells["system_title"]))
        rows.append(Absence(systems, str(status).replace("_", " "), len(cells), str(reason), str(hint)))
    return sorted(rows, key=lambda absence: -absence.cells)


def workloads(summary: pd.DataFrame) -> str:
    """What the observed cells did, in words, where that is one or two things; the table tells where it is more."""
    keys = ["batch", "prompts", "dataset", "decode_tokens"]
    found = summary[keys].drop_duplicates()
    if len(found) > 2:
        return f"{len(found)} workloads, named in the table."
    ran = summary.loc[summary["status"] == "ok", "repeats"]
    counts = " to ".join(str(count) for count in dict.fromkeys((ran.min(), ran.max()))) if len(ran) else ""
    repeats = f"; {counts} repeat{'' if counts == '1' else 's'}" if counts else ""
    each = [
        f"{row['prompts']} prompts of {row['dataset']}, batch {row['batch']}, {row['decode_tokens']} tokens each"
        for _, row in found.iterrows()
    ]
    return f"{'; '.join(each)}{repeats}." if each else ""


def _share(row: pd.Series, home: Home) -> Fact:
    low, high = row["share_low"], row["share_high"]
    interval = f", 95% interval {low:.1%} to {high:.1%}" if np.isfinite(low) else ""
    held = f"{row['residency']:.0%} of the experts on the device"
    return Fact(
        "of full-load speed",
        f"{row['share']:.1%}",
        f"SeqMoE with {held} ({row['model_title']}, {row['lane']}){interval}",
        _printed_share(row, home),
    )


def _printed_share(row: pd.Series, home: Home) -> str:
    try:
        model = row["model"] if row["hardware"] == "host" else load_hardware(home, row["hardware"]).emulates
        title = load_model(home, model).title
    except InputError:
        # A record may name a profile or a model that is no longer declared; the paper then has no counterpart.
        return ""
    shares = paper.shares_of_full_load(paper.figure6_bars(home))
    match = shares[
        (shares["panel"] == row["panel"])
        & (shares["model"] == title)
        & (shares["system"] == SYSTEMS[row["system"]].title)
        & np.isclose(shares["x"], row["residency"])
    ]
    return f"{match.iloc[0]['value']:.1%} for {title} on {match.iloc[0]['hardware']}" if len(match) else ""


def _hits(row: pd.Series, summary: pd.DataFrame, home: Home) -> list[Fact]:
    if not np.isfinite(row["hit_rate"]):
        return []
    same = ["host", "lane", "hardware", "model", "panel", "batch", "decode_tokens", "residency"]
    rivals = summary[(summary["system"] == _RIVAL) & (summary[same] == row[same]).all(axis=1)]
    rates = rivals["hit_rate"].dropna()
    beside = f"; LRU {rates.iloc[0]:.1%}" if len(rates) else ""
    printed = paper.claims(home).set_index("id")["value"]
    names = [f"hit-{name}-{row['residency'] * 100:.0f}" for name in ("seqmoe", "lru")]
    text = ""
    if all(name in printed.index for name in names):
        text = "{}% and {}% (LRU), mean of the models".format(*(f"{float(printed[name]):.1f}" for name in names))
    return [Fact("expert hit rate", f"{row['hit_rate']:.1%}", f"SeqMoE at {row['residency']:.0%}{beside}", text)]


def _answers(summary: pd.DataFrame) -> list[Fact]:
    compared = summary[summary["answer"].isin([SAME, DIFFERS])]
    if compared.empty:
        return []
    differing = compared[compared["answer"] == DIFFERS]
    detail = "Token for token what full load says"
    for title, cells in differing.groupby("system_title", sort=False):
        detail += f"; {title} differs after {cells['matched'].min():.0%} of its tokens"
    return [Fact("cells give the same answer", f"{(compared['answer'] == SAME).sum()} of {len(compared)}", detail)]


def _coverage(summary: pd.DataFrame) -> Fact:
    counts = summary.loc[summary["status"] != "ok", "status"].value_counts()
    rest = ", ".join(f"{count} {str(kind).replace('_', ' ')}" for kind, count in counts.items())
    return Fact("cells ran", f"{(summary['status'] == 'ok').sum()} of {len(summary)}", rest or "all that were declared")
