"""What a person names on the command line: a declared model, a folder or a hub id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# OpenMP makes as many as it is told, and ends the process where the system has no more of them.
MOST_THREADS = 1024
# Of the predictors that lie with a model the first is its own: the paper's kind, or what is counted in seconds.
KINDS = ("mamba2", "first_order")
# In a folder of its own: engines load every safetensors file that lies beside a checkpoint's configuration.
FOLDER = "predictor"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Where a checkpoint is (folder or hub id), and the folders that may hold its predictors and its profile."""

    location: str
    folders: tuple[Path, ...]

    @property
    def predictor(self) -> Path | None:
        """The model's own: the first of `KINDS` that there is."""
        found = map(self.predictor_of, KINDS)
        return next((file for file in found if file is not None), None)

    @property
    def profile(self) -> Path | None:
        """How often other traces of the model used each expert; a predictor's file too, of the kind popularity."""
        return self.predictor_of("popularity")

    def predictor_of(self, kind: str) -> Path | None:
        """The predictor of a kind that was put there for this model."""
        files = (folder / f"{kind}.safetensors" for folder in self.folders)
        return next((file for file in files if file.is_file()), None)


def choose_model(home: Home, text: str) -> ModelChoice:
    """Resolve a name of suites/models, a folder that holds a checkpoint, or a hub id, in this order.

    What belongs to a declared model is looked for in `Home.predictors` below its name, then as for any other in its
    checkpoint's folder `FOLDER`.
    Raises `InputError` for anything else, with the declared names.
    """
    declared = sorted(path.stem for path in (home.suites / "models").glob("*.toml"))
    if text in declared:
        location = load_model(home, text).location
    elif Path(text).is_dir():
        if not (Path(text) / "config.json").is_file():
            raise InputError(f"--model {text}: the folder has no config.json; give a Hugging Face checkpoint folder")
        location = text
    elif _HUB_ID.fullmatch(text) and not Path(text).parent.is_dir():
        location = text
    else:
        raise InputError(f"--model {text}: no such folder, and no model of suites/models; {nearest(text, declared)}")
    own = (home.predictors / text,) if text in declared else ()
    return ModelChoice(location, (*own, Path(location) / FOLDER))
