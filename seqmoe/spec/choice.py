"""What a person names on the command line: a declared model, a folder or a hub id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# In a folder of its own: engines load every safetensors file that lies beside a checkpoint's configuration.
# The paper's kind first; what a reference training counts by itself is there at once.
PREDICTOR_FILES = ("predictor/mamba2.safetensors", "predictor/first_order.safetensors")
PROFILE_FILE = "predictor/popularity.safetensors"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Where a checkpoint is (folder or hub id), and the best predictor and the profile that lie beside it, if any."""

    location: str
    predictor: Path | None
    profile: Path | None


def choose_model(home: Home, text: str) -> ModelChoice:
    """Resolve a name of suites/models, a folder that holds a checkpoint, or a hub id, in this order.

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
    predictors = (Path(location) / name for name in PREDICTOR_FILES)
    predictor = next((file for file in predictors if file.is_file()), None)
    profile = Path(location) / PROFILE_FILE
    return ModelChoice(location, predictor, profile if profile.is_file() else None)
