"""The tiers of the host pool: pageable or page-locked memory, or the checkpoint's own files on disk."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seqmoe.adapters.base import ExpertFormat
from seqmoe.core.link import DiskLink
from seqmoe.runtime.expert_files import ExpertFiles
from seqmoe.runtime.placement import ExpertPool
from seqmoe.spec.errors import InputError, nearest

TIERS = ("pageable", "pinned", "disk")


@dataclass(frozen=True, slots=True, eq=False)
class DiskPool:
    """Experts that stay in the checkpoint's files: a host pool that needs no memory, for models larger than RAM."""

    files: ExpertFiles

    @property
    def format(self) -> ExpertFormat:
        """What a slot holds, and the files as well."""
        return self.files.format

    @property
    def entries(self) -> int:
        """Experts of the model."""
        return len(self.files.sources)

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert."""
        return self.format.expert_bytes

    def resident(self) -> ExpertPool:
        """Every expert read into memory, for a full load; a new pool at each call."""
        pool = ExpertPool.empty(self.entries, self.format)
        self.files.read_into(pool)
        return pool

    def link_to(self, slots: ExpertPool, seconds_per_expert: float) -> DiskLink:
        """The link that reads expert ``key`` from its file into a slot; throttled where seconds are given."""
        targets = []
        for piece in self.files.layout.pieces:
            part = slots.tensors[piece.part][0]
            first = part[piece.rows(tuple(part.shape))]
            targets.append((first.data_ptr(), part.numel() * part.element_size(), first.numel() * part.element_size()))
        paths = [str(file) for file in self.files.files]
        return DiskLink(paths, self.files.sources, targets, seconds_per_expert)


HostPool = ExpertPool | DiskPool


def host_pool(files: ExpertFiles, tier: str) -> HostPool:
    """An empty pool in memory for every expert of the files, or the files themselves in tier "disk".

    Raises `InputError` for an unknown tier, "pinned" without CUDA, and "disk" for weights that slots cannot hold as
    they are stored.
    """
    check_tier(tier)
    if tier != "disk":
        return ExpertPool.empty(len(files.sources), files.format, pinned=tier == "pinned")
    if not files.layout.canonical:
        raise InputError(
            f"{files.files[0].parent}: experts are stored as {files.layout.name}; the disk tier reads them into slots "
            "as they are, so use the pageable tier, or save the checkpoint with one tensor per expert"
        )
    if not files.as_in_pool:
        stored = ", ".join(sorted(set(files.dtypes)))
        raise InputError(
            f"{files.files[0].parent}: experts are stored as {stored}, but dtype {files.format.dtype!r} is asked for; "
            "the disk tier does not convert: choose the stored type, or the pageable tier"
        )
    return DiskPool(files)


def check_tier(tier: str) -> None:
    """Raise `InputError` for a tier that is unknown, or impossible on this machine."""
    if tier not in TIERS:
        raise InputError(f"host pool tier {tier!r} is unknown; {nearest(tier, TIERS)}")
    if tier == "pinned" and not torch.cuda.is_available():
        raise InputError(
            "host pool tier 'pinned': page-locked memory serves a GPU's DMA and needs an NVIDIA driver and a CUDA "
            "build of PyTorch; without them use 'pageable' or 'disk'"
        )
