"""How the next token is chosen from a model's logits: greedily, or by chance from a seed of the request's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Sampling:
    """``temperature`` 0 is greedy. ``top_p`` keeps the likeliest tokens that together reach it (Holtzman et al., 2019).

    The same ``seed`` gives the same tokens; None takes a seed from the system. With ``ignore_end`` the end of text is
    never chosen, as engines have it for benchmarks. Raises ``ValueError`` outside these ranges.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    ignore_end: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 2:
            raise ValueError(f"temperature = {self.temperature}: must lie in [0, 2]")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p = {self.top_p}: must lie in (0, 1]")
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed = {self.seed}: must be a whole number of 64 bits")


class Sampler:
    """Chooses the tokens of one request; its generator is its own, so that no other request changes the choice.

    ``end`` are the ids of the model's end of text.
    """

    def __init__(self, sampling: Sampling, end: list[int]) -> None:
        self._sampling = sampling
        self._end = frozenset(end)
        self._never = torch.tensor(end if sampling.ignore_end else [], dtype=torch.long)
        self._generator = torch.Generator()
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def choose(self, logits: torch.Tensor) -> int:
        """The next token from ``logits`` [vocabulary]; unless greedy, by one random number, whatever they are."""
        allowed = logits.index_fill(0, self._never, -torch.inf)
        if self._sampling.temperature == 0:
            return int(allowed.argmax())
        # Double precision: the order of summation must not decide between tokens.
        allowed = allowed.double()
        # Without the largest, no temperature is too small to divide by.
        chance = ((allowed - allowed.max()) / self._sampling.temperature).softmax(-1)
        order = None
        if self._sampling.top_p < 1:
            chance, order = chance.sort(descending=True, stable=True)
            before = chance.cumsum(0) - chance
            chance = chance[before < self._sampling.top_p]
        reached = chance.cumsum(0)
        drawn = torch.rand((), generator=self._generator, dtype=torch.float64) * reached[-1]
        place = int(torch.searchsorted(reached, drawn, right=True).clamp(max=len(reached) - 1))
        return place if order is None else int(order[place])

    def ends(self, token: int) -> bool:
        """Whether the token is the end of text."""
        return token in self._end
