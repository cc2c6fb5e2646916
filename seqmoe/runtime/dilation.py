"""Which factor time is stretched by: the smallest at which this machine keeps up, found by trying."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from seqmoe.predictor.base import Predictor
from seqmoe.runtime.emulation import MOST_OVERRUNS, Emulation, LayerPacer, larger_factor, smallest_factor
from seqmoe.runtime.engine import Engine
from seqmoe.spec.pace import Pace
from seqmoe.spec.system import SystemSpec, system

_log = logging.getLogger(__name__)

# Of all systems it works most in a layer: a predictor, tasks and scores.
HEAVIEST = "seqmoe"
_RESIDENCY, _PROMPT, _TOKENS = 0.35, 16, 48
# A comparison's rows take longer than the trial and meet a busier machine now and then.
_EXPECTED = 0.6 * MOST_OVERRUNS


@dataclass(frozen=True, slots=True)
class Case:
    """One system of a comparison, as it is placed."""

    spec: SystemSpec
    residency: float
    predictor: Predictor | None


class Emulated(Protocol):
    """What can be emulated: systems are placed on it one after another, and its layers are paced."""

    @property
    def pacer(self) -> LayerPacer | None:
        """The pacer of the placed system; None where it is not emulated."""
        ...

    @pacer.setter
    def pacer(self, pacer: LayerPacer | None) -> None: ...

    def place(
        self, spec: SystemSpec, residency: float, predictor: Predictor | None, emulation: Emulation | None
    ) -> None:
        """Choose a system, with an empty pool."""
        ...


def find_emulation(engine: Emulated, pace: Pace, cases: Sequence[Case], decode: Callable[[], object]) -> Emulation:
    """The emulation in which all ``cases`` keep up, so that one factor serves a whole comparison.

    ``decode`` generates some tokens through the placed system. First each case runs unpadded, to see how long its
    layers work here, then padded, to see that they really keep up. Where none of the ladder is enough, its last is
    taken: whether a row is valid is told by its own overruns.
    """
    factor = 1.0
    for case in cases:
        _place(engine, case, Emulation(pace, 1.0))
        engine.pacer = LayerPacer(pace.layer_seconds, 0.0)
        decode()
        factor = max(factor, smallest_factor(engine.pacer.work, pace.layer_seconds))
    while not all(_keeps_up(engine, case, Emulation(pace, factor), decode) for case in cases):
        larger = larger_factor(factor)
        if larger is None:
            _log.warning(
                "even %d times slower, layers end late here; rows with more than %.0f%% of them will be invalid: "
                "take an idle machine, or a cheaper predictor", factor, 100 * MOST_OVERRUNS,
            )  # fmt: skip
            break
        factor = larger
    return Emulation(pace, factor)


def emulation_of(engine: Engine, pace: Pace, predictor: Predictor | None, dilation: float | None = None) -> Emulation:
    """The emulation that serves every system on a model: full load, and the one that does most if it has its predictor.

    What is decoded is of no matter; the prompt is noise. A given ``dilation`` is taken as it is.
    """
    if dilation is not None:
        return Emulation(pace, dilation)
    cases = [Case(system("full"), 1.0, None)]
    if predictor is not None:
        cases.append(Case(system(HEAVIEST), _RESIDENCY, predictor))
    prompt = np.random.default_rng(0).integers(1, engine.tokenizer.vocab_size, _PROMPT).tolist()
    return find_emulation(engine, pace, cases, lambda: engine.generate(prompt, _TOKENS))


def _keeps_up(engine: Emulated, case: Case, emulation: Emulation, decode: Callable[[], object]) -> bool:
    _place(engine, case, emulation)
    decode()
    return engine.pacer is not None and engine.pacer.overrun_share <= _EXPECTED


def _place(engine: Emulated, case: Case, emulation: Emulation) -> None:
    engine.place(case.spec, case.residency, case.predictor, emulation)
