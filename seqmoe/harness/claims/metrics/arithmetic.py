"""Claims that arithmetic settles: sizes of a model, experts that a layer's time can hide, and table 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqmoe.harness.claims.context import Context
from seqmoe.harness.claims.evidence import COMPUTED, Evidence, Sample
from seqmoe.harness.claims.metrics.base import Metric
from seqmoe.simulate.table2 import table2
from seqmoe.spec.claim import Claim
from seqmoe.spec.hardware import load_hardware

_PRINTED = {"optimal": "ABDE", "infinity": "BDEF", "promoe": "ABCD"}


def _size(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """GB (1e9 bytes) of ``part``: experts, the active ones of a token, non-experts, or all, as declared."""
    model = context.models[claim.model]
    geometry = model.geometry
    experts = geometry.total_experts * model.expert_bytes
    sizes = {
        "experts": experts,
        "active": model.layers * model.top_k * model.expert_bytes,
        "non_experts": model.non_expert_bytes,
        "total": experts + model.non_expert_bytes,
    }
    # A size that was taken from the print says nothing about the print.
    names = ["non_expert_bytes"] if options["part"] in ("non_experts", "total") else []
    if any(model.sources[name].startswith("paper") for name in ["expert_bytes", *names]):
        return []
    basis = f"suites/models/{model.name}.toml: {model.sources[(names or ['expert_bytes'])[0]].split(';')[0]}"
    return [Evidence(COMPUTED, claim.model, basis, True, Sample(sizes[options["part"]] / 1e9))]


def _overlap(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """Experts that the link moves in a layer's time at full-load speed; the interval ends at the link's peak rate."""
    hardware = load_hardware(context.home, options["hardware"])
    model = context.models[claim.model]
    pace = hardware.pace(model.name)
    peak = pace.overlap_ratio * hardware.link_peak / hardware.link_sustained
    sample = Sample(pace.overlap_ratio, pace.overlap_ratio, peak)
    basis = (
        f"{1e6 * pace.layer_seconds:.0f} us a layer at full load, {model.expert_bytes / 1e6:.2f} MB an expert, "
        f"{hardware.link_sustained:g} GB/s sustained and {hardware.link_peak:g} at most"
    )
    return [Evidence(COMPUTED, claim.model, basis, True, sample)]


def _table2(context: Context, claim: Claim, options: Mapping[str, Any]) -> list[Evidence]:
    """The sets of table 2, by exhaustive search and by each order."""
    found = {row.order: row.chosen for row in table2()}
    agrees = all(found[order] == chosen for order, chosen in _PRINTED.items())
    text = ", ".join(f"{name} {found[order]}" for order, name in
                     (("optimal", "optimal"), ("infinity", "MoE-Infinity"), ("promoe", "ProMoE")))  # fmt: skip
    basis = "exhaustive search, and each order on the same timeline"
    return [Evidence(COMPUTED, "-", basis, True, agrees=agrees, contradicts=not agrees, text=text)]


SIZE = Metric(_size)
OVERLAP = Metric(_overlap)
TABLE2 = Metric(_table2)
