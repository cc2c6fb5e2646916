"""Protects the host's own profile: it is measured, it is whole, and it can be read back."""

from __future__ import annotations

from pathlib import Path

from seqmoe.harness.host_calibration import HostRates, host_profile, measure, profile_toml
from seqmoe.spec.declared import build, read_toml
from seqmoe.spec.hardware import HardwareProfile


def test_a_short_measurement_gives_rates_that_can_be() -> None:
    found = measure(repeats=1, size=16 * 2**20)
    assert min(found.read, found.copy, found.copy_contended, found.gemv, found.compute) > 0
    assert found.copy_contended <= found.copy and 0 < found.gemv_efficiency <= 1


def test_a_profile_is_read_back_from_its_file(tmp_path: Path) -> None:
    profile = host_profile("box", HostRates(20.0, 10.0, 6.0, 16.0, 0.1), memory=24.0, threads=2)
    path = tmp_path / "box.toml"
    path.write_text(profile_toml(profile))
    assert build(HardwareProfile, read_toml(path), "box") == profile
    assert profile.link_contended == 6.0 and profile.rates is not None
    assert (profile.rates.memory_peak, profile.rates.memory_sustained) == (20.0, 16.0)
    assert "80% of a plain read" in profile.rates.sources["memory_sustained"]
