"""Protects simulated cells: they run without a worker, in virtual time, and can never be taken for measured ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness_samples import cell

from seqmoe.harness import metrics
from seqmoe.harness.executors.base import Outcome
from seqmoe.harness.plan import Run
from seqmoe.harness.record import SCHEMA, Observations, Record, Status
from seqmoe.harness.simulated import SimulatedExecutor, check_simulated, observations_of, obstacle
from seqmoe.simulate.timeline.cell import Simulated
from seqmoe.simulate.timeline.decode import StepTime
from seqmoe.simulate.timeline.hits import StepCounts
from seqmoe.spec.errors import InputError
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home
from seqmoe.spec.suite import Cell, load_suite

HOME = find_home(Path(__file__).parent)
MODEL = "qwen3-30b-a3b-fp8"


def simulated(**changes) -> Cell:
    known = {"lane": "simulated", "hardware": "rtx4090", "model": MODEL, "dataset": "synthetic routing", "prompts": 4}
    return cell(**known | {"system": "seqmoe", "residency": 0.45, "batch": 2, "decode_tokens": 576} | changes)


def test_virtual_time_stamps_give_the_simulated_figures_back() -> None:
    point = simulated()
    time = StepTime(0.008, 0.0004, 0.0002, 0.0014, 0.0, 0.0)
    found = Simulated(2, time, StepCounts(700.0, 665.0, 30.0, 5.0, 40.0, 10.0), 1.5, 0.75)
    observations = observations_of(found, point, load_model(HOME, MODEL))
    done = Record(SCHEMA, point, point.key, 0, Status("ok"), observations, {}, "2026-01-01T00:00:00Z", 0.1)
    assert metrics.decode_tok_s(done) == pytest.approx(2 / 0.01, rel=1e-6)
    assert metrics.ttft_s(done) == pytest.approx(0.75)
    assert metrics.hit_rate(done) == pytest.approx(0.95)
    assert metrics.bytes_per_output_token(done, "on_demand") == pytest.approx(30 * 4_718_592 / 2)
    assert metrics.bytes_per_output_token(done, "prefetched") == pytest.approx(40 * 4_718_592 / 2)
    assert done.observations.stats["routing"] == "synthetic routing"
    assert isinstance(metrics.tokens_sha256(done), metrics.Missing)


class Others:
    """An executor that says which runs it was given."""

    def __init__(self) -> None:
        self.ran: list[Run] = []

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        self.ended = True

    def execute(self, runs):
        for run in runs:
            self.ran.append(run)
            yield run, Outcome(Status("ok"), Observations(), "2026-01-01T00:00:00.000+00:00", 0.0)


def test_only_simulated_runs_are_computed_here_and_their_order_is_kept() -> None:
    others = Others()
    runs = [Run(cell(), 0, "a"), Run(simulated(system="llama.cpp", batch=1), 0, "b"), Run(cell(), 1, "a")]
    with SimulatedExecutor(HOME, others) as executor:
        done = list(executor.execute(runs))
    assert [run for run, _ in done] == runs and others.ran == [runs[0], runs[2]] and others.ended
    assert done[1][1].status.ok and len(done[1][1].observations.prompts) == 4


def test_crosses_of_the_paper_are_unsupported() -> None:
    assert obstacle(HOME, simulated()) is None
    for system, model in (("FreeToken", MODEL), ("KTransformers", "gpt-oss-120b-mxfp4"),
                          ("MoE-Infinity", "deepseek-v4-flash")):  # fmt: skip
        status = obstacle(HOME, simulated(system=system, model=model))
        assert status is not None and status.kind == "unsupported"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "mixed"}, "synthetic routing"),
        ({"prompts": 3}, "multiple of batch"),
        ({"system": "vLLM"}, "cannot be simulated"),
        ({"model": "reference"}, r"no \[decoding\]"),
        ({"residency": 0.001}, "slots cannot hold"),
    ],
)
def test_what_cannot_be_simulated_is_refused_before_anything_runs(changes, message: str) -> None:
    check_simulated(HOME, "s", [simulated()])
    with pytest.raises(InputError, match=message):
        check_simulated(HOME, "s", [simulated(**changes)])


def test_the_suite_has_a_cell_for_every_bar_and_cross_of_figure_6() -> None:
    from seqmoe.spec.printed import figure6_bars

    cells = load_suite(HOME.suites / "fig6.toml").cells("simulated")
    check_simulated(HOME, "fig6", cells)
    assert all(point.lane == "simulated" for point in cells)
    names = {"FullLoad": "full", "SeqMoE": "seqmoe"}
    have = {(p.panel, load_model(HOME, p.model).title, p.system, p.batch if p.panel == "batch" else p.residency)
            for p in cells}  # fmt: skip
    for bar in figure6_bars(HOME):
        x = 1.0 if bar.system == "FullLoad" else bar.x
        assert (bar.panel, bar.model, names.get(bar.system, bar.system), x) in have, bar


def test_what_a_cell_changes_of_its_machine_and_predictor_changes_its_result() -> None:
    small = {"model": "gpt-oss-120b-mxfp4", "batch": 1, "residency": 0.3, "prompts": 1}
    cells = [simulated(what_if=text, **small) for text in ("", "link=200", "recall=0.7")]
    with SimulatedExecutor(HOME, Others()) as executor:
        done = [outcome.observations.stats for _, outcome in executor.execute([Run(one, 0, "a") for one in cells])]
    plain, fast, blind = done
    assert fast["overlap_ratio"] == pytest.approx(8 * plain["overlap_ratio"])
    assert fast["breakdown"]["stall"] < plain["breakdown"]["stall"] < blind["breakdown"]["stall"]
    assert blind["hit_rate"] < plain["hit_rate"]
