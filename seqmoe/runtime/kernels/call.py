"""A kernel with everything it is launched with: so the one that is compiled ahead of time is the one that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One launch of a Triton kernel: ``arguments`` by name, which are tensors, numbers, or None, and ``constants``.

    Nothing in it depends on a value on the device, so a captured launch can be replayed.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, object]
    constants: Mapping[str, Any]
    warps: int

    @property
    def name(self) -> str:
        """The kernel's name, without the underscore that keeps it to its module."""
        return str(self.kernel.fn.__name__).removeprefix("_")

    @property
    def options(self) -> dict[str, Any]:
        """What the compiler is told. Products and sums are fused, which a later Triton does only if asked to."""
        return {"num_warps": self.warps, "enable_fp_fusion": True}

    def launch(self) -> None:
        """Run it on the current stream, or here and now where kernels are interpreted."""
        self.kernel[self.grid](**self.arguments, **self.constants, **self.options)
