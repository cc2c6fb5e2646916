"""Where a training runs: one process on one device, or several under Accelerate; and in which precision."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from seqmoe.spec.errors import InputError


@dataclass(frozen=True, slots=True)
class Devices:
    """``rank`` of ``ranks`` processes; ``accelerator`` is Accelerate's where there are several."""

    device: torch.device
    rank: int
    ranks: int
    accelerator: Any

    @staticmethod
    def here() -> Devices:
        """This process's device. Several processes, as `accelerate launch` starts them, need Accelerate."""
        ranks = int(os.environ.get("WORLD_SIZE", "1"))
        if ranks == 1:
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            return Devices(device, 0, 1, None)
        try:
            from accelerate import Accelerator
        except ImportError:
            raise InputError(
                f"WORLD_SIZE = {ranks}: training in several processes needs Accelerate; pip install accelerate"
            ) from None
        accelerator = Accelerator(cpu=not torch.cuda.is_available())
        return Devices(accelerator.device, accelerator.process_index, accelerator.num_processes, accelerator)

    @property
    def precision(self) -> str:
        """bfloat16 where the hardware multiplies it, else float32: emulated bfloat16 is far slower."""
        fast = torch.cuda.is_bf16_supported() if self.device.type == "cuda" else torch.cpu._is_avx512_bf16_supported()
        return "bfloat16" if fast else "float32"

    def autocast(self) -> AbstractContextManager[Any]:
        """Mixed precision for a forward pass."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """The model as it is called in training; its gradients are averaged over the processes."""
        if self.accelerator is None:
            return model, optimizer
        prepared: tuple[nn.Module, torch.optim.Optimizer] = self.accelerator.prepare(model, optimizer)
        return prepared

    def agree(self, value: float) -> float:
        """The first process's value, for decisions that all must take alike, or some would wait for ever."""
        if self.accelerator is None:
            return value
        holder = torch.tensor([value], dtype=torch.float64, device=self.device)
        torch.distributed.broadcast(holder, 0)
        return float(holder)
