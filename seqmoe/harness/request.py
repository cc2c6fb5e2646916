"""From a cell to the request that its worker is given: model, prompts as token ids, device, options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seqmoe.harness.devices import Devices
from seqmoe.harness.dilations import Dilations
from seqmoe.harness.models import checkpoint_folder, load_tokenizer, model_file
from seqmoe.harness.prompts import load_prompts
from seqmoe.harness.random_cells import random_model
from seqmoe.harness.replays import Replays
from seqmoe.spec.baseline import find_baseline, load_baselines
from seqmoe.spec.choice import choose_model
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.miss_prices import emulated_pace
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import RANDOM, REPLAY, Cell
from seqmoe.spec.system import SYSTEMS

PROTOCOL = 1


def predictor_file(home: Home, cell: Cell) -> Path | None:
    """The predictor that lies with the cell's model: of the kind that the cell names, or the model's own."""
    model = choose_model(home, cell.model)
    return model.predictor_of(cell.predictor) if cell.predictor else model.predictor


class Requests:
    """Builds requests; prompts are tokenized once per workload. Every system gets the same ids."""

    def __init__(
        self,
        home: Home,
        environment: Mapping[str, Any],
        threads: int,
        replays: Replays | None = None,
        dilations: Dilations | None = None,
    ) -> None:
        self._dilations = dilations or Dilations()
        self._home = home
        self._replays = replays or Replays(home)
        self._devices = Devices(home, environment)
        self._threads = threads
        self._baselines = load_baselines(home.baselines)
        self._tokenized: dict[tuple[Path, str, int, int], list[list[int]]] = {}

    def build(self, cell: Cell) -> dict[str, Any]:
        """The request of one cell.

        Raises `InputError` for a model or data set that is declared wrongly, `Unavailable` for one that is not here.
        """
        if cell.weights == RANDOM:
            return self._random(cell)
        if cell.routing == REPLAY:
            return self._replayed(cell)
        folder = checkpoint_folder(load_model(self._home, cell.model))
        own = cell.system in SYSTEMS
        model_format, gguf = "hf", "f32"
        if not own:
            baseline = find_baseline(self._baselines, cell.system)
            model_format, gguf = baseline.model_format, baseline.gguf(cell.system)
        return {
            "protocol": PROTOCOL,
            "cell": asdict(cell),
            "model_path": str(model_file(self._home, folder, model_format, gguf)),
            "model_format": model_format,
            "prompts": self._prompts(folder, cell),
            "decode_tokens": cell.decode_tokens,
            "device": self._devices.of(cell),
            "threads": self._threads,
            "options": self._options(cell) if own else {},
        }

    def _replayed(self, cell: Cell) -> dict[str, Any]:
        """Nothing is loaded and nothing is said: the traces take the place of model and prompts."""
        replay = self._replays.options(cell) | {"dilation": self._dilations.of(cell)}
        return self._without_checkpoint(cell) | {"replay": replay}

    def _random(self, cell: Cell) -> dict[str, Any]:
        """A model that no folder holds, and prompts that its engine makes of the traces."""
        random = asdict(random_model(self._home, cell, self._replays))
        return self._without_checkpoint(cell) | {"options": {"link_ratio": self._link_ratio(cell)}, "random": random}

    def _without_checkpoint(self, cell: Cell) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            "cell": asdict(cell),
            "model_path": "",
            "model_format": "hf",
            "prompts": [],
            "decode_tokens": cell.decode_tokens,
            "device": self._devices.of(cell),
            "threads": self._threads,
        }

    def _link_ratio(self, cell: Cell) -> float | None:
        """Of the imitated link, if there is one."""
        return load_hardware(self._home, cell.link).emulated_overlap_ratio if cell.link else None

    def _options(self, cell: Cell) -> dict[str, Any]:
        """What only our runtime takes: the imitated pace, and the predictor and profile that lie with the model."""
        emulated = cell.lane == "emulated"
        predictor, profile = predictor_file(self._home, cell), choose_model(self._home, cell.model).profile
        return {
            "pace": asdict(emulated_pace(self._home, cell.hardware)) if emulated else None,
            "dilation": self._dilations.of(cell),
            "predictor": None if predictor is None else str(predictor),
            "profile": None if profile is None else str(profile),
            "link_ratio": self._link_ratio(cell),
        }

    def _prompts(self, folder: Path, cell: Cell) -> list[list[int]]:
        key = (folder, cell.dataset, cell.prompts, cell.seed)
        if key not in self._tokenized:
            tokenizer = load_tokenizer(folder)
            texts = load_prompts(self._home, cell.dataset, cell.prompts, cell.seed)
            self._tokenized[key] = [tokenizer.encode(text).ids for text in texts]
        return self._tokenized[key]
