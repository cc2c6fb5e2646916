"""What a placement answers, and the plain one: every expert is resident."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seqmoe.core.pipeline import OffloadPipeline
from seqmoe.runtime.placement import ExpertPool
from seqmoe.runtime.prompt import PromptEvent
from seqmoe.spec.geometry import Geometry


class Placement(Protocol):
    """Answers, event by event, where the needed experts are.

    ``scores_on_access``: `needed` changes retention scores, and is to be called before `pipeline` loads anything.
    ``trigger_layers``: where `routed` acts; a caller that computes a whole step at once may keep what it would tell
    of the layers up to there.
    """

    pool: ExpertPool
    scores_on_access: bool
    trigger_layers: frozenset[int]

    @property
    def pipeline(self) -> OffloadPipeline | None:
        """What fills the pool; None where it is full."""
        ...

    @property
    def predictor_ns(self) -> int:
        """Nanoseconds spent in the predictor so far."""
        ...

    def begin_request(self, batch: int) -> None:
        """``batch`` new prompts start: the last ones' history must not leak into forecasts.

        Raises ``ValueError`` where the pool cannot hold what so many tokens may need of one layer.
        """
        ...

    def resize(self, batch: int) -> None:
        """Requests joined or left the running batch, which are ``batch`` now; what the others did still counts."""
        ...

    def begin_step(self) -> int:
        """A decode step starts; the position of its layer 0."""
        ...

    def begin_prompt(self, steps: int) -> None:
        """A forward over prompts of up to ``steps`` tokens starts."""
        ...

    def needed(self, layer: int, group: NDArray[np.int32]) -> None:
        """A decode step needs these experts, distinct."""
        ...

    def place(self, layer: int, experts: NDArray[np.int32], weights: NDArray[np.float32]) -> NDArray[np.int32]:
        """Make a decode step's experts resident, [batch, k]; their ids in the pool, valid until the next event."""
        ...

    def place_prompt(self, layer: int, event: PromptEvent) -> Iterator[NDArray[np.int32]]:
        """Ids [tokens, k], a group of experts at a time: -1 for those that are not in it. Padding has none."""
        ...

    def routed(self, layer: int, experts: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
        """Note the routing of a decode step, [batch, k]; acts at a trigger layer."""
        ...

    def on_host(
        self, layer: int, experts: NDArray[np.int32], slots: NDArray[np.int32]
    ) -> tuple[ExpertPool, NDArray[np.int32]] | None:
        """Where the experts are that `place` gave no id (-1): a pool and ids [batch, k] in it; None if it gave all."""
        ...

    def take_waits(self) -> tuple[float, float]:
        """Seconds that inference has waited for experts since the last call, and that an imitated host would take."""
        ...


class FullLoad:
    """Every expert is resident: ids are expert keys of the host pool itself."""

    def __init__(self, host: ExpertPool, geometry: Geometry) -> None:
        self.pool = host
        self.pipeline = None
        self.scores_on_access = False
        self.trigger_layers: frozenset[int] = frozenset()
        self.predictor_ns = 0
        self._layers, self._experts = geometry.layers, geometry.experts
        self._position = -geometry.layers

    def begin_request(self, batch: int) -> None:
        """Nothing depends on history."""

    def resize(self, batch: int) -> None:
        """There is room for any."""

    def begin_step(self) -> int:
        """Positions only count."""
        self._position += self._layers
        return self._position

    def begin_prompt(self, steps: int) -> None:
        """Nothing is fetched."""

    def needed(self, layer: int, group: NDArray[np.int32]) -> None:
        """Nothing is ever let go."""

    def place(self, layer: int, experts: NDArray[np.int32], weights: NDArray[np.float32]) -> NDArray[np.int32]:
        """Expert keys."""
        keys: NDArray[np.int32] = experts + np.int32(layer * self._experts)
        return keys

    def place_prompt(self, layer: int, event: PromptEvent) -> Iterator[NDArray[np.int32]]:
        """Expert keys, all at once."""
        yield np.where(event.real[:, None], event.experts + np.int32(layer * self._experts), np.int32(-1))

    def routed(self, layer: int, experts: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
        """Nothing depends on history."""

    def on_host(self, layer: int, experts: NDArray[np.int32], slots: NDArray[np.int32]) -> None:
        """Every expert has an id."""

    def take_waits(self) -> tuple[float, float]:
        """Nothing is waited for."""
        return 0.0, 0.0
