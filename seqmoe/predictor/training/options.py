"""What can be chosen about a training, and what a training says while it runs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from seqmoe.predictor.base import Ranges
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.prediction import LOSSES, WIDTHS

# The network's trunk by the predictor's kind.
KINDS = {"mamba2": "mamba2", "transformer": "attention"}
LOOKAHEAD = 7
LARGEST_SEED = 2**63 - 1
# Width of each network by their number: they share the work, so each may be narrower (paper, section 5).
_MAMBA2_HIDDEN = {1: 512, 2: 384, 4: 256}


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """A training. Its budget is ``minutes`` of wall time, or ``tokens`` read, whichever comes first.

    ``ranges`` is the number of predictors, each for an equal share of the layers; ``hidden`` and ``blocks`` size each
    network (None: by kind). ``psi``, ``loss``, ``scheduled_sampling`` and ``use_head`` switch off one part each, for
    ablations; ``direct`` predicts all eight steps at once instead of by a rollout; ``ordered = False`` shuffles the
    steps of every sequence (paper, figure 2).
    """

    kind: str
    minutes: float | None = None
    tokens: int | None = None
    seed: int = 0
    ranges: int | None = None
    hidden: int | None = None
    blocks: int | None = None
    psi: bool = True
    loss: str = "both"
    scheduled_sampling: bool = True
    use_head: bool = True
    direct: bool = False
    ordered: bool = True
    batch: int = 8
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind = {self.kind!r}: not a predictor that is trained; {nearest(self.kind, KINDS)}")
        if self.loss not in LOSSES:
            raise InputError(f"loss = {self.loss!r}; {nearest(self.loss, LOSSES)}")
        if self.minutes is None and self.tokens is None:
            raise InputError("minutes: a training needs a budget, for example minutes = 10")
        for name in ("minutes", "tokens", "ranges", "hidden", "blocks", "batch", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"{name} = {value}: must be positive and finite")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise InputError(f"seed = {self.seed}: must lie in 0..{LARGEST_SEED}")
        if self.hidden is not None and self.hidden not in WIDTHS:
            raise InputError(f"hidden = {self.hidden}: must be 32, or a multiple of 64 up to {WIDTHS[-1]}")

    @property
    def trunk(self) -> str:
        """The kind of network."""
        return KINDS[self.kind]

    def layer_ranges(self, layers: int) -> Ranges:
        """The layers of each network: ``ranges`` equal shares, by default two for Mamba2 and one for the probe."""
        count = self.ranges or (2 if self.kind == "mamba2" and layers > 1 else 1)
        if count > layers:
            raise InputError(f"ranges = {count}: the model has {layers} layers")
        edges = [layers * index // count for index in range(count + 1)]
        return tuple(itertools.pairwise(edges))

    def size(self, ranges: int) -> tuple[int, int]:
        """Hidden size and blocks of each of ``ranges`` networks."""
        if self.kind == "transformer":
            return self.hidden or 384, self.blocks or 4
        narrow = min(_MAMBA2_HIDDEN.values())
        return self.hidden or _MAMBA2_HIDDEN.get(ranges, narrow), self.blocks or 1


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a training is: ``share`` of its budget in [0, 1]; ``recall`` is the last validation's, at k + 3."""

    share: float
    minutes: float
    epoch: int
    tokens: int
    loss: float
    recall: float | None
    phase: str
