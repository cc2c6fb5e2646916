"""A checkpoint that an export reads: its configuration, and its tensors one after another as float32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig

from seqmoe.adapters.base import Family, family_of
from seqmoe.reference.checkpoint_weights import Weights
from seqmoe.runtime.expert_files import ExpertFiles, locate_experts
from seqmoe.runtime.placement import ExpertPool
from seqmoe.runtime.stored import stored_tensors
from seqmoe.spec.errors import InputError

# What precedes "layers.0": a language model's own name, and that inside a composite model.
_PREFIXES = ("model.", "model.language_model.", "language_model.model.")


def read_config(checkpoint: Path) -> Any:
    """The text model's configuration; `InputError` where there is none, or its family is not supported."""
    if not (checkpoint / "config.json").is_file():
        raise InputError(f"{checkpoint}: no config.json there; give a Hugging Face checkpoint folder")
    try:
        return AutoConfig.from_pretrained(checkpoint).get_text_config()
    except (ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(f"{checkpoint / 'config.json'}: Transformers cannot read it: {first}") from None


class Source:
    """A context manager that holds the checkpoint's files open. In memory are one tensor and one layer's experts."""

    def __init__(self, checkpoint: Path, config: Any) -> None:
        self.config = config
        self.family: Family = family_of(config.model_type)
        self.geometry = self.family.shape(config)
        self._checkpoint = checkpoint
        self._weights = Weights(checkpoint)
        self._files: ExpertFiles | None = None
        self._pool: ExpertPool | None = None
        self._held = -1

    def __enter__(self) -> Source:
        self._weights.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._weights.__exit__(kind, error, trace)

    def __contains__(self, name: str) -> bool:
        return self._stored(name) in self._weights

    def read(self, name: str) -> NDArray[np.float32]:
        """The tensor ``name``, as it is called below the text model; `InputError` where the checkpoint has none."""
        return self._weights.read(self._stored(name))

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The same of packed bytes."""
        return self._weights.raw(self._stored(name))

    def _stored(self, name: str) -> str:
        names = [f"{prefix}{name}" for prefix in _PREFIXES] + [name]
        names += [one.replace(".mlp.", f".{self.family.block}.") for one in names]
        return next((one for one in names if one in self._weights), names[0])

    def expert_part(self, layer: int, part: str) -> NDArray[np.float32]:
        """``part`` of every expert of a layer: gate, up or down, float32 [experts, out, in], or with _bias [experts,
        out]; whatever the checkpoint's layout is.
        """
        held = self._experts_of(layer).tensors
        name, _, bias = part.partition("_")
        bias = f"_{bias}" if bias else ""
        if name == "down":
            return held[f"down{bias}"].numpy()
        both: torch.Tensor = held[f"gate_up{bias}"]
        return both.chunk(2, dim=1)[0 if name == "gate" else 1].numpy()

    def _experts_of(self, layer: int) -> ExpertPool:
        experts = self.geometry.experts
        if self._files is None or self._pool is None:
            self._files = locate_experts(stored_tensors(self._checkpoint), self.family, self.config, "float32")
            self._pool = ExpertPool.empty(experts, self._files.format)
        if self._held != layer:
            first = self.family.moe_layers(self.config).index(layer) * experts
            replace(self._files, sources=self._files.sources[first : first + experts]).read_into(self._pool)
            self._held = layer
        return self._pool
