"""What is asked of a collection: prompts, options, and the plan of requests that follows from both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seqmoe.spec.errors import InputError

ENGINES = ("auto", "vllm", "transformers")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt; ``identifier`` is unique among those that are collected together."""

    identifier: str
    dataset: str
    text: str


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """How token sequences are made and traced.

    Every prompt is continued ``samples`` times by at most ``tokens`` tokens, drawn at ``temperature`` (0: the most
    likely). ``stop_at_end`` ends a sequence at end-of-text; otherwise end-of-text is never chosen. ``chat`` wraps
    prompts in the tokenizer's chat template; None does so where it has one. ``batch`` sequences are generated together;
    the routing pass takes up to ``pack_tokens`` tokens at once. ``early`` also keeps the early router's choice.
    """

    tokens: int = 512
    samples: int = 1
    temperature: float = 1.0
    seed: int = 0
    batch: int = 16
    early: bool = True
    stop_at_end: bool = True
    chat: bool | None = None
    engine: str = "auto"
    pack_tokens: int = 2048

    def __post_init__(self) -> None:
        for name in ("tokens", "samples", "batch", "pack_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} = {getattr(self, name)}: must be at least 1")
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature = {self.temperature}: must be 0 (greedy) or a positive number")
        if self.temperature == 0 and self.samples > 1:
            raise InputError(f"samples = {self.samples} at temperature 0 would all be the same; ask for 1, or sample")
        if self.engine not in ENGINES:
            raise InputError(f"engine = {self.engine!r}: expected one of {', '.join(ENGINES)}")

    def describe(self, prompts: Sequence[Prompt]) -> str:
        """What makes two collections the same one, in words; more samples of the same prompts may be added later."""
        end = "to end-of-text" if self.stop_at_end else "past end-of-text"
        chat = {None: "chat template if any", True: "chat template", False: "plain text"}[self.chat]
        early = "early router" if self.early else "no early router"
        names = ", ".join(sorted({prompt.dataset for prompt in prompts if prompt.dataset}))
        return (
            f"{self.tokens} tokens {end}, temperature {self.temperature:g}, seed {self.seed}, {chat}, {early}, "
            f"{len(prompts)} prompts {names} {_digest(prompts)}"
        )


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to be made: the prompt as token ids, and the seed of its own random numbers.

    ``group`` is the prompt's identifier, which all its samples share.
    """

    identifier: str
    group: str
    dataset: str
    prompt: tuple[int, ...]
    seed: int


def batches(requests: Sequence[Request], size: int, equal_lengths: bool) -> Iterator[list[Request]]:
    """Requests in order, ``size`` at a time; with ``equal_lengths`` only neighbours whose prompts are equally long."""
    batch: list[Request] = []
    for request in requests:
        if batch and (len(batch) == size or (equal_lengths and len(batch[0].prompt) != len(request.prompt))):
            yield batch
            batch = []
        batch.append(request)
    if batch:
        yield batch


def identifiers(prompts: Sequence[Prompt], samples: int) -> list[tuple[Prompt, str]]:
    """Every prompt with the identifier of each of its samples. Raises `InputError` for one that is there twice."""
    if not prompts:
        raise InputError("no prompts to collect from; give at least one")
    seen = set[str]()
    for prompt in prompts:
        if not prompt.identifier or prompt.identifier in seen:
            raise InputError(f"prompt {prompt.identifier!r}: identifiers must be unique and not empty")
        seen.add(prompt.identifier)
    return [(prompt, f"{prompt.identifier}/{sample}") for prompt in prompts for sample in range(samples)]


def request_seed(seed: int, identifier: str) -> int:
    """A seed of 63 bits for one request, so that what it draws does not depend on its neighbours."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{identifier}".encode()).digest()[:8], "big") >> 1


def _digest(prompts: Sequence[Prompt]) -> str:
    text = "\0".join(f"{prompt.identifier}\0{prompt.text}" for prompt in prompts)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
