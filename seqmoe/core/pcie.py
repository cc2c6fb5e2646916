"""A GPU's PCI Express link as it is now, by NVIDIA's management library or by the kernel's files.

A GPU that rests lowers its link's generation; what it negotiates under load shows while, or right after, it copies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NVML", "PcieLink", "driver_version", "pcie_link"]

NVML = "libnvidia-ml.so.1"
DEVICES = Path("/sys/bus/pci/devices")

# Transfers per second and lane, in 10^9, of the generations 1 to 6.
_SPEEDS = ("2.5", "5.0", "8.0", "16.0", "32.0", "64.0")
_TEXT_BYTES = 96


@dataclass(frozen=True, slots=True)
class PcieLink:
    """Generation and width in lanes: in use now, and the most that card and slot together can do."""

    generation: int
    width: int
    max_generation: int
    max_width: int

    @property
    def bytes_per_second(self) -> float:
        """What the lanes in use carry in one direction, before the protocol's own share (PCI Express base spec)."""
        share = 8 / 10 if self.generation < 3 else 128 / 130
        return float(_SPEEDS[self.generation - 1]) * 1e9 / 8 * share * self.width


def driver_version(library: str = NVML) -> str | None:
    """The kernel driver's version, such as 570.86.15; None where it cannot be asked."""
    with _nvml(library) as nvml:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        if nvml is None or nvml.nvmlSystemGetDriverVersion(text, _TEXT_BYTES) != 0:
            return None
        return text.value.decode()


def pcie_link(pci_bus_id: str, library: str = NVML, devices: Path = DEVICES) -> PcieLink | None:
    """The link of the device at ``pci_bus_id`` (0000:01:00.0); None where neither source knows it."""
    return _by_library(pci_bus_id, library) or _by_files(devices / pci_bus_id.lower())


def _by_library(pci_bus_id: str, library: str) -> PcieLink | None:
    with _nvml(library) as nvml:
        if nvml is None:
            return None
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(device)) != 0:
            return None

        def ask(what: str) -> int | None:
            value = ctypes.c_uint()
            return None if nvml[f"nvmlDeviceGet{what}"](device, ctypes.byref(value)) != 0 else value.value

        return _link(ask, "CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth")


def _by_files(device: Path) -> PcieLink | None:
    def ask(name: str) -> int | None:
        try:
            first = (device / name).read_text().split()[0]
        except (OSError, IndexError):
            return None
        if name.endswith("width"):
            return int(first) if first.isdecimal() else None
        return _SPEEDS.index(first) + 1 if first in _SPEEDS else None

    return _link(ask, "current_link_speed", "current_link_width", "max_link_speed", "max_link_width")


def _link(ask: Callable[[str], int | None], *names: str) -> PcieLink | None:
    values = [value for name in names if (value := ask(name))]
    return PcieLink(*values) if len(values) == 4 and max(values[0], values[2]) <= len(_SPEEDS) else None


@contextmanager
def _nvml(library: str) -> Iterator[ctypes.CDLL | None]:
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        nvml = None
    if nvml is None or nvml.nvmlInit_v2() != 0:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()
