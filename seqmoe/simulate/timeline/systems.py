"""How each system spends time: rows of one table, the paper's systems and its rivals."""

from __future__ import annotations

from dataclasses import dataclass, replace

from seqmoe.spec.errors import InputError, nearest

MISSES = ("none", "load", "cpu", "split", "hidden")
EXECUTION = ("graph", "sync", "eager")
PREFILL = ("resident", "flexible", "ping_pong", "copy", "cpu")


@dataclass(frozen=True, slots=True)
class SimulatedSystem:
    """One row. ``name`` is a system's of `seqmoe.spec.system`, or a baseline's as the paper calls it.

    ``policy`` is one of `seqmoe.simulate.policies` (with ``+ORDER`` for prefetches), ``activation`` for MoE-Infinity's,
    ``all`` for full load, ``layers`` for whole layers that stay on the device, ``nothing`` for a device that keeps no
    expert. ``misses`` are loaded over the link, computed by the CPU, or ``split`` between both as is quickest; or
    ``hidden``: nothing waits while the link has time. ``predictor``: a sequence predictor runs twice a
    step. ``history``: forecasts are the request's own running frequencies. ``managed``: kernels on the device keep the
    slots. ``prefill`` says how a prompt's experts arrive: what is missing overlapped with computation (``flexible``),
    every layer's through two buffers (``ping_pong``), by plain copies (``copy``), or not at all (``cpu``).
    ``constants`` is the prefix of its constants in the calibration, empty where it has none; ``unsupported`` are models
    that it does not run.
    """

    name: str
    policy: str
    misses: str = "load"
    execution: str = "graph"
    predictor: bool = False
    history: bool = False
    managed: bool = False
    prefill: str = "flexible"
    constants: str = ""
    unsupported: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field, valid in (("misses", MISSES), ("execution", EXECUTION), ("prefill", PREFILL)):
            value = getattr(self, field)
            if value not in valid:
                raise ValueError(f"{field} = {value!r}; {nearest(value, valid)}")

    @property
    def prefetches(self) -> bool:
        """Whether its counts depend on how fast the link is."""
        return self.predictor or self.history


def _seqmoe(name: str, policy: str) -> SimulatedSystem:
    return SimulatedSystem(name, policy, predictor=True, managed=True, constants="seqmoe")


# What each cannot run is as the paper's crosses say.
_FP8, _GPT, _DSV4 = "qwen3-30b-a3b-fp8", "gpt-oss-120b-mxfp4", "deepseek-v4-flash"
SIMULATED = {
    system.name: system
    for system in (
        SimulatedSystem("full", "all", misses="none", prefill="resident"),
        SimulatedSystem("eager", "all", misses="none", execution="eager", prefill="resident"),
        SimulatedSystem("sync", "all", misses="none", execution="sync", prefill="resident"),
        SimulatedSystem("naive", "nothing", execution="eager", prefill="copy"),
        _seqmoe("seqmoe", "seqmoe"),
        _seqmoe("seqmoe_infinity", "seqmoe_infinity"),
        _seqmoe("seqmoe_cache_only", "seqmoe_cache_only"),
        replace(_seqmoe("seqmoe_cpu", "seqmoe"), misses="split"),
        SimulatedSystem("lru", "lru", managed=True, prefill="ping_pong", constants="seqmoe"),
        SimulatedSystem("FreeToken", "lru", managed=True, prefill="ping_pong", constants="freetoken",
                        unsupported=(_FP8,)),
        SimulatedSystem("MoE-Infinity", "activation", execution="eager", history=True, prefill="copy",
                        constants="moe_infinity", unsupported=(_DSV4,)),
        # The host hands experts to the CPU in every layer, between kernels that it launches one by one.
        SimulatedSystem("KTransformers", "prefill_hot", misses="cpu", execution="eager", prefill="cpu",
                        constants="ktransformers", unsupported=(_GPT,)),
        SimulatedSystem("llama.cpp", "layers", misses="cpu", prefill="copy", constants="llama_cpp"),
        # The roofline: all-knowing eviction moves the fewest bytes, all of them while the device computes.
        SimulatedSystem("bound", "belady", misses="hidden"),
        SimulatedSystem("ProMoE", "lru+promoe", execution="eager", predictor=True, constants="moe_infinity"),
    )
}  # fmt: skip


def simulated_system(name: str) -> SimulatedSystem:
    """The row of that name; an unknown one is an `InputError` with the nearest."""
    if name not in SIMULATED:
        raise InputError(f"system {name!r} cannot be simulated; {nearest(name, SIMULATED)}")
    return SIMULATED[name]
