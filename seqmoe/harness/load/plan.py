"""What a load test does, and what it asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqmoe.harness.prompts import load_prompts
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home

# Lengths of answers, in tokens, and how many prompts of the set make one; 5 and 3 share no divisor, so all pairs occur.
_TOKENS = (4, 8, 16, 24, 48)
_JOINED = (1, 2, 3)
# Every fourth answer ends before its last token where a line does.
_STOPPED = 4
_WARM_UP = 0.2


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, the most tokens of its answer, and perhaps a text that ends it before."""

    prompt: str
    tokens: int
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """``clients`` ask ``questions`` for ``seconds``, each in orders of its own by ``seed``.

    ``serve`` are arguments of `seqmoe serve`, without address, batch and queue; ``batch`` requests decode together.
    """

    questions: Sequence[Question]
    serve: Sequence[str]
    clients: int
    seconds: float
    batch: int
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("clients", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name} {getattr(self, name)}: must be at least 1")
        if not 1 <= self.seconds <= 86_400:
            raise InputError(f"--seconds {self.seconds:g}: must lie in [1, 86400]")

    @property
    def warm_up(self) -> float:
        """Seconds after which memory and rates count."""
        return _WARM_UP * self.seconds

    @property
    def longest(self) -> int:
        """Tokens of the longest answer."""
        return max(question.tokens for question in self.questions)


def varied_questions(home: Home, seed: int, count: int = 30) -> list[Question]:
    """Questions of one to three prompts of the data set `mixed`, with answers of 4 to 48 tokens."""
    texts = load_prompts(home, "mixed", count + max(_JOINED) - 1, seed)
    return [
        Question(
            "\n".join(texts[index : index + _JOINED[index % len(_JOINED)]]),
            _TOKENS[index % len(_TOKENS)],
            None if index % _STOPPED else "\n",
        )
        for index in range(count)
    ]
