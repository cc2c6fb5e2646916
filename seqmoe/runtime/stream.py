"""Text as it is generated, and the account of it at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from seqmoe.runtime.decode import Generation
from seqmoe.runtime.emulation import UNPACED_PROMPT, Emulation
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.host_misses import HOST_COUNTS
from seqmoe.runtime.meter import DecodeMeter
from seqmoe.runtime.sampling import Sampling
from seqmoe.runtime.setup import Setup
from seqmoe.runtime.text import TextStream
from seqmoe.spec.answer import tokens_sha256


@dataclass(frozen=True, slots=True)
class GenerateResult:
    """Tokens, text and statistics of one prompt. Times in seconds; hit rate, bytes and stalls of the decode steps.

    ``hit_rate`` is None where no step was decoded through an offloaded placement, ``ttft_s`` where prompts are not
    paced; ``missing`` has the reason by name. ``origin`` says what must be said of a model that no checkpoint gave.
    """

    system: str
    residency: float
    lane: str
    tokens: list[int]
    text: str
    sha256: str
    ttft_s: float | None
    decode_tok_s: float
    hit_rate: float | None
    bytes: dict[str, int]
    breakdown: dict[str, float]
    origin: str = ""
    missing: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


class Stream:
    """An iterator over the pieces of text that a session generates.

    ``tok_s``, ``hit_rate`` and ``ttft_s`` tell how it goes so far; ``result`` is there once it has ended.
    """

    def __init__(
        self,
        engine: Engine,
        setup: Setup,
        ids: list[int],
        tokens: int,
        emulation: Emulation | None,
        sampling: Sampling | None = None,
    ) -> None:
        self._engine, self._setup, self._emulation = engine, setup, emulation
        self._generation: Generation | None = None
        self._meter = DecodeMeter(engine)
        self._result: GenerateResult | None = None
        self._pieces = self._run(ids, tokens, sampling)

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    @property
    def tokens(self) -> list[int]:
        """What was chosen so far."""
        return [] if self._generation is None else self._generation.tokens

    @property
    def tok_s(self) -> float:
        """Decode throughput so far."""
        return 0.0 if self._generation is None else self._generation.decode_tok_s * self._factor

    @property
    def ttft_s(self) -> float | None:
        """Time to first token; 0 before it, None in an emulation, which does not pace prompts."""
        if self._emulation is not None:
            return None
        return 0.0 if self._generation is None else self._generation.ttft_seconds

    @property
    def hit_rate(self) -> float | None:
        """Share of the needed experts that were resident so far; None before the first decode step."""
        return self._meter.so_far() if len(self.tokens) > 1 else None

    @property
    def result(self) -> GenerateResult:
        """Everything; runs to the end first."""
        for _ in self._pieces:
            pass
        assert self._result is not None
        return self._result

    @property
    def _factor(self) -> float:
        return self._emulation.factor if self._emulation is not None else 1.0

    def _run(self, ids: list[int], tokens: int, sampling: Sampling | None) -> Iterator[str]:
        engine = self._engine
        self._meter = DecodeMeter(engine)
        engine.timers.clear()
        text = TextStream(engine.tokenizer)
        for self._generation in engine.stream(ids, tokens, sampling):
            if not self._generation.tokens:  # the model had nothing to say
                continue
            token = self._generation.tokens[-1]
            self._meter(len(self._generation.tokens) - 1, token)
            yield text.add(token)
        self._meter.prompt_done()
        self._result = self._finish()
        rest = text.rest()
        if rest:
            yield rest

    def _finish(self) -> GenerateResult:
        generation, engine, emulation = self._generation, self._engine, self._emulation
        assert generation is not None
        spec = self._setup.spec
        totals = self._meter.statistics(emulation)
        timing = ("stall_seconds", "layer_seconds", "link_seconds_per_expert", "dilation", "overrun_share")
        names = (*timing, *HOST_COUNTS, "overlap_ratio", "overlap_ratio_achieved")
        # Padded time is no computation.
        parts = engine.timers.breakdown().as_dict() if emulation is None else {}
        return GenerateResult(
            system=spec.name,
            residency=1.0 if spec.retention == "all" else self._setup.residency,
            lane="measured" if emulation is None else "emulated",
            tokens=generation.tokens,
            text=engine.tokenizer.decode(generation.tokens),
            sha256=tokens_sha256(generation.tokens),
            ttft_s=self.ttft_s,
            decode_tok_s=self.tok_s,
            hit_rate=self._meter.hit_rate,
            bytes={name[6:]: value for name, value in totals.items() if name.startswith("bytes_")}
            | {"prefill": totals["prefill_bytes"]},
            breakdown={"decode_seconds": generation.decode_seconds / self._factor}
            | parts
            | {name: totals[name] for name in names if name in totals},
            missing={} if emulation is None else {"ttft_s": UNPACED_PROMPT},
        )
