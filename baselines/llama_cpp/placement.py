"""How a residency becomes llama.cpp's own flags, and the bytes that this really keeps on the device."""

from __future__ import annotations

from dataclasses import dataclass

from baselines._shared.protocol import Refusal, Request
from baselines.llama_cpp.gguf_header import Header

_EXPERT_TENSORS = r"ffn_(up|down|gate|gate_up)_(ch|)exps"
CPU_ONLY_FULL_LOAD = (
    "on a host without a GPU every expert is in host memory: only full load (residency 1.0) means anything"
)


@dataclass(frozen=True)
class Placement:
    """``gpu_layers`` as -ngl, ``override`` as -ot, ``cache_bytes`` as --moe-cache-mib in bytes."""

    gpu_layers: int
    override: str
    cache_bytes: int
    resident_bytes: int


def place(request: Request, header: Header) -> Placement:
    """Map the request's residency.

    By default whole layers are kept: the experts of the first layers stay on the CPU, as llama.cpp's ``-ncmoe N``
    does, with the fewest such layers that keep the device within residency * (bytes of all experts). With the option
    ``expert_cache`` all experts stay on the CPU and llama.cpp's expert cache gets that many bytes.
    """
    total = header.total_expert_bytes
    if not total:
        raise Refusal("unsupported", f"architecture {header.architecture!r} in this GGUF has no experts")
    if request.device == "cpu":
        if request.residency != 1.0:
            raise Refusal("unsupported", CPU_ONLY_FULL_LOAD, "set residency = 1.0, or run on a host with a GPU")
        return Placement(0, "", 0, total)
    everything = header.layers + 1
    if request.options.get("expert_cache"):
        one = total // (len(header.expert_bytes) * header.experts)
        slots = round(request.residency * len(header.expert_bytes) * header.experts)
        # llama.cpp keeps one slot more than it uses and aligns the bank of each of the three matrices.
        return Placement(everything, f"{_EXPERT_TENSORS}=CPU", (slots + 1) * one + 3 * 256, slots * one)
    on_cpu, resident = [], total
    for layer in sorted(header.expert_bytes):
        if resident <= request.residency * total:
            break
        on_cpu.append(layer)
        resident -= header.expert_bytes[layer]
    if not on_cpu:
        return Placement(everything, "", 0, total)
    layers = "|".join(str(layer) for layer in on_cpu)
    return Placement(everything, rf"blk\.({layers})\.{_EXPERT_TENSORS}=CPU", 0, resident)
