"""The MoE layers of one decode step for compiled code, which calls them by address: no Python between the layers.

``DecodeStep(layers, experts, tokens, choices, gate_up, down, pipeline, ...)`` computes what `seqmoe.core.moe` does,
from the pool ``gate_up`` [S, 2I, H] and ``down`` [S, H, I] (and the same options), for ``tokens`` tokens of ``choices``
experts each. Experts are made resident through ``pipeline``; with None the pool is the host pool (full load). It keeps
arrays and pipeline alive. Results are bit-equal to calling pipeline, kernel and reduction one by one.

A step is ``begin(position)``, then the compiled code's calls of the function at ``address``, layers in order, then
``finish()``, which raises what failed in between (a failed layer gives zeros, and so do all after it). ``begin`` takes
functions of the layer's number that are called inside of it: ``needed`` before any of the ``distinct()`` experts is
made resident, ``routed`` thereafter, at the layers in ``triggers`` only, and ``done`` at the layer's end; without a
pipeline only ``done``. ``experts`` and ``weights`` hold the routing of the layers that were passed,
``placing_ns`` how long it took to make experts resident, stalls and functions included.
"""

from __future__ import annotations

from seqmoe.core._native import DecodeStep

__all__ = ["DecodeStep"]
