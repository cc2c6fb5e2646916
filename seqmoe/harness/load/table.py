"""The outcome as a short table: what clients saw beside what the server says."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from seqmoe.harness.load.guidellm import Compared
from seqmoe.harness.load.run import Outcome

_Row = tuple[str, str, str]


def table(outcome: Outcome) -> str:
    """Lines of three columns."""
    load = outcome.load
    answers, counted, ttfts = load.tally.answers, load.counted, load.ttfts
    lasted = [answer.ended - answer.began for answer in answers]
    before, after = load.resident
    asked = {answer.question for answer in answers}
    ended, code = outcome.ending, outcome.ending.exit_code
    rows: list[_Row] = [
        (f"{load.plan.clients} clients, {load.ended - load.began:.0f} s, batch {load.plan.batch}", "clients", "server"),
        ("requests answered", f"{len(answers)}", f"{counted.answered}"),
        ("equal to the answer alone", f"{len(answers) - len(load.wrong)} of {len(answers)}", ""),
        ("questions asked", f"{len(asked)} of {len(load.plan.questions)}", ""),
        ("errors", f"{len(load.tally.errors)}", ""),
        ("429 answers", f"{load.tally.refused}", f"{counted.requests.get('refused_full', 0):g}"),
        ("tokens", f"{sum(answer.tokens for answer in answers)}", f"{counted.tokens:g}"),
        ("tokens of prompts", f"{sum(answer.prompt_tokens for answer in answers)}", f"{counted.prompt_tokens:g}"),
        ("tok/s after the warm-up", f"{load.tok_s:.1f}", f"{load.server_tok_s:.1f}"),
        ("TTFT mean / median, s", _times(ttfts), f"{counted.ttft.mean:.3f} / {counted.ttft.median:.3f}"),
        ("last token mean / median, s", _times(lasted), f"{counted.lasted.mean:.3f} / {counted.lasted.median:.3f}"),
        ("resident after the warm-up, MB", "", f"{before / 1e6:.1f}"),
        ("resident at the end, MB", "", f"{after / 1e6:.1f} ({after / before - 1:+.2%})"),
        *_guidellm(outcome.guidellm),
        ("SIGTERM: running answers finished", f"{ended.finished} of {ended.running}", ""),
        ("SIGTERM: a new request, exit code", ended.refused, "killed" if code is None else f"{code}"),
    ]
    return "\n".join(_lines(rows))


def _guidellm(told: Compared | str) -> list[_Row]:
    if isinstance(told, str):
        return [("GuideLLM", f"left out: {told}", "")]
    return [
        ("GuideLLM requests / errors", f"{told.requests} / {told.errors}", f"{told.server_requests}"),
        ("GuideLLM tokens", f"{told.tokens}", f"{told.server_tokens}"),
        ("GuideLLM tok/s", f"{told.tok_s:.1f}", f"{told.server_tok_s:.1f}"),
        ("GuideLLM TTFT mean, s", f"{told.ttft:.3f}", f"{told.server_ttft:.3f}"),
    ]


def _times(seconds: Sequence[float]) -> str:
    return f"{statistics.fmean(seconds):.3f} / {statistics.median(seconds):.3f}" if seconds else "-"


def _lines(rows: Sequence[_Row]) -> list[str]:
    first, second = (max(len(row[column]) for row in rows if row[2] or column == 0) for column in (0, 1))
    return [f"{row[0]:{first}}  {row[1]:{second}}  {row[2]}".rstrip() for row in rows]
