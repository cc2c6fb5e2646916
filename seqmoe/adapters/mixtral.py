"""Mixtral: renormalised softmax router, SwiGLU experts in every layer."""

from __future__ import annotations

from seqmoe.adapters.gated import GatedFamily
from seqmoe.adapters.layout import FUSED, SEPARATE_BY_NUMBER

FAMILY = GatedFamily("mixtral", block="block_sparse_moe", layouts=(SEPARATE_BY_NUMBER, FUSED))
