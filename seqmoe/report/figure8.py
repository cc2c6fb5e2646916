"""Figure 8: recall of the predictors, ours beside every rival's, on the routing that each group of traces holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from seqmoe.predictor.evaluation import Missing, recall_by_step
from seqmoe.predictor.scores import Which
from seqmoe.report import style
from seqmoe.report.plot import Line, Plot, Tick, common_ends
from seqmoe.report.predictions import K3, RESIDENCIES, Group, Judged, Value, offsets

OURS, PROBE = "mamba2", "transformer"
_WHICH: tuple[Which, ...] = ("seq1", "seq8", "long")
# The paper's names are long, its panel is narrow.
_SHORT = {
    "Qwen3-30B-A3B-FP8": "Qwen3\n30B-A3B",
    "Qwen3.6-35B-A3B-BF16": "Qwen3.6\n35B-A3B",
    "GPT-OSS-120B-MXFP4": "GPT-OSS\n120B",
    "DeepSeek-V4-Flash": "DeepSeek\nV4-Flash",
}


@dataclass(frozen=True, slots=True)
class Figure8:
    """Panels over groups of records (`seqmoe.report.predictions.groups_of`) and the paper's claims."""

    groups: Sequence[Group]
    claims: pd.DataFrame

    def panels(self, group: Group) -> list[Plot]:
        """Recall one step ahead, over the rollout and in the paper; on misses, calibration and learning curves."""
        seq1, seq8, printed = self._seq1(group), self._seq8(group), self.printed()
        ends = common_ends([seq1, seq8, printed])
        return [
            *(replace(plot, ends=ends) for plot in (seq1, seq8, printed)),
            self._misses(group),
            self._calibration(group),
            self._curves(group),
        ]

    def printed(self) -> Plot:
        """The paper's recall of the first k + 3 by model: its models, its traces."""
        rows = self.claims[self.claims["id"].str.startswith("recall-k3-")]
        ticks = [
            Tick(_SHORT.get(row["model"], row["model"]), float(row["value"]) / 100, f"{float(row['value']):.1f}%")
            for _, row in rows.iterrows()
        ]
        drop = self.drop_printed()
        note = "Seq-1, first k+3" + (f"; Seq-8 loses {drop:.2f} points on average" if drop is not None else "")
        return Plot("Printed in the paper", note, "Recall", "The paper's models", ticks=tuple(ticks))

    def drop_printed(self) -> float | None:
        """Points of recall that Seq-8 loses against Seq-1 in the paper, mean over its models."""
        rows = self.claims[self.claims["id"] == "recall-drop-seq8"]
        return float(rows.iloc[0]["value"]) if len(rows) else None

    def table(self) -> pd.DataFrame:
        """Everything that is drawn, one number with its interval a row; the paper's own in lane ``paper``."""
        rows = [
            row for group in self.groups for one in (*group.predictors, *group.ablation) for row in _rows(group, one)
        ]
        for _, claim in self.claims[self.claims["figure"].astype(str) == "8"].iterrows():
            value = pd.to_numeric(claim["value"], errors="coerce") / 100
            rows.append({"traces": "paper", "model": claim["model"], "metric": claim["id"], "value": value})
        return pd.DataFrame(rows)

    def _seq1(self, group: Group) -> Plot:
        lines = [_by_m(one, "seq1") for one in group.predictors]
        ours = group.find(OURS)
        if ours is not None and ours.recall(which="long").known:
            long = _by_m(ours, "long")
            lines.append(replace(long, name=f"{long.name}, over 4,096 tokens (Seq-L1)", look="dotted"))
        return _recall_plot("One step ahead (Seq-1)", group, lines)

    def _seq8(self, group: Group) -> Plot:
        lines = [
            replace(_by_m(one, "seq8"), look="dashed") for one in group.predictors if one.recall(which="seq8").known
        ]
        ours = group.find(OURS)
        if ours is not None:
            above = _by_m(ours, "seq1")
            lines.append(replace(above, name=f"{above.name}, Seq-1", strong=False, marker="", low=(), high=()))
        return _recall_plot("Eight-step rollout (Seq-8)", group, lines)

    def _misses(self, group: Group) -> Plot:
        lines = []
        for one in group.predictors:
            found = [(r, value.value) for r in RESIDENCIES if (value := one.on_misses(r)).known]
            if found:
                x, y = zip(*found, strict=True)
                lines.append(_line(one, x, y))
        return Plot(
            "What prefetching can use",
            "Recall of the first k+3 among experts that an LRU had not kept",
            "Recall on misses",
            "Experts on the device",
            tuple(lines),
            places=tuple((r, f"{r:.0%}") for r in RESIDENCIES),
            ends=common_ends([Plot("", "", "", "", tuple(lines))]),
            empty="" if lines else "every expert was resident",
        )

    def _calibration(self, group: Group) -> Plot:
        lines = []
        for one in group.predictors:
            points = one.reliability()
            x, y = [p.confidence for p in points], [p.frequency for p in points]
            lines.append(replace(_line(one, x, y), name=f"{one.title}, ECE {one.ece():.3f}"))
        return Plot(
            "Is its confidence true?",
            "Share that came true, by the probability that was forecast",
            "Came true",
            "Forecast probability",
            tuple(lines),
            places=tuple((tenth / 10, f"{10 * tenth}%") for tenth in range(0, 11, 2)),
            ends=(0.0, 1.02),
            diagonal=True,
        )

    def _curves(self, group: Group) -> Plot:
        lines = []
        for one in group.predictors:
            points = [(p["tokens"] / 1e6, p["recall"]) for p in one.curve if p.get("recall") is not None]
            if points:
                x, y = zip(*points, strict=True)
                lines.append(replace(_line(one, x, y), marker="" if len(x) > 12 else _line(one, x, y).marker))
        minutes = {one.record.cell.minutes for one in group.predictors if one.record.cell.trained}
        budget = f", {'/'.join(f'{m:g}' for m in sorted(minutes))} minutes" if minutes else ""
        return Plot(
            "Learning curves",
            f"First k+3, on validation sequences{budget}",
            "Recall",
            "Million training tokens",
            tuple(lines),
            ends=common_ends([Plot("", "", "", "", tuple(lines))]),
            empty="" if lines else "no predictor was trained",
        )


