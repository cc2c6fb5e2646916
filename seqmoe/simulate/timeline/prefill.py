"""Time to first token: a prompt of a thousand tokens uses nearly every expert, so what is absent must arrive."""

from __future__ import annotations

from seqmoe.simulate.timeline.costs import Costs
from seqmoe.simulate.timeline.systems import SimulatedSystem

PROMPT_TOKENS = 1024


def ttft(costs: Costs, system: SimulatedSystem, residency: float, tokens: int = PROMPT_TOKENS) -> float:
    """Seconds to the first token of a prompt of ``tokens``.

    Which experts a prompt will use is not known before it, so the share of its selections that fall on resident ones is
    the residency. Prefill is no graph (paper, section 8), so a layer takes at least what its launches do.
    """
    model, rates, decoding = costs.model, costs.rates, costs.decoding
    layers, every = model.layers, model.experts * model.expert_bytes
    shared = decoding.token_bytes / layers
    # A weight of the non-experts is about as many bytes as one of the experts.
    weights = shared / model.expert_bytes * decoding.expert_weights
    compute = rates.compute_sustained * 1e12
    dense = max(2 * tokens * weights / compute, costs.launches())
    chosen = 2 * tokens * model.top_k * decoding.expert_weights
    experts = max(chosen / compute, every / (rates.memory_sustained * 1e9))
    layer = dense + experts
    link = costs.hardware.link_sustained * 1e9
    efficiency = costs.constant(system.constants, "prefill_efficiency", 1.0)
    absent = 1 - residency
    missing = absent * every / (link * efficiency)
    if system.prefill == "resident":
        return layers * layer
    if system.prefill == "flexible":
        return missing + layers * max(layer, missing)
    if system.prefill == "ping_pong":
        whole = every / (link * efficiency)
        return whole + layers * max(layer, whole)
    if system.prefill == "copy":
        return layers * (layer + absent * model.experts * costs.unpinned())
    speed = costs.constant(system.constants, "gflops_per_thread", 100.0) * 1e9 * rates.cpu_threads
    return layers * (dense + max(experts * residency, absent * chosen / speed))
