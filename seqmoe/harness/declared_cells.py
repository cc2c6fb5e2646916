"""Checks of declared cells before anything runs: all that they name exists, and every output fits its context."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from seqmoe.harness.models import checkpoint_folder, load_tokenizer
from seqmoe.harness.prompts import Unavailable, load_prompts
from seqmoe.harness.simulated import LANE, check_simulated
from seqmoe.predictor.online import ONLINE
from seqmoe.spec.baseline import load_baselines
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home
from seqmoe.spec.prediction import RUNNING
from seqmoe.spec.suite import REPLAY, Cell
from seqmoe.spec.system import SYSTEMS


def check_cells(home: Home, suite: str | Path, cells: Sequence[Cell]) -> None:
    """Raise an `InputError` for a system, hardware, data set, prompt count, model or residency that does not exist.

    So it does for an output that would exceed the context of a model on this machine. The message names ``suite``, the
    name or file that was given, the key and the value. What has yet to be fetched is left to its cells.
    """
    check_simulated(home, suite, [cell for cell in cells if cell.lane == LANE])
    cells = [cell for cell in cells if cell.lane != LANE]
    baselines = load_baselines(home.baselines).values()
    systems = [*SYSTEMS, *(name for baseline in baselines for name in (baseline.name, *baseline.variants))]
    for name in dict.fromkeys(cell.system for cell in cells):
        with _blaming(suite, "systems", name):
            if name not in systems:
                raise InputError(f"unknown; {nearest(name, systems)}")
    for key in ("hardware", "link"):
        for name in dict.fromkeys(getattr(cell, key) for cell in cells):
            with _blaming(suite, key, name):
                if name not in ("host", ""):
                    load_hardware(home, name)
    for name in dict.fromkeys(cell.model for cell in cells):
        with _blaming(suite, "models", name):
            load_model(home, name)
    for name, residency in dict.fromkeys((cell.model, cell.residency) for cell in cells):
        with _blaming(suite, "residency", residency, f"model {name!r}: "):
            load_model(home, name).geometry.slots(residency)
    kinds = tuple(dict.fromkeys((*RUNNING, *ONLINE)))
    for name in dict.fromkeys(cell.predictor for cell in cells if cell.predictor):
        with _blaming(suite, "predictor", name):
            if name not in kinds:
                raise InputError(f"unknown; {nearest(name, kinds)}")
    cells = [cell for cell in cells if cell.routing != REPLAY]
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        with _blaming(suite, "dataset", dataset):
            load_prompts(home, dataset, 1)
    for dataset, prompts in dict.fromkeys((cell.dataset, cell.prompts) for cell in cells):
        with _blaming(suite, "prompts", prompts):
            load_prompts(home, dataset, prompts)
    for name in dict.fromkeys(cell.model for cell in cells):
        with _blaming(suite, "models", name):
            checkpoint_folder(load_model(home, name))
    _check_contexts(home, suite, cells)


def _check_contexts(home: Home, suite: str | Path, cells: Sequence[Cell]) -> None:
    longest: dict[tuple[str, str, int, int], int] = {}
    for cell in cells:
        workload = (cell.model, cell.dataset, cell.prompts, cell.seed)
        longest[workload] = max(cell.decode_tokens, longest.get(workload, 0))
    for (model, dataset, prompts, seed), tokens in longest.items():
        with _blaming(suite, "decode_tokens", tokens):
            folder = checkpoint_folder(load_model(home, model))
            context = _context(folder)
            if context is None or not (folder / "tokenizer.json").is_file():
                continue
            tokenizer = load_tokenizer(folder)
            length = max(len(tokenizer.encode(text).ids) for text in load_prompts(home, dataset, prompts, seed))
            if length + tokens > context:
                most = f"at most {context - length}" if length < context else "none, take shorter prompts"
                raise InputError(
                    f"the longest prompt of {dataset!r} has {length} tokens, the context of model {model!r} {context}; "
                    f"valid: {most}"
                )


def _context(folder: Path) -> int | None:
    """Tokens that a checkpoint's context holds, None where its configuration does not tell."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{folder / 'config.json'}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{folder / 'config.json'}: expected a JSON object")
    # A model that also sees keeps its language model's configuration one level down.
    inner = config.get("text_config")
    for table in (config, inner if isinstance(inner, dict) else {}):
        length = table.get("max_position_embeddings")
        if isinstance(length, int):
            return length
    return None


@contextmanager
def _blaming(suite: str | Path, key: str, value: object, about: str = "") -> Iterator[None]:
    """Put in front of whatever is wrong where it was declared; what is not on this machine is passed over."""
    try:
        yield
    except Unavailable:
        return
    except ValueError as error:
        raise InputError(f"suite {str(suite)!r}: {key} = {value!r}: {about}{error}") from None
