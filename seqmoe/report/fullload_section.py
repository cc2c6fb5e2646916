"""The page's part on full load beside other systems, and its table for a terminal."""

from __future__ import annotations

from seqmoe.report.fullload import METRICS, FullLoad
from seqmoe.report.fullload_rows import Row
from seqmoe.report.page import Section, fill
from seqmoe.report.step_sections import Drawing, pictures_of

TITLE = "What full load is worth beside other systems"
HEADINGS_FULLLOAD = ("System", "TTFT (ms)", "tok/s", "Same tokens as ours", "Threads", "Repeats")


def section_fullload(figure: FullLoad) -> Section:
    """One pair of pictures for each kind of work."""
    drawings: list[Drawing] = [
        lambda axes, group=group, metric=metric: figure.draw(group, metric, axes)  # type: ignore[misc]
        for group in figure.groups
        for metric in METRICS
    ]
    body = fill(
        "steps.html.j2",
        suite="fullload",
        recorded=bool(figure.groups),
        lead="Every share of full load divides by our own full load. Here it stands beside the systems that people run "
        "when a model fits: the same checkpoint, token ids, count of tokens and threads, on this host.",
        pictures=pictures_of(drawings, "full", width=6.0),
        sentences=figure.sentences(),
        headings=HEADINGS_FULLLOAD,
        rows=rows_fullload(figure),
        method="Greedy, end-of-text ignored, systems interleaved; medians over repeats with the 95% bootstrap "
        "interval. The checkpoint's bfloat16 is widened to float32, which loses nothing, so that tokens can be "
        "compared; llama.cpp (bf16) reads half the bytes and rounds activations. Tokens are held to those of our own "
        "full load: the share of prompts that are the same to the end, and of tokens before the first difference. "
        "Other arithmetic may part from it where two candidates are nearly tied.",
        commands="nox -s reproduce-fullload",
    )
    return Section("fullload", TITLE, body, bool(figure.groups))


def rows_fullload(figure: FullLoad) -> list[tuple[str, ...]]:
    """The table's rows as text; a group's work stands with its systems where there are several groups."""
    several = len(figure.groups) > 1
    return [_texts(row, f" ({group.about})" if several else "") for group in figure.groups for row in group.rows]


def _texts(row: Row, work: str) -> tuple[str, ...]:
    name = f"{row.title}{work}"
    speed, first = row.summary("tok_s"), row.summary("ttft_s")
    if speed is None or first is None:
        return (name, "", row.reason, "", "", "0")
    milliseconds = (1e3 * value for value in (first.median, first.low, first.high))
    return (
        name,
        "{:.1f} [{:.1f}, {:.1f}]".format(*milliseconds),
        f"{speed.median:.1f} [{speed.low:.1f}, {speed.high:.1f}]",
        row.agreement,
        row.threads,
        str(speed.count),
    )
