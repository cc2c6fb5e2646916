"""Loading of a checkpoint: the model without its experts through Transformers, the experts into the host pool.

Transformers fuses a layer's experts while it loads, which holds them twice for a time; here the fused parameters never
come into being, and each expert is read straight to its place. The peak of host memory is the pool and the rest of the
model.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from transformers.utils import logging as transformers_logging

from seqmoe.adapters.base import ExpertsModule
from seqmoe.runtime.checkpoint import Checkpoint, unreadable
from seqmoe.runtime.expert_files import ExpertFiles, locate_experts
from seqmoe.runtime.host_pool import DiskPool, HostPool, check_tier, host_pool
from seqmoe.runtime.memory_plan import plan_memory
from seqmoe.runtime.model_class import without_experts
from seqmoe.runtime.offload import NAME
from seqmoe.runtime.stored import stored_tensors
from seqmoe.spec.errors import InputError
from seqmoe.spec.hub import quiet_attempts


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model whose ``experts`` modules, one per MoE layer, hold no weights: these are in the ``host`` pool."""

    model: Any
    experts: list[ExpertsModule]
    host: HostPool


def load(checkpoint: Checkpoint, tier: str = "pageable") -> Loaded:
    """Load a model in the checkpoint's ``dtype``, its experts into the host pool's ``tier``.

    Raises `InputError`, naming file and tensor, for missing, truncated or wrongly shaped weights, as `host_pool` does
    for a tier that is impossible here, and `OutOfMemoryError` for a model that cannot fit even without slots and
    caches: callers who know these check a whole `plan_memory` before.
    """
    check_tier(tier)
    plan_memory(checkpoint, tier, slots=0).check()
    host = host_pool(files := expert_files(checkpoint), tier)
    model = _load_without_experts(checkpoint)
    if not isinstance(host, DiskPool):
        files.read_into(host)
    return Loaded(model, checkpoint.family.experts(model), host)


def expert_files(checkpoint: Checkpoint) -> ExpertFiles:
    """Where the experts are on disk; a hub id's files are fetched first."""
    folder = Path(checkpoint.source)
    if not folder.is_dir():
        try:
            with quiet_attempts():
                folder = Path(snapshot_download(checkpoint.source, allow_patterns=["*.json", "*.safetensors"]))
        except (OSError, ValueError) as error:
            raise unreadable(checkpoint.source, error) from None
    return locate_experts(stored_tensors(folder), checkpoint.family, checkpoint.config, checkpoint.dtype)


def _load_without_experts(checkpoint: Checkpoint) -> Any:
    """The model but for its routed experts, computed by the ``seqmoe`` function."""
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()
    kind = without_experts(checkpoint.family, checkpoint.config)
    try:
        with quiet_attempts():
            model, report = kind.from_pretrained(  # type: ignore[attr-defined]
                checkpoint.source,
                config=checkpoint.config,
                dtype=checkpoint.format.torch_dtype,
                experts_implementation=NAME,
                ignore_mismatched_sizes=True,  # so that the report names them; they are refused below
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise unreadable(checkpoint.source, error) from None
    for name, stored, wanted in report["mismatched_keys"]:
        raise InputError(
            f"{checkpoint.source}: {name!r} has shape {tuple(stored)}, but config.json makes it {tuple(wanted)}"
        )
    if report["missing_keys"]:
        # Transformers would go on with random numbers in their place.
        raise InputError(
            f"{checkpoint.source}: tensor {min(report['missing_keys'])!r} is in none of its files; is it complete?"
        )
    model.__class__ = kind.__mro__[1]
    return model.eval()
