"""Mixtral: renormalised softmax router, SwiGLU experts in every layer."""

from __future__ import annotations

from seqmoe.adapters.gated import GatedFamily

FAMILY = GatedFamily("mixtral")
