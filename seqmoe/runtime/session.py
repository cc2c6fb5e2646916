"""A loaded model with a system on it, for people: `seqmoe.load`."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from seqmoe.predictor.base import Predictor
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.emulation import Emulation
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.profile import profile_for
from seqmoe.runtime.sampling import Sampling
from seqmoe.runtime.setup import Setup, encode, with_execution
from seqmoe.runtime.stream import Stream
from seqmoe.spec import system as systems
from seqmoe.spec.choice import choose_model
from seqmoe.spec.paths import find_home


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

    def generate(self, prompt: str | list[int], tokens: int = 64, sampling: Sampling | None = None) -> Stream:
        """Continue a prompt: pieces of text as they come, statistics at any time, the result at the end.

        Greedily, and never ended by the model; with ``sampling`` as that says, up to the model's end of text. Raises
        `InputError` for a prompt that the model cannot take.
        """
        ids = encode(self.tokenizer, prompt) if isinstance(prompt, str) else list(prompt)
        self.setup.check(self.engine.checkpoint, [ids], tokens)
        return Stream(self.engine, self.setup, ids, tokens, self._emulation, sampling)

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


def prepare(
    model: str | Path,
    residency: float,
    system: str,
    *,
    dtype: str = "float32",
    host: str = "pageable",
    execution: str | None = None,
    predictor: str | Path | None = None,
    profile: str | Path | None = None,
    threads: int = 1,
) -> tuple[Checkpoint, Setup]:
    """What `load` makes a session from, checked but for the length of its requests; no weights are read."""
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
    return checkpoint, setup


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
    return Session(
        *prepare(
            model,
            residency,
            system,
            dtype=dtype,
            host=host,
            execution=execution,
            predictor=predictor,
            profile=profile,
            threads=threads,
        )
    )
