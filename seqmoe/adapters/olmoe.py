"""OLMoE: softmax router without renormalisation, SwiGLU experts in every layer."""

from __future__ import annotations

from seqmoe.adapters.gated import GatedFamily

FAMILY = GatedFamily("olmoe")