def _recall_plot(title: str, group: Group, lines: list[Line]) -> Plot:
    places = tuple((float(offset), text) for offset, text in enumerate(offsets()))
    k = group.traces.get("top_k")
    note = f"{group.source[0].upper()}{group.source[1:]}"
    return Plot(title, note, "Recall", f"Predicted experts per layer (k = {k})", tuple(lines), places=places)


def _by_m(one: Judged, which: Which) -> Line:
    values = [one.recall(offset, which) for offset in range(len(offsets()))]
    line = _line(one, range(len(values)), [value.value for value in values])
    return replace(line, low=tuple(value.low for value in values), high=tuple(value.high for value in values))


def _line(one: Judged, x: Sequence[float], y: Sequence[float]) -> Line:
    title, colour, marker = style.PREDICTORS[one.kind]
    return Line(title, colour, tuple(map(float, x)), tuple(y), marker=marker, strong=one.kind == OURS)


def _rows(group: Group, one: Judged) -> Iterator[dict[str, object]]:
    cell = one.record.cell
    shared: dict[str, object] = {
        "host": group.host, "traces": cell.traces, "digest": one.record.digest, "model": group.traces["model"],
        "predictor": one.kind, "variant": cell.variant, "minutes": cell.minutes, "seed": cell.seed,
    }  # fmt: skip

    def row(metric: str, value: Value, **more: object) -> dict[str, object]:
        return {**shared, "metric": metric, **more, "value": value.value, "low": value.low, "high": value.high}

    for which in _WHICH:
        for offset, m in enumerate(offsets()):
            value = one.recall(offset, which)
            if value.known:
                yield row(f"recall {which}", value, m=m)
    for residency in RESIDENCIES:
        for offset, m in enumerate(offsets()):
            if (value := one.on_misses(residency, offset)).known:
                yield row("recall on misses", value, m=m, x=residency)
    by_step = recall_by_step(one.evaluation, K3)
    for step, share in enumerate([] if isinstance(by_step, Missing) else by_step):
        yield row("recall by step", Value(share), m="k+3", x=step + 1)
    for bin in one.reliability():
        yield row("reliability", Value(bin.frequency), x=bin.confidence, count=bin.count)
    yield row("ece", Value(one.ece()))
    for point in one.curve:
        if point.get("recall") is not None:
            yield row("validation recall", Value(point["recall"]), m="k+3", x=point["tokens"])
    for name in ("one_step_us", "rollout_us", "parameters"):
        if one.cost.get(name) is not None:
            yield row(name, Value(float(one.cost[name])))
