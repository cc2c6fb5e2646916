"""The four lanes of this project: which of them this machine has, and what each missing one needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqmoe.core.driver import Gpus, NoGpu
from seqmoe.harness.doctor.suites import Need
from seqmoe.harness.gpu.needs import first_usable, missing_packages
from seqmoe.harness.models import checkpoint_folder
from seqmoe.harness.overview import Overview
from seqmoe.spec.errors import InputError
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home

CPU_LANE, EMULATED, SIMULATED, GPU_LANE = LANES = ("measured CPU", "emulated", "simulated", "measured GPU")


@dataclass(frozen=True, slots=True)
class LaneState:
    """One lane: whether this machine has it, what it gives here, and what would give more."""

    name: str
    ready: bool
    gives: str
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, slots=True)
class BaselineState:
    """A baseline and its overview; ``runs`` says whether a cell of it could be started here."""

    key: str
    session: str
    runs: bool
    overview: Overview


def lane_states(home: Home, gpus: Gpus | NoGpu, baselines: Sequence[BaselineState]) -> list[LaneState]:
    """All four, in the order of `LANES`."""
    missing = _reference_missing(home)
    running = [baseline.overview.name for baseline in baselines if baseline.runs]
    own = "our runtime on the reference model" + (f", beside {', '.join(running)}" if running else "")
    return [
        LaneState(
            CPU_LANE,
            missing is None,
            own if missing is None else "",
            (*_needed(missing), *_installable(baselines)),
        ),
        LaneState(
            EMULATED,
            missing is None,
            "our runtime in dilated time at a GPU's pace, shown as a share of full load" if missing is None else "",
            _needed(missing),
        ),
        LaneState(SIMULATED, True, "every system of the paper on every GPU of suites/hardware, in virtual time"),
        _gpu_lane(gpus, running),
    ]


def _gpu_lane(gpus: Gpus | NoGpu, running: Sequence[str]) -> LaneState:
    if isinstance(gpus, NoGpu):
        return LaneState(
            GPU_LANE,
            False,
            "",
            (
                Need(gpus.reason, "", 0),
                Need("an NVIDIA GPU with its driver; then this command says what fits it", "seqmoe doctor", 0),
                Need("the paper's cells on that GPU", "seqmoe bench fig6 --profile full --device cuda", 0),
            ),
        )
    usable = first_usable(gpus)
    given = [] if isinstance(usable, str) else ["our own systems, by `seqmoe bench SUITE --device cuda`"]
    given += [f"wrapped systems that are installed: {', '.join(running)}"] if running else []
    needs: tuple[Need, ...] = ()
    if isinstance(usable, str):
        command = "pip install --force-reinstall torch 'seqmoe[cuda]'" if usable == missing_packages() else ""
        needs = (Need(f"our own systems: {usable}", command, 0),)
    return LaneState(GPU_LANE, bool(given), "; ".join(given), needs)


def _reference_missing(home: Home) -> Need | None:
    try:
        checkpoint_folder(load_model(home, "reference"))
    except InputError as error:
        return Need(str(error), "seqmoe reference train", 0)
    return None


def _needed(need: Need | None) -> tuple[Need, ...]:
    return () if need is None else (need,)


def _installable(baselines: Sequence[BaselineState]) -> tuple[Need, ...]:
    """The baselines that could run here and are not installed."""
    return tuple(
        Need(f"{baseline.overview.name} is not installed", f"nox -s {baseline.session}", 0)
        for baseline in baselines
        if baseline.overview.state.startswith("not installed")
    )
