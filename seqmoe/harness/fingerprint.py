"""What a record ran on: machine, software and revision; never a host name or a path."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import seqmoe
from seqmoe.spec.paths import Home

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "safetensors", "triton", "gguf", "mamba-ssm")
_GPU_FIELDS = {
    "name": "name",
    "memory.total": "memory",
    "driver_version": "driver",
    "pcie.link.gen.max": "pcie_generation",
    "pcie.link.width.max": "pcie_width",
}
_INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")
_SECONDS = 20.0


def fingerprint(home: Home) -> dict[str, Any]:
    """The environment of a record, as plain JSON values. ``host`` names the folder that its results belong to."""
    cpu, gpus = _cpu(), _gpus()
    return {
        "host": host_id(cpu["model"], cpu["cores"], [gpu["name"] for gpu in gpus]),
        "cpu": cpu,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1,
        "gpus": gpus,
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": platform.python_version(),
        "packages": {"seqmoe": seqmoe.__version__} | _packages(PACKAGES),
        "git": _git(home.declarations) if home.kind != "wheel" else {"missing": "installed from a wheel"},
        "declarations": "wheel" if home.kind == "wheel" else "clone",
    }


def host_id(cpu: str, cores: int, gpus: Sequence[str] = ()) -> str:
    """A stable folder name from what the host is made of, for example ``cpu-amd-epyc-9654-2c``."""
    parts = []
    if gpus:
        many = f"-{len(gpus)}x" if len(gpus) > 1 else ""
        parts.append(f"gpu-{_slug(gpus[0])}{many}")
    parts.append(f"cpu-{_slug(cpu)}-{cores}c")
    return "-".join(parts)


def software(environment: dict[str, Any]) -> dict[str, Any]:
    """The part of a fingerprint that decides whether a failure may have been mended since."""
    return {key: environment.get(key) for key in ("python", "packages", "git")}


def resolve_revision(home: Home, name: str) -> str | None:
    """The full hash of what git calls ``name`` (a branch, ``HEAD~1``) in the clone; None where it knows none."""
    if home.kind == "wheel" or name.startswith("-"):
        return None
    found = _output(["git", "-C", str(home.declarations), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"])
    return found.strip() if found else None


def load_average() -> float:
    """Processes that wanted a core over the last minute; a measurement beside other work shows it."""
    return round(os.getloadavg()[0], 2)


def _slug(name: str) -> str:
    name = re.sub(r"\((?:r|tm)\)|@.*|\b(?:cpu|processor)\b|\b\d+-core\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "unknown"


def _cpu() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8", errors="replace") if info.exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    words = set(flags[1].split()) if flags else set()
    return {
        "model": model[1].strip() if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "usable_cores": len(os.sched_getaffinity(0)),
        "instruction_sets": [name for name in _INSTRUCTION_SETS if name in words],
    }


def _gpus() -> list[dict[str, str]]:
    query = ["nvidia-smi", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader"]
    text = _output(query)
    rows = [[value.strip() for value in line.split(",")] for line in (text or "").splitlines() if line.strip()]
    return [dict(zip(_GPU_FIELDS.values(), row, strict=True)) for row in rows if len(row) == len(_GPU_FIELDS)]


def _packages(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _git(folder: Path) -> dict[str, Any]:
    revision = _output(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if revision is None:
        return {"missing": "not a git checkout with a commit, or git is not installed"}
    changes = _output(["git", "-C", str(folder), "status", "--porcelain"])
    return {"revision": revision.strip(), "dirty": bool(changes and changes.strip())}


def _output(command: Sequence[str]) -> str | None:
    """What a command prints, or None where it does not exist, fails, or does not answer in time."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
