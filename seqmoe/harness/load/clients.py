"""Clients of the package `openai`, each on a thread and a connection of its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import openai

from seqmoe.harness.load.plan import Plan, Question

_TIMEOUT_SECONDS = 600.0
# A client that gets nothing but errors has nobody to speak to.
_MOST_ERRORS = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What one client got: its text and counts, and when, in seconds of the clock that tells the time of day.

    ``first`` is when the first text came, None for an answer that came as a whole.
    """

    question: int
    text: str
    reason: str
    prompt_tokens: int
    tokens: int
    began: float
    ended: float
    first: float | None = None


@dataclass(slots=True)
class Tally:
    """What clients got: answers, requests that failed, and 429 answers."""

    answers: list[Answer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    refused: int = 0

    def add(self, other: Tally) -> None:
        """Take in what another client got."""
        self.answers += other.answers
        self.errors += other.errors
        self.refused += other.refused


class Client:
    """One client of the server at ``url``; it does not retry by itself, so that every refusal is counted."""

    def __init__(self, url: str, model: str, questions: Sequence[Question]) -> None:
        http = openai.DefaultHttpxClient(trust_env=False)
        self._api = openai.OpenAI(
            base_url=f"{url}/v1", api_key="none", timeout=_TIMEOUT_SECONDS, max_retries=0, http_client=http
        )
        self._model, self._questions = model, questions

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self._api.close()

    def whole(self, index: int) -> Answer:
        """Ask for a greedy answer in one piece."""
        question, began = self._questions[index], time.time()
        said = self._api.completions.create(
            model=self._model,
            prompt=question.prompt,
            max_tokens=question.tokens,
            stop=question.stop,
            temperature=0,
        )
        ended, choice, usage = time.time(), said.choices[0], said.usage
        assert usage is not None
        counts = usage.prompt_tokens, usage.completion_tokens
        return Answer(index, choice.text, choice.finish_reason, *counts, began, ended)

    def streamed(self, index: int, first: Callable[[], object] = lambda: None, ignore_eos: bool = False) -> Answer:
        """Ask for a greedy answer piece by piece; ``first`` is called when it begins."""
        question, began = self._questions[index], time.time()
        stream = self._api.completions.create(
            model=self._model,
            prompt=question.prompt,
            max_tokens=question.tokens,
            stop=question.stop,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True} if ignore_eos else None,
        )
        text, reason, usage, seen = [], "", None, None
        for chunk in stream:
            if chunk.choices:
                if seen is None:
                    seen = time.time()
                    first()
                text.append(chunk.choices[0].text)
                reason = chunk.choices[0].finish_reason or reason
            usage = chunk.usage or usage
        if usage is None:
            raise RuntimeError("the stream ended before the answer")
        counts = usage.prompt_tokens, usage.completion_tokens
        return Answer(index, "".join(text), reason, *counts, began, time.time(), seen)


class Crowd:
    """Clients that ask until they are told to stop; every second one has its answers streamed."""

    def __init__(self, url: str, model: str, plan: Plan) -> None:
        self._plan = plan
        self._clients = [Client(url, model, plan.questions) for _ in range(plan.clients)]
        self._stop = threading.Event()
        self._tallies = [Tally() for _ in self._clients]
        # Daemons: what ends the test early ends the server too, and then them.
        self._threads = [
            threading.Thread(target=self._run, args=(index,), daemon=True) for index in range(plan.clients)
        ]

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask nothing new."""
        self._stop.set()

    def finish(self) -> Tally:
        """Wait for what was asked, and sum up what all got."""
        self.stop()
        total = Tally()
        for thread, tally in zip(self._threads, self._tallies, strict=True):
            thread.join()
            total.add(tally)
        return total

    def _run(self, index: int) -> None:
        tally, failures = self._tallies[index], 0
        with self._clients[index] as client:
            ask = client.streamed if index % 2 else client.whole
            for question in self._order(index):
                try:
                    answer = self._patiently(ask, question, tally)
                # Whatever the library raises, of its own or of its transport's, is a request without an answer.
                except Exception as error:
                    tally.errors.append(f"{type(error).__name__}: {error}")
                    failures += 1
                    if failures == _MOST_ERRORS:
                        return
                    continue
                failures = 0
                if answer is not None:
                    tally.answers.append(answer)

    def _order(self, index: int) -> Iterator[int]:
        order, chance = list(range(len(self._plan.questions))), random.Random(f"{self._plan.seed}/{index}")
        while True:
            chance.shuffle(order)
            for question in order:
                if self._stop.is_set():
                    return
                yield question

    def _patiently(self, ask: Callable[[int], Answer], question: int, tally: Tally) -> Answer | None:
        """Ask until there is room; None if there was none by the end."""
        while not self._stop.is_set():
            try:
                return ask(question)
            except openai.RateLimitError as error:
                tally.refused += 1
                self._stop.wait(float(error.response.headers.get("retry-after", "1")))
        return None
