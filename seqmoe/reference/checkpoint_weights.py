"""Reading of a safetensors checkpoint, one file or sharded, tensor by tensor as float32."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from seqmoe.spec.errors import InputError

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def weight_files(checkpoint: Path) -> list[Path]:
    """The checkpoint's safetensors files, at least one, in order of their names."""
    paths = sorted(checkpoint.glob("model*.safetensors"))
    if not paths:
        raise InputError(f"{checkpoint}: no model*.safetensors there; give a Hugging Face checkpoint folder")
    return paths


class Weights:
    """The tensors of a checkpoint folder by name; a context manager that holds its memory-mapped files open."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._stack = ExitStack()
        self._file_of: dict[str, Any] = {}

    def __enter__(self) -> Weights:
        for path in weight_files(self._checkpoint):
            stream = self._stack.enter_context(safe_open(path, framework="pt"))
            self._file_of.update(dict.fromkeys(stream.keys(), stream))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def read(self, name: str) -> NDArray[np.float32]:
        """One tensor as float32; `InputError` if the checkpoint has none of that name, or it is quantised."""
        return self._tensor(name).float().numpy()

    def raw(self, name: str) -> NDArray[np.uint8]:
        """One tensor of bytes as it is; `InputError` where there is none of that name, or one of another type."""
        tensor = self._tensor(name, (torch.uint8,))
        return tensor.numpy()

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def _tensor(self, name: str, types: tuple[torch.dtype, ...] = _FLOATS) -> torch.Tensor:
        if name not in self._file_of:
            raise InputError(f"{self._checkpoint}: tensor {name!r} is missing; is the checkpoint complete?")
        tensor: torch.Tensor = self._file_of[name].get_tensor(name)
        if tensor.dtype not in types:
            raise InputError(f"{self._checkpoint}: {name!r} is {tensor.dtype}; export a float32 or bfloat16 checkpoint")
        return tensor
