"""What replayed cells need of this machine: traces, requests, and predictors that never saw them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from seqmoe.harness.dilations import comparison
from seqmoe.harness.prompts import Unavailable
from seqmoe.harness.studies.prediction_job import VALIDATION
from seqmoe.harness.studies.predictors import TEST_SHARE
from seqmoe.predictor.container import read_container
from seqmoe.predictor.making import make_predictor
from seqmoe.predictor.online import ONLINE
from seqmoe.simulate.synthetic import is_synthetic, synthetic_store
from seqmoe.spec.errors import InputError
from seqmoe.spec.files import files_sha256
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.miss_prices import emulated_pace
from seqmoe.spec.paths import Home
from seqmoe.spec.suite import RANDOM, REPLAY, Cell
from seqmoe.spec.system import SYSTEMS
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.source import digest, load_traces
from seqmoe.traces.split import split
from seqmoe.traces.store import MANIFEST
from seqmoe.traces.summary import column

# How long a predictor is trained that nobody gave: enough to see the whole way, not for the best forecasts.
TRAINING_MINUTES = 12.0


class Replays:
    """Traces and predictors of one sweep; what is read is kept.

    ``location`` is a file of traces, or a folder of such files and stores: the traces that a cell names as its data set
    are those whose name begins so, up to the first dot. ``predictor`` is a file for the cells that need one.
    """

    def __init__(self, home: Home, location: str | None = None, predictor: Path | None = None) -> None:
        self._home = home
        self._given = predictor
        self._location = location
        self._traces: dict[str, TraceSet] = {}
        self._compared: dict[tuple[object, ...], list[Cell]] = {}
        if location is not None and not Path(location).exists():
            raise InputError(f"--traces {location}: no such file or folder")

    def path(self, name: str) -> Path:
        """Where the traces of that name lie; `Unavailable` if they are not on this machine.

        Synthetic ones (`seqmoe.simulate.synthetic`) are drawn when they are first asked for.
        """
        if is_synthetic(name):
            return synthetic_store(self._home, name)
        place = None if self._location is None else Path(self._location)
        found = [] if place is None else [p for p in [place, *_inside(place)] if p.name.split(".")[0] == name]
        if not found:
            raise Unavailable(
                f"the traces {name!r} are not on this machine",
                f"give the folder that has {name}.*, as --traces",
            )
        return found[0]

    def traces(self, name: str) -> TraceSet:
        """The traces of that name."""
        if name not in self._traces:
            self._traces[name] = load_traces(self.path(name))
        return self._traces[name]

    def check(self, cells: Iterable[Cell]) -> None:
        """`InputError` for a given file that holds no traces, or other traces than any of the cells replays."""
        place = Path(self._location or "")
        names = sorted({cell.dataset for cell in cells if cell.routing == REPLAY and not is_synthetic(cell.dataset)})
        if self._location is None or not names or not (place.is_file() or (place / MANIFEST).is_file()):
            return
        own = place.name.split(".")[0]
        try:
            loaded = self.traces(own) if own in names else load_traces(place)
        except InputError as error:
            raise InputError(
                f"--traces {error}; give a file of traces, a store that `seqmoe trace import` has written, or a folder "
                "of them"
            ) from None
        if own not in names:
            raise InputError(
                f"--traces {place}: has traces of {loaded.model}, but the chosen cells replay {' and '.join(names)}; "
                "give traces whose file or store is called so up to the first dot, or the folder that has them"
            )

    def requests(self, cell: Cell) -> tuple[tuple[int, ...], int | None]:
        """Which requests the cell replays, and with which one it warms up, as indices into its traces.

        Only sequences of the test part that are long enough, drawn by the cell's seed. A single sequence is replayed
        from a cold pool, after its own prompt. Raises `InputError` where there are too few.
        """
        traces = self.traces(cell.dataset)
        steps = column(traces.requests, "steps")
        held_out = range(len(steps)) if len(steps) == 1 else _test_part(traces)
        usable = [index for index in held_out if steps[index] > cell.decode_tokens]
        drawn = [int(i) for i in np.random.default_rng(cell.seed).permutation(usable)] if len(steps) > 1 else usable
        wanted = cell.prompts + (len(steps) > 1)
        if len(drawn) < wanted:
            raise InputError(
                f"{wanted} requests of {cell.decode_tokens} tokens, one of them to warm up: "
                f"the traces {cell.dataset!r} have {len(usable)} held-out sequences that long"
            )
        return tuple(drawn[: cell.prompts]), drawn[cell.prompts] if len(steps) > 1 else None

    def options(self, cell: Cell) -> dict[str, Any]:
        """The part of a request that is about the replay; see `seqmoe.runtime.replay_runner.Replay`."""
        hardware = load_hardware(self._home, cell.hardware)
        requests, warm_up = self.requests(cell)
        return {
            "traces": str(self.path(cell.dataset)),
            "requests": list(requests),
            "warm_up": warm_up,
            "expert_bytes": hardware.full_load[hardware.emulates].expert_bytes,
            "pace": asdict(emulated_pace(self._home, cell.hardware)),
            "predictor": self.predictor(cell),
            "trial": [self.predictor(other) for other in self._compared.get(comparison(cell), ())],
        }

    def predictor(self, cell: Cell) -> str | None:
        """The kind that learns as it goes, or the predictor's file; None where the cell names none.

        Raises `Unavailable` for a file that has yet to be made.
        """
        if not cell.predictor or cell.predictor in ONLINE:
            return cell.predictor or None
        path = self._file(cell)
        if not path.is_file():
            raise Unavailable(f"there is no {cell.predictor} predictor for {cell.dataset!r}", "give one as --predictor")
        return str(path)

    def weights(self, cell: Cell) -> dict[str, str | None]:
        """Digests of what decides the cell's result: its traces, and the predictor where the system has one."""
        try:
            model = digest(self.traces(cell.dataset))
            name = self.predictor(cell) if SYSTEMS[cell.system].predictor != "none" else None
        except Unavailable:
            return {"model": None, "predictor": None}
        if cell.weights == RANDOM:  # other numbers than the stand-ins of an emulation on the same traces
            model = f"{RANDOM} {model}"
        return {"model": model, "predictor": name if name is None or name in ONLINE else files_sha256([Path(name)])}

    def prepare(self, cells: Iterable[Cell], say: Callable[[str], None]) -> None:
        """Train the predictors that cells name and nobody gave; hold a given one to what it must not have seen.

        Which predictors run in one comparison is noted too: its factor must serve them all.
        """
        self._compared.clear()
        for cell in cells:
            if cell.routing != REPLAY or not cell.predictor:
                continue
            others = self._compared.setdefault(comparison(cell), [])
            if cell.predictor not in {other.predictor for other in others}:
                others.append(cell)
            if cell.predictor in ONLINE:
                continue
            try:
                traces = self.traces(cell.dataset)
            except Unavailable:
                continue
            train, _ = split(traces, TEST_SHARE)
            path = self._file(cell)
            if self._given is not None:
                _check(self._given, cell, train)
            elif not path.is_file():
                say(f"training a {cell.predictor} predictor for {cell.dataset}, {TRAINING_MINUTES:g} minutes, once")
                path.parent.mkdir(parents=True, exist_ok=True)
                made, record = make_predictor(
                    cell.predictor, train, minutes=TRAINING_MINUTES, validation=VALIDATION, work=path.with_suffix("")
                )
                made.save(path, record)

    def _file(self, cell: Cell) -> Path:
        if self._given is not None:
            return self._given
        name = f"{cell.predictor}-{digest(self.traces(cell.dataset))}-{TRAINING_MINUTES:g}min.safetensors"
        return self._home.predictors / name


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _test_part(traces: TraceSet) -> list[int]:
    requests: Any = split(traces, TEST_SHARE)[1].requests
    return [int(index) for index in requests.indices]


def _check(path: Path, cell: Cell, train: TraceSet) -> None:
    """Refuse a predictor of another kind, or one that was not made from the training part: it may know the answer."""
    about, _ = read_container(path)
    if about["kind"] != cell.predictor:
        raise InputError(f"--predictor {path}: of kind {about['kind']!r}, but the suite wants {cell.predictor!r}")
    if about["training"].get("traces") != digest(train):
        raise InputError(
            f"--predictor {path}: was not made from the training part of {cell.dataset!r}, so that it may "
            f"have seen what is replayed; `seqmoe trace split SRC --test {TEST_SHARE} --out DIR`, and take DIR/train"
        )
