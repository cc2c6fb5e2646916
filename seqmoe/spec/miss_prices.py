"""What an expert costs that is not on the device: loaded over the link, or computed on the host's CPU where it lies.

While the CPU computes a layer's missing experts, the link may load others and the device computes those that it holds.
CPU and link both read the host's memory, so the split is chosen with what each has left beside the other (the idea of
Fiddler, KTransformers and FreeToken's hybrid strategy; that an idle link's rate misleads is in
github.com/FlashML-org/FreeToken/pull/38).
"""

from __future__ import annotations

from dataclasses import replace

from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import HardwareProfile, load_hardware
from seqmoe.spec.pace import MissPrices, Pace
from seqmoe.spec.paths import Home

# The kernel is KTransformers': the share of the host's bandwidth that experts on the paper's hosts reached.
KERNEL = "ktransformers.cpu_efficiency"
# A link never takes all of the host's memory bandwidth.
_LEAST_LEFT = 0.1


def miss_prices(hardware: HardwareProfile, expert_bytes: int, kernel: float, efficiency: float = 1.0) -> MissPrices:
    """Prices on one machine; ``kernel`` and ``efficiency`` are what CPU and link reach of their bandwidth.

    Raises `InputError` for a profile without [rates].
    """
    rates = hardware.rates
    if rates is None:
        raise InputError(
            f"hardware {hardware.name!r} has no [rates], so nobody knows what an expert costs on its CPU; see "
            "suites/hardware/rtx4090.toml"
        )
    contended = hardware.link_contended or hardware.link_sustained
    left = max(rates.cpu_memory_sustained - contended, _LEAST_LEFT * rates.cpu_memory_sustained)
    size = expert_bytes / 1e9
    return MissPrices(
        link=size / (hardware.link_sustained * efficiency),
        contended=size / (contended * efficiency),
        cpu=size / (left * kernel),
        hand_over=rates.host_sync,
        hit=size / rates.memory_sustained,
    )


def emulated_pace(home: Home, name: str) -> Pace:
    """What an emulated run on this profile imitates, with the prices of its misses where the profile has rates."""
    hardware = load_hardware(home, name)
    pace = hardware.emulated_pace
    if hardware.rates is None:
        return pace
    expert_bytes = hardware.full_load[hardware.emulates].expert_bytes
    return replace(pace, misses=miss_prices(hardware, expert_bytes, load_calibration(home).value(KERNEL)))
