"""The random process behind synthetic routing: what every expert of every layer is worth to every token.

An expert's value at step t is the sum of

* *affinity*: popularity, the same for all requests of a model, and topic, an autoregression that drifts within a
  request, half of the variance each. A step function of it separates the experts that a topic uses from the others
  (`working_set` above `threshold`), since real requests leave much of a layer untouched;
* *burst*: an autoregression of a few tokens, the source of reuse from token to token;
* *surprise*: noise of unit variance, new for every token.

The top k are chosen. Layers are independent of each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Floats = NDArray[np.float32]

# A topic is forgotten in some 2,000 tokens. Of 0.995, 0.998 and 0.9995 this comes nearest to the overlap that tokens of
# one request have in any order (0.242 for 0.302 of GPT-OSS-20B's real routing); LRU's hit rates hardly depend on it.
TOPIC_MEMORY = 0.9995
# What affinity is worth besides the step, and how steep that step is.
_SLOPE, _STEEPNESS = 0.5, 2.0


@dataclass(frozen=True, slots=True)
class RoutingProcess:
    """Parameters of the process, in units of a surprise's standard deviation.

    ``working_set`` is the height of the step between used and unused experts, ``threshold`` its place in standard
    deviations of affinity, ``burst`` the standard deviation of bursts, ``burst_memory`` their correlation from token
    to token.
    """

    working_set: float
    threshold: float
    burst: float
    burst_memory: float

    def __post_init__(self) -> None:
        if self.working_set < 0 or self.burst < 0:
            raise ValueError("working_set and burst must not be negative")
        if not 0 <= self.burst_memory < 1:
            raise ValueError(f"burst_memory = {self.burst_memory}: must lie in [0, 1)")

    def affinity_value(self, affinity: Floats) -> Floats:
        """The part of the value that affinity [...] gives."""
        step: Floats = np.tanh(np.float32(_STEEPNESS) * (affinity - np.float32(self.threshold)))
        return np.float32(self.working_set) * step + np.float32(_SLOPE) * affinity


@dataclass(frozen=True, slots=True, eq=False)
class Latents:
    """The process of one request, float32 [steps, layers, experts] each: slow (by affinity), burst and surprise."""

    slow: Floats
    burst: Floats
    surprise: Floats

    @property
    def value(self) -> Floats:
        """What the router ranks experts by."""
        return self.slow + self.burst + self.surprise


def draw(process: RoutingProcess, popularity: Floats, steps: int, generator: np.random.Generator) -> Latents:
    """One request of ``steps`` tokens; ``popularity`` float32 [layers, experts], standard normal, is the model's."""
    shape = (steps, *popularity.shape)
    topic = _autoregression(generator, shape, TOPIC_MEMORY)
    affinity = (popularity + topic) / np.float32(np.sqrt(2))
    burst = np.float32(process.burst) * _autoregression(generator, shape, process.burst_memory)
    surprise = generator.standard_normal(shape, dtype=np.float32)
    return Latents(process.affinity_value(affinity), burst, surprise)


def chosen(value: Floats, top_k: int) -> NDArray[np.int16]:
    """The ``top_k`` experts of the highest value, best first, int16 [steps, layers, top_k]."""
    best = np.argpartition(-value, top_k - 1, axis=-1)[..., :top_k]
    order = np.argsort(-np.take_along_axis(value, best, axis=-1), axis=-1)
    return np.take_along_axis(best, order, axis=-1).astype(np.int16)


def _autoregression(generator: np.random.Generator, shape: tuple[int, ...], memory: float) -> Floats:
    """Standard normal at every step, correlated by ``memory`` with the step before, float32 of ``shape``."""
    noise = generator.standard_normal(shape, dtype=np.float32)
    noise[1:] *= np.float32(np.sqrt(1 - memory**2))
    return lfilter([1.0], [1.0, -memory], noise, axis=0).astype(np.float32)
