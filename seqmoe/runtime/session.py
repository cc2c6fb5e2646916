"""A loaded model with a system on it, for people: `seqmoe.load`, and what its `generate` gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from seqmoe.predictor.base import Predictor
from seqmoe.predictor.load import predictor_for
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.decode import Generation
from seqmoe.runtime.emulation import Emulation
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.memory_plan import plan_memory
from seqmoe.runtime.meter import DecodeMeter
from seqmoe.runtime.profile import profile_for
from seqmoe.runtime.text import TextStream
from seqmoe.spec import system as systems
from seqmoe.spec.answer import tokens_sha256
from seqmoe.spec.choice import choose_model
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home
from seqmoe.spec.system import SystemSpec


@dataclass(frozen=True, slots=True)
class GenerateResult:
    """Tokens, text and statistics of one prompt. Times in seconds; hit rate, bytes and stalls of the decode steps.

    ``hit_rate`` is None where no step was decoded through an offloaded placement.
    """

    system: str
    residency: float
    lane: str
    tokens: list[int]
    text: str
    sha256: str
    ttft_s: float
    decode_tok_s: float
    hit_rate: float | None
    bytes: dict[str, int]
    breakdown: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a session is made from, checked against the checkpoint before anything is loaded.

    ``host`` is the tier of the host pool: pageable, disk or pinned.
    """

    spec: SystemSpec
    residency: float
    predictor: Path | None = None
    profile: Path | None = None
    host: str = "pageable"

    def forecaster(self, checkpoint: Checkpoint) -> Predictor | None:
        """The predictor; `InputError` for one that was made for another geometry."""
        found, geometry = predictor_for(self.spec, self.predictor), checkpoint.geometry
        if found is not None and (found.layers, found.experts) != (geometry.layers, geometry.experts):
            raise InputError(
                f"--predictor {self.predictor}: made for {found.layers} layers of {found.experts} experts, "
                f"but the model has {geometry.layers} of {geometry.experts}; give one of this model"
            )
        return found

    def check(self, checkpoint: Checkpoint, prompts: list[list[int]], tokens: int) -> None:
        """Raise `InputError` for what the model cannot take, `OutOfMemoryError` for what does not fit."""
        try:
            slots = checkpoint.geometry.slots(self.residency, max(1, len(prompts)))
            for prompt in prompts:
                checkpoint.check_lengths(prompt, tokens)
        except ValueError as error:
            raise InputError(str(error)) from None
        longest = max(map(len, prompts), default=0)
        plan_memory(
            checkpoint,
            self.host,
            None if self.spec.retention == "all" else slots,
            batch=max(1, len(prompts)),
            tokens=longest + tokens,
            prompt_tokens=longest,
        ).check()


