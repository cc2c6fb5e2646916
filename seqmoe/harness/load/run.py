"""One load test from the first answer to the server's end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai

from seqmoe.harness.load.clients import Answer, Client, Crowd, Tally
from seqmoe.harness.load.counts import Counts, settled_counts
from seqmoe.harness.load.ending import Ending, end_while_running
from seqmoe.harness.load.guidellm import Compared, GuideLLMError, compare_with_guidellm
from seqmoe.harness.load.plan import Plan
from seqmoe.harness.load.server import ServerProcess, served
from seqmoe.harness.load.watch import Sample, Watch, growth, tokens_between

_MOST_STREAMS_AT_END = 8
_SHARE_OF_GUIDELLM = 0.2


@dataclass(frozen=True, slots=True)
class Load:
    """What clients got and the server counted; ``began``, ``warm`` and ``ended`` are seconds of the time of day.

    ``expected`` holds the answers computed alone, one for each question; after ``ended`` nothing new was asked.
    ``counted`` are the server's counts of the load alone, ``samples`` its state meanwhile.
    """

    plan: Plan
    expected: Sequence[Answer]
    tally: Tally
    counted: Counts
    samples: Sequence[Sample]
    began: float
    warm: float
    ended: float

    @property
    def ttfts(self) -> list[float]:
        """Seconds from asking to the first text, of the answers that were streamed."""
        return [answer.first - answer.began for answer in self.tally.answers if answer.first is not None]

    @property
    def tok_s(self) -> float:
        """Tokens per second that clients got in answers that ended after the warm-up."""
        ended = [answer.tokens for answer in self.tally.answers if self.warm < answer.ended <= self.ended]
        return sum(ended) / (self.ended - self.warm)

    @property
    def server_tok_s(self) -> float:
        """The same time by the server's counter."""
        return tokens_between(self.samples, self.warm, self.ended) / (self.ended - self.warm)

    @property
    def resident(self) -> tuple[int, int]:
        """The server's memory in bytes after the warm-up and at the end."""
        return growth(self.samples, self.warm, self.ended)

    @property
    def wrong(self) -> list[Answer]:
        """Answers that differ from the one computed alone, in text, length, or why they end."""
        return [answer for answer in self.tally.answers if _said(answer) != _said(self.expected[answer.question])]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The load, GuideLLM's numbers or why there are none, how the server ended, and what else went wrong."""

    load: Load
    guidellm: Compared | str
    ending: Ending
    complaints: Sequence[str]


def run(plan: Plan, guidellm: tuple[str, Path] | str, say: Callable[[str], None]) -> Outcome:
    """Run the plan. ``guidellm`` is an interpreter that has it and a tokenizer's folder, or why it is left out.

    `RuntimeError` where the server does not begin, or cannot be asked.
    """
    batch = ("--batch", str(plan.batch), "--queue", str(plan.clients))
    with served([*plan.serve, *batch]) as server:
        try:
            return _test(server, plan, guidellm, say)
        except (httpx.HTTPError, openai.OpenAIError) as error:
            raise RuntimeError(f"{type(error).__name__}: {error}; the server said: {server.last_words()}") from None


def _test(server: ServerProcess, plan: Plan, guidellm: tuple[str, Path] | str, say: Callable[[str], None]) -> Outcome:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", http_client=openai.DefaultHttpxClient(trust_env=False)
    ) as api:
        model = api.models.list().data[0].id
    say(f"{model} serves; {len(plan.questions)} questions alone, one after another")
    with Client(server.url, model, plan.questions) as client:
        expected = [client.whole(index) for index in range(len(plan.questions))]
    say(f"{plan.clients} clients for {plan.seconds:g} s")
    load = put_load(server, model, plan, expected)
    complaints: list[str] = []
    compared: Compared | str
    if isinstance(guidellm, str):
        compared = guidellm
    else:
        try:
            compared = _compare(server, model, plan, load, guidellm, say)
        except GuideLLMError as error:
            compared, complaints = "it failed", [str(error)]
    say("SIGTERM while answers run")
    ending = end_while_running(server, model, plan.questions[0], min(plan.batch, _MOST_STREAMS_AT_END))
    complaints += [f"the server's log: {line}" for line in server.complaints()]
    return Outcome(load, compared, ending, complaints)


def put_load(server: ServerProcess, model: str, plan: Plan, expected: Sequence[Answer]) -> Load:
    """Let the clients ask, and look at the server meanwhile. `RuntimeError` where it ends."""
    before = settled_counts(server.url)
    crowd = Crowd(server.url, model, plan)
    with Watch(server, min(1.0, plan.seconds / 50)) as watch:
        began = time.time()
        crowd.start()
        try:
            _wait(server, plan.seconds)
        finally:
            crowd.stop()
        ended = time.time()
        tally = crowd.finish()
    counted = settled_counts(server.url).since(before)
    return Load(plan, expected, tally, counted, watch.samples(), began, began + plan.warm_up, ended)


def _wait(server: ServerProcess, seconds: float) -> None:
    try:
        code = server.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
    raise RuntimeError(f"the server ended under load with {code}; it said: {server.last_words()}")


def _compare(
    server: ServerProcess, model: str, plan: Plan, load: Load, guidellm: tuple[str, Path], say: Callable[[str], None]
) -> Compared:
    python, tokenizer = guidellm
    # With as many tokens per second as our clients got, so many requests take the fifth of the time.
    tokens = sum(answer.tokens for answer in load.tally.answers) * _SHARE_OF_GUIDELLM
    mean = sum(question.tokens for question in plan.questions) / len(plan.questions)
    requests = max(plan.clients, round(tokens / mean))
    say(f"GuideLLM: {requests} requests, about {plan.seconds * _SHARE_OF_GUIDELLM:.0f} s")
    return compare_with_guidellm(python, server, model, plan, tokenizer, requests)


def _said(answer: Answer) -> tuple[object, ...]:
    return answer.text, answer.tokens, answer.prompt_tokens, answer.reason
