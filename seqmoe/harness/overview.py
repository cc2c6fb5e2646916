"""The opponents at a glance: version, state on this machine, models, how residency is set, what a system exposes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from seqmoe.harness.environments import installed_profile
from seqmoe.harness.self_test import SelfTest
from seqmoe.spec.baseline import ANY, DEVICES, Baseline
from seqmoe.spec.paths import Home


@dataclass(frozen=True, slots=True)
class Overview:
    """One baseline for people. ``version`` is what is installed, or what would be by the quick profile.

    ``state`` begins with "runs", "kernel only", "needs an NVIDIA GPU" or "not installed".
    """

    name: str
    version: str
    state: str
    models: str
    residency: str
    exposes: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def overview(baseline: Baseline, home: Home, found: SelfTest) -> Overview:
    """Put together what a baseline declares and what a self-test without a start has found."""
    profile = installed_profile(baseline, home)
    return Overview(
        name=baseline.name,
        version=_version(baseline, profile or "quick"),
        state=_state(baseline, profile, found),
        models=_models(baseline),
        residency=" ".join(baseline.residency.split()),
        exposes=f"tokens and their times; hit rate: {baseline.hit_rate}",
    )


def _state(baseline: Baseline, profile: str | None, found: SelfTest) -> str:
    if found.status.ok:
        return f"runs ({profile} profile installed)"
    if found.status.kind != "unsupported":
        return f"not installed: {found.status.hint or baseline.install}"
    if baseline.kernel is not None:
        command = "" if profile else f"; nox -s {baseline.session}"
        return f"kernel only ({'installed' if profile else 'not installed'}{command}): the system needs an NVIDIA GPU"
    trial = f"; the quick profile installs {baseline.trial.about}" if baseline.trial else ""
    return f"needs an NVIDIA GPU: {found.status.reason}{trial}"


def _version(baseline: Baseline, profile: str) -> str:
    """The pin of the system itself: what is named like it, or what is pinned first."""
    pins = [pin.replace("==", " ") for pin in baseline.pinned(profile) if "==" in pin]
    own = [pin for pin in pins if pin.split()[0].lower() == baseline.name.lower()]
    return next(iter(own + pins), "as its repository is")


def _models(baseline: Baseline) -> str:
    """Families and formats of each device, one text for devices that run the same."""
    devices: dict[str, list[str]] = {}
    for device in DEVICES:
        if text := _models_on(baseline, device):
            devices.setdefault(text, []).append(device)
    return "; ".join(f"{' and '.join(names)}: {text}" for text, names in devices.items())


def _models_on(baseline: Baseline, device: str) -> str:
    by_formats: dict[tuple[str, ...], list[str]] = {}
    for row in baseline.capability:
        if row.supported and not {device, ANY}.isdisjoint(row.devices):
            known = by_formats.setdefault(row.formats, [])
            known += [family for family in row.families if family not in known]
    parts = []
    for formats, families in by_formats.items():
        form = "any format" if ANY in formats else ", ".join(formats)
        parts.append(f"{', '.join('any' if family == ANY else family for family in families)} ({form})")
    return ", ".join(parts)
