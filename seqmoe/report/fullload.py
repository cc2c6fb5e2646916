"""Full load beside the systems that hold a whole model too: what our own bar, which all shares are of, is worth."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmoe.harness.record import Record
from seqmoe.harness.statistics import compare
from seqmoe.report import style
from seqmoe.report.fullload_rows import Group, Row, groups_of
from seqmoe.report.stacks import PARTS

RIVAL = "llama.cpp"
METRICS = {"tok_s": ("Decode (tok/s)", 1.0), "ttft_s": ("Time to first token (ms)", 1e3)}
_WIDTH = 0.72


class FullLoad:
    """Records of full load on one kind of host, grouped by the work they did."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.groups = groups_of(records)

    def sentences(self) -> list[str]:
        """By what factor we are behind or ahead of llama.cpp, and where the time goes."""
        found = []
        for group in self.groups:
            rival = next((row for row in group.rows if row.system == RIVAL and row.tok_s), None)
            ours = group.ours
            if ours is None:
                continue
            if rival is not None:
                found.append(_against(ours, rival))
            found.append(_where_time_goes(ours, group.mode("sync")))
        return found

    def draw(self, group: Group, metric: str, axes: Axes) -> dict[str, str]:
        """Bars with intervals; what did not run has its reason."""
        unit, scale = METRICS[metric]
        tips: dict[str, str] = {}
        for place, row in enumerate(group.rows):
            tip, found = f"tip-{len(tips)}", row.summary(metric)
            if found is None:
                tips[tip] = f"{row.title}: {row.reason}"
                axes.plot([0], [place], marker="x", color=style.MUTED, linestyle="none", gid=tip, clip_on=False)
                continue
            middle, low, high = (scale * value for value in (found.median, found.low, found.high))
            tips[tip] = f"{row.title}: {middle:.4g} [{low:.4g}, {high:.4g}]"
            axes.barh(place, middle, _WIDTH, color=style.colour(row.title), gid=tip, zorder=2)
            if found.count > 1:
                error = [[middle - low], [high - middle]]
                axes.errorbar([middle], [place], xerr=error, color=style.INK, elinewidth=1.0, capsize=2.2, zorder=4)
            axes.annotate(f"{middle:.4g}", (high, place), xytext=(4, 0), textcoords="offset points", va="center",
                          fontsize=8.5, color=style.INK)  # fmt: skip
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.grid(axis="x", zorder=0)
        axes.set_axisbelow(True)
        axes.set_yticks(range(len(group.rows)), [row.title for row in group.rows])
        axes.invert_yaxis()
        axes.margins(x=0.14)
        axes.set_xlim(left=0)
        axes.set_xlabel(unit)
        axes.set_title(group.about, loc="left", fontsize=8.5)
        return tips

    def figure(self) -> Figure:
        """Both metrics of every group. Call it inside `seqmoe.report.style.theme`."""
        count = max(1, len(self.groups))
        sheet = Figure(figsize=(10.5, 3.4 * count), layout="constrained")
        places = sheet.subplots(count, 2, squeeze=False)
        for group, pair in zip(self.groups, places, strict=False):
            for metric, axes in zip(METRICS, pair, strict=True):
                self.draw(group, metric, axes)
        return sheet

    def table(self) -> pd.DataFrame:
        """Every number."""
        rows: list[dict[str, object]] = []
        for group in self.groups:
            for row in group.rows:
                entry: dict[str, object] = {"lane": "measured", "work": group.about, "system": row.title}
                for metric in METRICS:
                    found = row.summary(metric)
                    values = (found.median, found.low, found.high) if found else (np.nan,) * 3
                    entry |= dict(zip((metric, f"{metric}_low", f"{metric}_high"), values, strict=True))
                entry |= {"repeats": len(row.tok_s), "agreement": row.agreement, "threads": row.threads}
                rows.append(entry | {"version": row.version, "reason": row.reason, **row.shares})
        return pd.DataFrame(rows)


def _against(ours: Row, rival: Row) -> str:
    ahead, behind = compare(ours.tok_s, rival.tok_s), compare(rival.tok_s, ours.tok_s)
    ratio, word, caution = (ahead.ratio, "ahead of", ahead) if ahead.ratio >= 1 else (behind.ratio, "behind", behind)
    proof = "" if caution.faster else f" (not enough to call one faster: {caution.reason})"
    threads = f"{rival.threads} thread{'' if rival.threads == '1' else 's'}"
    threads = f"the same {threads}" if ours.threads == rival.threads else f"{threads}, ours on {ours.threads}"
    return (
        f"{ours.title} is {word} {rival.title} by a factor of {ratio:.2f} in decode throughput, on the same float32 "
        f"weights and {threads}{proof}: {ours.step_ms:.2f} ms a step against {rival.step_ms:.2f} ms."
    )


def _where_time_goes(ours: Row, sync: Row | None) -> str:
    parts = [(PARTS[part][0].lower(), share) for part, share in ours.shares.items() if share >= 0.005]
    words = ", ".join(f"{name} {share:.0%}" for name, share in sorted(parts, key=lambda part: -part[1]))
    text = f"Of our step of {ours.step_ms:.2f} ms, by its own timers: {words or 'not timed'}."
    if sync is not None and sync is not ours and sync.step_ms > ours.step_ms:
        gone = sync.step_ms - ours.step_ms
        text += (
            f" Started by Python operator by operator (sync) a step takes {sync.step_ms:.2f} ms: the other "
            f"{gone:.2f} ms are what starting operators one by one costs, and what compiling them together saves."
        )
    return text
