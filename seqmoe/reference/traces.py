"""The reference model's own traces: real routing that every machine can collect in a few minutes."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqmoe.spec.dataset import dataset_file, load_dataset
from seqmoe.spec.files import files_sha256
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home, find_home
from seqmoe.traces.collect.progress import Report
from seqmoe.traces.collect.request import CollectOptions, Prompt
from seqmoe.traces.manifest import MANIFEST, read_manifest

# Raise whenever the same weights and options would give other traces.
_REVISION = 2
_DATASET = "mixed"
# Large batches: a step of this model costs little more for 60 rows than for 16.
OPTIONS = CollectOptions(tokens=512, samples=3, temperature=1.0, seed=0, batch=60, engine="transformers")


def reference_traces(folder: Path | None = None, progress: Report | None = None) -> Path:
    """The store of the reference model's traces, collected on the first call.

    180 sequences: three samples of each prompt of suites/datasets/mixed, of at most 512 tokens. ``folder`` is where
    such stores are kept (default: ``.traces`` of the working folder); the store's name holds a digest of weights,
    prompts and options, so that another model's traces are never taken for this one's. A second call returns at once,
    one after an interruption resumes, and one beside another waits for it.
    """
    home = find_home()
    model, prompts = load_model(home, "reference"), _prompts(home)
    store = _store(home, folder)
    if _complete(store):
        return store
    with _alone(store):
        if not _complete(store):
            from seqmoe.traces.collect.collector import collect

            name, licence = model.name, model.licence
            collect(model.location, prompts, store, OPTIONS, name=name, licence=licence, report=progress)
    return store


def collected_traces(folder: Path | None = None) -> Path | None:
    """The store that `reference_traces` returns, None while it has yet to be collected."""
    store = _store(find_home(), folder)
    return store if _complete(store) else None


def _store(home: Home, folder: Path | None) -> Path:
    checkpoint = Path(load_model(home, "reference").location)
    weights = (checkpoint / name for name in ("config.json", "tokenizer.json", "model.safetensors"))
    about = f"{_REVISION} {OPTIONS.batch} {OPTIONS.samples} {OPTIONS.describe(_prompts(home))}"
    return (folder or home.work / ".traces") / f"reference-{files_sha256(weights, prefix=about)[:12]}"


def _prompts(home: Home) -> list[Prompt]:
    dataset = load_dataset(home, _DATASET)
    rows = [json.loads(line) for line in dataset_file(home, dataset).read_text(encoding="utf-8").split("\n") if line]
    return [Prompt(row["id"], f"{_DATASET}/{row['kind']}", row[dataset.field]) for row in rows]


def _complete(store: Path) -> bool:
    return (store / MANIFEST).is_file() and read_manifest(store).complete


@contextmanager
def _alone(store: Path) -> Iterator[None]:
    """Only one process collects; the others wait here, and the system lets go of a killed one's lock."""
    store.parent.mkdir(parents=True, exist_ok=True)
    with store.with_name(f"{store.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
