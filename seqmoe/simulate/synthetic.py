"""Synthetic traces of a declared model by their name, drawn when they are first asked for and kept."""

from __future__ import annotations

from pathlib import Path

from seqmoe.simulate.timeline.cell import routing_process
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home
from seqmoe.traces.store import write_store
from seqmoe.traces.synthesis.requests import SyntheticRequests, synthesise

SYNTHETIC = "synthetic"
_PREFIX = f"{SYNTHETIC}-"
# Enough for a tenth that is held out and one of it to warm up with.
_REQUESTS, _PROMPT, _DECODE = 40, 64, 256


def synthetic_name(model: str) -> str:
    """What the synthetic traces of a declared model are called."""
    return f"{_PREFIX}{model}"


def is_synthetic(name: str) -> bool:
    """Whether traces of that name are drawn."""
    return name.startswith(_PREFIX)


def synthetic_store(home: Home, name: str) -> Path:
    """The store of the traces that `synthetic_name` names; drawing them takes seconds to a minute.

    Raises `InputError` for a model that is not declared.
    """
    model = name.removeprefix(_PREFIX)
    geometry = load_model(home, model).geometry
    folder = home.work / ".traces" / name
    if not folder.is_dir():
        process = routing_process(load_calibration(home))
        requests = SyntheticRequests(geometry, process, _REQUESTS, _PROMPT, _DECODE)
        write_store(synthesise(model, requests), folder, half=True)
    return folder
