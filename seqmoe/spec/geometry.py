"""The shape of a Mixture-of-Experts model, and the arithmetic of residency, positions and expert keys."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Geometry:
    """MoE layers, experts per layer, experts per token, and bytes.

    ``layers`` counts MoE layers only. ``expert_bytes`` is one expert of one layer; both byte counts may be 0 where
    only routing matters (a trace without a model).
    """

    layers: int
    experts: int
    top_k: int
    expert_bytes: int = 0
    non_expert_bytes: int = 0

    def __post_init__(self) -> None:
        for name in ("layers", "experts", "top_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 1")
        if self.top_k > self.experts:
            raise ValueError(f"top_k = {self.top_k}: a layer has only {self.experts} experts")
        if self.expert_bytes < 0 or self.non_expert_bytes < 0:
            raise ValueError("byte counts must not be negative")

    @property
    def total_experts(self) -> int:
        """Experts over all layers."""
        return self.layers * self.experts

    def slots(self, residency: float, batch: int = 1) -> int:
        """Slots of the one pool that all layers share: ``round(residency * layers * experts)``.

        Raises ``ValueError`` for a residency outside (0, 1], or one too small to hold the experts that ``batch`` tokens
        can need of one layer: batch * top_k, or all of the layer where these are fewer.
        """
        if not 0 < residency <= 1:
            raise ValueError(f"residency = {residency}: must lie in (0, 1], for example 0.45")
        slots = round(residency * self.total_experts)
        needed = self.least_slots(batch)
        if slots < needed:
            tokens = "one token" if batch == 1 else f"a batch of {batch}"
            raise ValueError(
                f"residency = {residency}: {slots} slots cannot hold the {needed} experts of {tokens}; "
                f"the smallest legal residency is {math.ceil(needed / self.total_experts * 1e4) / 1e4:.4f}"
            )
        return slots

    def least_slots(self, batch: int = 1) -> int:
        """The fewest slots that can hold what ``batch`` tokens may need of one layer."""
        return min(batch * self.top_k, self.experts)

    def key(self, layer: int, expert: int) -> int:
        """Expert key: ``layer * experts + expert``."""
        return layer * self.experts + expert

    def position(self, step: int, layer: int) -> int:
        """Position of an event: ``step * layers + layer``, both from 0."""
        return step * self.layers + layer
