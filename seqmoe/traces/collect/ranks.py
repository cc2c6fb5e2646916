"""Several processes that share one collection: who am I, on which device, and when are the others done."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch

from seqmoe.spec.errors import InputError

# Ranks wait for the slowest at the end only; the default of half an hour would end a collection of days.
_PATIENCE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among ``count``; ``wait`` returns when all have called it."""

    rank: int
    count: int
    device: torch.device
    wait: Callable[[], None]

    @staticmethod
    def current() -> Ranks:
        """What Accelerate says; without it, one process on the first GPU or on the CPU.

        Raises `InputError` where several processes were started and Accelerate is absent.
        """
        started = int(os.environ.get("WORLD_SIZE", "1"))
        if importlib.util.find_spec("accelerate") is None:
            if started > 1:
                raise InputError(f"{started} processes were started, but Accelerate is missing; pip install accelerate")
            return Ranks(0, 1, torch.device("cuda" if torch.cuda.is_available() else "cpu"), lambda: None)
        options = {"timeout": _PATIENCE} if started > 1 else {}
        # Without cpu=True, Accelerate takes several processes on a machine without a GPU for as many single ones.
        state = importlib.import_module("accelerate").PartialState(cpu=not torch.cuda.is_available(), **options)
        if state.num_processes != started:
            raise InputError(
                f"WORLD_SIZE = {started}, but Accelerate sees {state.num_processes} processes; start them with torchrun"
            )
        return Ranks(state.process_index, state.num_processes, state.device, state.wait_for_everyone)
