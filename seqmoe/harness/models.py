"""Where a declared model lies on this machine, in the form that a worker is given, and its tokenizer."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from tokenizers import Tokenizer

from seqmoe.harness.prompts import Unavailable
from seqmoe.spec.errors import InputError
from seqmoe.spec.model import Model
from seqmoe.spec.paths import Home


def checkpoint_folder(model: Model) -> Path:
    """The folder with config.json: the declared one, or the hub's on this machine.

    A declared folder that is not there is an `InputError`; a hub model that was never fetched is `Unavailable`, since
    no sweep should start to fetch hundreds of gigabytes by itself.
    """
    if model.path:
        folder = Path(model.location)
        if not (folder / "config.json").is_file():
            raise InputError(f"model {model.name!r}: path = {model.path!r}: {folder} has no config.json")
        return folder
    config = try_to_load_from_cache(model.hub_id, "config.json")
    if not isinstance(config, str):
        raise Unavailable(f"the weights of {model.hub_id} are not on this machine", f"hf download {model.hub_id}")
    return Path(config).parent


def model_file(home: Home, folder: Path, model_format: str, gguf: str = "f32") -> Path:
    """What a worker of that format loads: the folder itself (hf), or its GGUF, written once into the environments.

    ``gguf`` is the type of the GGUF's matrices.
    """
    if model_format == "hf":
        return folder
    from seqmoe.reference.gguf_file.file import cached_gguf

    return cached_gguf(folder, home.environments / "gguf", gguf)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint folder; none there is an `InputError`."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{folder}: has no tokenizer.json, so prompts cannot become token ids")
    return Tokenizer.from_file(str(path))