class Session:
    """One model and one system. Use it as a context manager, or call ``close()``, which ends the prefetch worker."""

    def __init__(self, checkpoint: Checkpoint, setup: Setup) -> None:
        self.setup = setup
        self._forecaster = setup.forecaster(checkpoint)
        self._offline = profile_for(setup.spec, setup.profile, checkpoint.geometry)
        self.engine = Engine(checkpoint, setup.host)
        self.tokenizer = checkpoint.tokenizer
        try:
            self.place(None)
        except BaseException:
            self.close()
            raise

    def place(self, emulation: Emulation | None) -> None:
        """Begin with an empty pool, perhaps in dilated time."""
        setup = self.setup
        self._emulation = emulation
        self.engine.place(setup.spec, setup.residency, self._forecaster, emulation, self._offline)

    @property
    def forecaster(self) -> Predictor | None:
        """The predictor in the loop."""
        return self._forecaster

    def generate(self, prompt: str | list[int], tokens: int = 64) -> Stream:
        """Continue a prompt greedily: pieces of text as they come, statistics at any time, the result at the end.

        Raises `InputError` for a prompt that the model cannot take.
        """
        ids = encode(self.tokenizer, prompt) if isinstance(prompt, str) else list(prompt)
        self.setup.check(self.engine.checkpoint, [ids], tokens)
        return Stream(self, ids, tokens, self._emulation)

    def generate_batch(self, prompts: list[str | list[int]], tokens: int = 64) -> list[str]:
        """Continue several prompts together; their texts. The pool must hold what all of them may need of a layer."""
        ids = [encode(self.tokenizer, prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
        self.setup.check(self.engine.checkpoint, ids, tokens)
        return [self.tokenizer.decode(result.tokens) for result in self.engine.generate_batch(ids, tokens)]

    def close(self) -> None:
        """End the prefetch worker."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Stream:
    """An iterator over the pieces of text that a session generates.

    ``tok_s``, ``hit_rate`` and ``ttft_s`` tell how it goes so far; ``result`` is there once it has ended.
    """

    def __init__(self, session: Session, ids: list[int], tokens: int, emulation: Emulation | None) -> None:
        self._session, self._emulation = session, emulation
        self._generation: Generation | None = None
        self._meter = DecodeMeter(session.engine)
        self._result: GenerateResult | None = None
        self._pieces = self._run(ids, tokens)

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
    def ttft_s(self) -> float:
        """Time to first token; 0 before it."""
        return 0.0 if self._generation is None else self._generation.ttft_seconds / self._factor

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

    def _run(self, ids: list[int], tokens: int) -> Iterator[str]:
        engine = self._session.engine
        self._meter = DecodeMeter(engine)
        engine.timers.clear()
        text = TextStream(self._session.tokenizer)
        for self._generation in engine.stream(ids, tokens):
            token = self._generation.tokens[-1]
            self._meter(len(self._generation.tokens) - 1, token)
            yield text.add(token)
        self._meter.prompt_done()
        self._result = self._finish()
        rest = text.rest()
        if rest:
            yield rest

    def _finish(self) -> GenerateResult:
        generation, session, emulation = self._generation, self._session, self._emulation
        assert generation is not None
        spec = session.setup.spec
        totals = self._meter.statistics(emulation)
        timing = ("stall_seconds", "layer_seconds", "link_seconds_per_expert", "dilation", "overrun_share")
        names = (*timing, "overlap_ratio", "overlap_ratio_achieved")
        # Padded time is no computation.
        parts = session.engine.timers.breakdown().as_dict() if emulation is None else {}
        return GenerateResult(
            system=spec.name,
            residency=1.0 if spec.retention == "all" else session.setup.residency,
            lane="measured" if emulation is None else "emulated",
            tokens=generation.tokens,
            text=session.tokenizer.decode(generation.tokens),
            sha256=tokens_sha256(generation.tokens),
            ttft_s=self.ttft_s,
            decode_tok_s=self.tok_s,
            hit_rate=self._meter.hit_rate,
            bytes={name[6:]: value for name, value in totals.items() if name.startswith("bytes_")}
            | {"prefill": totals["prefill_bytes"]},
            breakdown={"decode_seconds": generation.decode_seconds / self._factor}
            | parts
            | {name: totals[name] for name in names if name in totals},
        )


def load(
    model: str | Path = "reference",
    residency: float = 0.45,
    system: str = "seqmoe",
    *,
    dtype: str = "float32",
    host: str = "pageable",
    execution: str | None = None,
    predictor: str | Path | None = None,
    profile: str | Path | None = None,
    threads: int = 1,
) -> Session:
    """`seqmoe.load`: a model of suites/models, a checkpoint folder or a hub id, with a system of `seqmoe.spec.system`.

    ``predictor`` and ``profile`` default to the files that lie with the model. Raises `InputError` for anything that
    does not fit together, before weights are loaded.
    """
    chosen = choose_model(find_home(), str(model))
    spec = systems.system(system)
    if execution is not None:
        spec = with_execution(spec, execution)
    torch.set_num_threads(threads)
    setup = Setup(
        spec,
        residency,
        Path(predictor) if predictor is not None else chosen.predictor,
        Path(profile) if profile is not None else chosen.profile,
        host,
    )
    checkpoint = Checkpoint.open(chosen.location, dtype)
    setup.check(checkpoint, [], 0)
    return Session(checkpoint, setup)


def with_execution(spec: SystemSpec, execution: str) -> SystemSpec:
    """The same system in another execution mode; an unknown one is an `InputError`."""
    try:
        return replace(spec, execution=execution)
    except ValueError as error:
        raise InputError(f"--execution: {error}") from None


def encode(tokenizer: Any, prompt: str) -> list[int]:
    """Token ids of a text; `InputError` for one that a terminal has garbled."""
    if any("\ud800" <= letter <= "\udfff" for letter in prompt):
        raise InputError("--prompt: is not valid UTF-8 text; check the terminal's encoding")
    ids: list[int] = tokenizer.encode(prompt)
    return ids
