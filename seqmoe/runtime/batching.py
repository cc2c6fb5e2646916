"""Requests that decode together, joining and leaving between steps: continuous batching on an offloaded model.

A request that is admitted has its prompt computed at once, while the others wait, and takes part in every step from the
next one on. Its tokens are those it has alone, to the bit of the logits they were chosen from (`seqmoe.runtime.joint`).
With compiled steps (`execution="graph"`) requests take turns within a step instead, each through the code for one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from seqmoe.runtime.cache import Batch
from seqmoe.runtime.decode import Decoder
from seqmoe.runtime.joint import run_together
from seqmoe.runtime.meter import DecodeMeter
from seqmoe.runtime.sampling import Sampler, Sampling
from seqmoe.runtime.session import Session

STOP, LENGTH = "stop", "length"


@dataclass(slots=True, eq=False)
class Member:
    """One request of the batch: its ``tokens`` so far, and why it ended: "stop" at the end of text, which is not among
    the tokens, or "length".
    """

    prompt: list[int]
    limit: int
    tokens: list[int] = field(default_factory=list)
    ended: str | None = None
    steps: int = 0
    _sampler: Sampler = field(init=False, repr=False)
    _batch: Batch = field(init=False, repr=False)
    _cache: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._batch = Batch([self.prompt], self.limit)

    def start(self, decoder: Decoder, sampling: Sampling) -> None:
        """A cache and a generator of its own."""
        self._sampler = decoder.sampler(sampling)
        self._cache = decoder.new_cache(self._batch.length)

    def forward(self, decoder: Decoder) -> torch.Tensor:
        """The next step's logits, [vocabulary]."""
        ids = torch.tensor([[self.tokens[-1]]]) if self.steps else self._batch.ids
        return decoder.step(ids, self._batch, self._cache, self.steps)[0][0]

    def take(self, logits: torch.Tensor) -> None:
        """Choose a token from them."""
        token = self._sampler.choose(logits)
        self.steps += 1
        if self._sampler.ends(token):
            self.ended = STOP
            return
        self.tokens.append(token)
        if len(self.tokens) == self.limit:
            self.ended = LENGTH

    @property
    def real(self) -> Any:
        """Which tokens of the prompt are no padding, bool [1, tokens]: all."""
        return self._batch.real


class BatchSession:
    """The running batch of a session; ``members`` are those that have not ended. All calls belong to one thread.

    ``decode`` and ``prefill`` count hits, transfers and stalls of steps and of prompts, from the first request on.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        session.engine.decoder.prepare(1)
        self.members: list[Member] = []
        self.decode: Counter[str] = Counter()
        self.prefill: Counter[str] = Counter()
        self._measure()

    @torch.inference_mode()
    def admit(self, prompt: list[int], tokens: int, sampling: Sampling | None = None) -> Member:
        """Compute a prompt and choose its first token; up to ``tokens`` in all.

        Raises ``ValueError`` for lengths that the model cannot take, and more requests than the pool can serve.
        """
        engine = self._session.engine
        engine.checkpoint.check_lengths(prompt, tokens)
        placement = engine.router.placement
        if self.members:
            placement.resize(1 if engine.compiled else len(self.members) + 1)
        else:
            placement.begin_request(1)
        member = Member(prompt, tokens)
        member.start(engine.decoder, sampling or Sampling())
        engine.router.begin_prompt(member.real)
        member.take(member.forward(engine.decoder))
        if member.ended is None:
            self.members.append(member)
        self._meter(0, 0)
        return member

    @torch.inference_mode()
    def step(self) -> list[Member]:
        """One more token for each member; those that took part. Who ends with it is no member any more."""
        engine, present = self._session.engine, list(self.members)
        if not present:
            return []
        if engine.compiled:
            for member in present:
                engine.router.begin_step()
                member.take(member.forward(engine.decoder))
        else:
            engine.router.begin_step()
            forwards = [partial(member.forward, engine.decoder) for member in present]
            for member, logits in zip(present, run_together(engine.router, forwards), strict=True):
                member.take(logits)
        self._meter.prompt_done()
        self._keep([member for member in present if member.ended is None])
        return present

    def leave(self, member: Member) -> None:
        """Give up a request; the others go on."""
        self._keep([other for other in self.members if other is not member])

    def reset(self) -> None:
        """Give up all requests and begin with an empty pool, after an error in the middle of a step."""
        self.members = []
        self._session.place(None)
        self._measure()

    def _keep(self, members: list[Member]) -> None:
        engine = self._session.engine
        if members and len(members) < len(self.members) and not engine.compiled:
            engine.router.placement.resize(len(members))
        self.members = members

    def _measure(self) -> None:
        self._meter = DecodeMeter(self._session.engine)
        self._meter.decode, self._meter.prefill = self.decode, self.prefill
