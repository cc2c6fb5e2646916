"""Which weights a record ran on: digests of the model, and of predictor and profile where the system has them."""

from __future__ import annotations

from pathlib import Path

from seqmoe.harness.models import checkpoint_folder
from seqmoe.harness.prompts import Unavailable
from seqmoe.harness.replays import Replays
from seqmoe.harness.request import predictor_file
from seqmoe.harness.simulator_digest import simulator_digest
from seqmoe.spec.choice import choose_model
from seqmoe.spec.files import files_sha256
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import REPLAY, Cell
from seqmoe.spec.system import SYSTEMS

_FILES = ("config.json", "tokenizer.json")


class Weights:
    """Digests of one sweep: every model is read once, so that all its records agree on what they ran on."""

    def __init__(self, home: Home, replays: Replays | None = None) -> None:
        self._home = home
        self._replays = replays or Replays(home)
        self._models: dict[str, str | None] = {}
        self._predictors: dict[tuple[str, str], str | None] = {}
        self._profiles: dict[str, str | None] = {}
        self._simulators: dict[tuple[str, str], str] = {}

    def of(self, cell: Cell) -> dict[str, str | None]:
        """``model`` and ``predictor``, None where there is none on this machine or the system uses none.

        For a system that reads a profile of the model (popularity, fitted scores) ``profile`` too; a simulated cell has
        no weights, but a ``simulator``. Raises `InputError` for a model that is declared wrongly.
        """
        if cell.lane == "simulated":
            return {"model": None, "predictor": None, "simulator": self._simulator(cell)}
        if cell.routing == REPLAY:
            return self._replays.weights(cell)
        if cell.model not in self._models:
            self._models[cell.model] = self._model(cell.model)
        kind = (cell.model, cell.predictor)
        if kind not in self._predictors:
            predictor = predictor_file(self._home, cell)
            self._predictors[kind] = None if predictor is None else files_sha256([predictor])
        found = {
            "model": self._models[cell.model],
            "predictor": self._predictors[kind] if has_predictor(cell) else None,
        }
        if has_profile(cell):
            if cell.model not in self._profiles:
                self._profiles[cell.model] = self._profile(cell.model)
            found["profile"] = self._profiles[cell.model]
        return found

    def _simulator(self, cell: Cell) -> str:
        key = (cell.model, cell.hardware)
        if key not in self._simulators:
            self._simulators[key] = simulator_digest(self._home, cell)
        return self._simulators[key]

    def _profile(self, name: str) -> str | None:
        file = choose_model(self._home, name).profile
        return None if file is None else files_sha256([file])

    def _model(self, name: str) -> str | None:
        model = load_model(self._home, name)
        try:
            folder = checkpoint_folder(model)
        except Unavailable:
            return None
        # The hub names a snapshot by its commit; reading gigabytes would say no more.
        return folder.name if model.hub_id else checkpoint_digest(folder)


def checkpoint_digest(folder: Path) -> str:
    """SHA-256 (hex) over what decides a checkpoint's answers: configuration, tokenizer and weights."""
    plain = [folder / name for name in _FILES]
    return files_sha256(path for path in [*plain, *sorted(folder.glob("*.safetensors*"))] if path.is_file())


def has_predictor(cell: Cell) -> bool:
    """Whether the cell's result depends on a predictor file."""
    return cell.system in SYSTEMS and SYSTEMS[cell.system].predictor != "none"


def has_profile(cell: Cell) -> bool:
    """Whether the cell's result depends on the model's profile; replayed routing is placed without one."""
    if cell.routing == REPLAY or cell.system not in SYSTEMS:
        return False
    spec = SYSTEMS[cell.system]
    return spec.needs_popularity or spec.needs_weights
