"""What the records of the predictors say, in sentences and numbers; for and against the paper alike."""

from __future__ import annotations

from seqmoe.report.facts import Fact
from seqmoe.report.figure2 import ORDERED, SHUFFLED, Figure2, probes
from seqmoe.report.figure8 import OURS, PROBE, Figure8
from seqmoe.report.predictions import Group, Judged
from seqmoe.spec.prediction import TRAINED

# How near to the probe, in points of recall, SeqMoE's predictor is asked to come.
_NEAR = 2.0
_RESIDENCY = 0.25


def facts8(figure: Figure8, group: Group) -> list[Fact]:
    """The few numbers of figure 8 that matter, of one group."""
    ours = group.find(OURS)
    if ours is None:
        return []
    k3 = ours.recall()
    m = f"first k+3 = {ours.evaluation.top_k + 3} of {ours.evaluation.experts}"
    found = [
        Fact("of the next token's experts", f"{k3.value:.1%}",
             f"are among SeqMoE's {m}, on {group.source}; 95% interval {k3.low:.1%} to {k3.high:.1%}",
             _printed_k3(figure)),
    ]  # fmt: skip
    probe, drop = group.find(PROBE), ours.recall(which="seq8")
    if probe is not None:
        points = 100 * (k3.value - probe.recall().value)
        signed = f"{points:+.1f}".replace("-", "−")
        found.append(Fact("points to the Transformer probe", signed, _equally(ours, probe)))
    if drop.known:
        printed = figure.drop_printed()
        text = f"a mean loss of {printed:.2f} points" if printed is not None else ""
        found.append(Fact("points lost over eight steps", f"{100 * (k3.value - drop.value):.1f}",
                          f"Seq-8 {drop.value:.1%} against Seq-1 {k3.value:.1%}", text))  # fmt: skip
    misses = ours.on_misses(_RESIDENCY)
    if misses.known:
        cheap = _best_cheap(group)
        other = cheap.on_misses(_RESIDENCY) if cheap else None
        beside = f"; {_name(cheap)} {other.value:.1%}" if cheap and other is not None and other.known else ""
        found.append(Fact("recall on misses", f"{misses.value:.1%}",
                          f"of the experts that an LRU of {_RESIDENCY:.0%} had not kept{beside}"))  # fmt: skip
    return found


def sentence8(figure: Figure8, group: Group) -> str:
    """What figure 8 shows, whether it pleases or not."""
    ours, probe, cheap = group.find(OURS), group.find(PROBE), _best_cheap(group)
    parts = []
    if ours is None:
        parts.append("SeqMoE's own predictor gave no result here.")
    else:
        mine = ours.recall()
        if probe is not None:
            gap = 100 * (mine.value - probe.recall().value)
            near = "within" if gap >= -_NEAR else "not within"
            side = "ahead of" if gap > 0 else f"({near} {_NEAR:g} points) behind"
            parts.append(
                f"SeqMoE's Mamba2 is {abs(gap):.1f} points {side} the Transformer probe at k+3, after "
                f"{_training(ours, probe)}."
            )
        eight, printed = ours.recall(which="seq8"), figure.drop_printed()
        if eight.known:
            lost = 100 * (mine.value - eight.value)
            beside = "" if printed is None else _beside(lost, printed)
            parts.append(f"Over the eight-step rollout it loses {lost:.1f} points{beside}.")
        if cheap is not None:
            gap = 100 * (mine.value - cheap.recall().value)
            word = "below" if gap >= 0 else "above"
            parts.append(
                f"The best rival that needs no training is {_name(cheap)} at {cheap.recall().value:.1%}, "
                f"{abs(gap):.1f} points {word} it."
            )
    return " ".join(parts)


def facts2(figure: Figure2, group: Group) -> list[Fact]:
    """What is left of the probe's recall when the order is gone."""
    best = {one.record.cell.options.ordered: _best(one) for one in probes(group)}
    found = []
    for ordered, title in ((True, "as decoded"), (False, "shuffled")):
        if best.get(ordered) is not None:
            printed = figure.claim(ORDERED if ordered else SHUFFLED)
            text = "" if printed is None else f"{printed:.0%} for Qwen3-30B-A3B-FP8"
            detail = f"best of the first k+3 on validation sequences, {group.source}"
            found.append(Fact(f"recall, sequences {title}", f"{best[ordered]:.1%}", detail, text))
    return found


def sentence2(figure: Figure2, group: Group) -> str:
    """What figure 2 shows: how far the recall falls without the order, and that it does not fall to nothing."""
    best = {one.record.cell.options.ordered: _best(one) for one in probes(group)}
    ordered, shuffled = best.get(True), best.get(False)
    if ordered is None or shuffled is None:
        return "Both the ordered and the shuffled probe are needed; one of them has no learning curve yet."
    chance = _chance(group)
    fall = 100 * (ordered - shuffled)
    if fall < 1:
        return (
            f"Shuffling costs the probe {fall:.1f} points ({ordered:.1%} to {shuffled:.1%}): on these traces, with "
            f"this budget, the order of tokens says next to nothing."
        )
    rest = f"; {chance:.1%} would be chance" if chance else ""
    printed = [figure.claim(name) for name in (ORDERED, SHUFFLED)]
    paper = ""
    if printed[0] is not None and printed[1] is not None:
        paper = f" In the paper it falls by {100 * (printed[0] - printed[1]):.0f} points, to {printed[1]:.0%}."
    return (
        f"Shuffling costs the probe {fall:.1f} points of recall, from {ordered:.1%} to {shuffled:.1%}{rest}.{paper} "
        f"What is left without the order is which experts a sequence favours."
    )


def _chance(group: Group) -> float | None:
    k, experts = group.traces.get("top_k"), group.traces.get("experts")
    return min(1.0, (k + 3) / experts) if k and experts else None


def _best(one: Judged) -> float | None:
    values = [point["recall"] for point in one.curve if point.get("recall") is not None]
    return max(values, default=None)


def _best_cheap(group: Group) -> Judged | None:
    """The best predictor that only counts and forecasts a token ahead: the early router looks one layer ahead."""
    cheap = [one for one in group.predictors if one.kind not in (*TRAINED, "early_router")]
    return max(cheap, key=lambda one: one.recall().value, default=None)


def _name(one: Judged | None) -> str:
    return "" if one is None else f"{one.title[0].lower()}{one.title[1:]}"


def _training(ours: Judged, probe: Judged) -> str:
    mine, theirs = ours.record.cell.minutes, probe.record.cell.minutes
    return (
        f"{mine:g} minutes of training each" if mine == theirs else f"{mine:g} against {theirs:g} minutes of training"
    )


def _equally(ours: Judged, probe: Judged) -> str:
    return f"the probe reaches {probe.recall().value:.1%} at k+3, after {_training(ours, probe)}"


def _beside(lost: float, printed: float) -> str:
    if abs(lost - printed) < 0.5:
        return f", as in the paper ({printed:.2f})"
    return f", {'more' if lost > printed else 'less'} than the paper's {printed:.2f}"


def _printed_k3(figure: Figure8) -> str:
    ticks = figure.printed().ticks
    if not ticks:
        return ""
    values = [tick.value for tick in ticks]
    return f"{min(values):.1%} to {max(values):.1%} for its four models"
