"""Export of a checkpoint for other engines: a Hugging Face folder as it is, or one GGUF file."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from seqmoe.reference.checkpoint_weights import weight_files
from seqmoe.reference.gguf_file.file import export_gguf
from seqmoe.reference.gguf_file.source import read_config
from seqmoe.spec.errors import InputError, nearest

FORMS = ("hf", "gguf")
_HF_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "README.md")


def export(checkpoint: Path, form: str, folder: Path) -> Path:
    """Write the checkpoint into ``folder``: ``form`` hf makes it a checkpoint, gguf puts one file into it.

    Returns what was written. Raises `InputError` for another form, and as `export_hf` and
    `seqmoe.reference.gguf_file.file.export_gguf` do.
    """
    if form not in FORMS:
        raise InputError(f"format {form!r} is unknown; {nearest(form, FORMS)}")
    if form == "hf":
        return export_hf(checkpoint, folder)
    return export_gguf(checkpoint, folder / f"{checkpoint.name}.gguf")


def export_hf(checkpoint: Path, out: Path) -> Path:
    """Copy the checkpoint's model and tokenizer files into the new folder ``out``; returns it.

    The folder appears whole or not at all. Raises `InputError` if ``checkpoint`` is no checkpoint, or ``out`` exists
    and is not an empty folder.
    """
    read_config(checkpoint)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists already; choose a new folder, or remove it first")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as staging:
        folder = Path(staging) / out.name
        folder.mkdir()
        weights = [path.name for path in weight_files(checkpoint)]
        for name in (*_HF_FILES, "model.safetensors.index.json", *weights):
            if (checkpoint / name).is_file():
                shutil.copyfile(checkpoint / name, folder / name)
        os.replace(folder, out)
    return out
