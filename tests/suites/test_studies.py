"""The studies of suites/ hold what the figures need, and name what predictors and trainings have."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from seqmoe.predictor import kinds
from seqmoe.predictor.training import TrainingOptions
from seqmoe.spec.paths import find_home
from seqmoe.spec.prediction import PREDICTORS, TRAINED, Options, load_prediction_suite

HOME = find_home(Path(__file__).parent)
# A start, reading, evaluating: what a cell takes beyond its budget on two cores.
BEYOND = 20.0


def cells(name, profile="quick", traces=None):
    return load_prediction_suite(HOME.suites / f"{name}.toml").cells(profile, traces=traces)


def test_the_names_are_those_of_the_predictors_room() -> None:
    assert PREDICTORS == kinds.KINDS and TRAINED == kinds.TRAINED
    own = {field.name for field in dataclasses.fields(Options)}
    assert own <= {field.name for field in dataclasses.fields(TrainingOptions)}


@pytest.mark.parametrize("profile", ["quick", "full"])
@pytest.mark.parametrize("name", ["fig2", "fig8"])
def test_every_cell_can_be_trained(name, profile) -> None:
    for cell in cells(name, profile):
        if cell.trained:
            TrainingOptions(kind=cell.predictor, minutes=cell.minutes, **dataclasses.asdict(cell.options))


def test_figure_8_quick_has_every_predictor_and_every_ablation_within_ten_minutes_on_two_cores() -> None:
    found = cells("fig8")
    assert {cell.predictor for cell in found if cell.panel == "predictors"} == set(PREDICTORS)
    options = [cell.options for cell in found if cell.panel == "ablation"]
    base = Options()
    assert options[0] == base and len(set(options)) == len(options)
    changed = {f.name for o in options for f in dataclasses.fields(o) if getattr(o, f.name) != getattr(base, f.name)}
    assert changed == {"psi", "scheduled_sampling", "loss", "ranges", "hidden", "use_head", "direct"}
    assert sum(60 * cell.minutes + BEYOND for cell in found) / 2 < 600


def test_given_traces_have_budgets_of_their_own() -> None:
    found = {cell.predictor: cell.minutes for cell in cells("fig8", traces="x") if cell.panel == "predictors"}
    assert found["mamba2"] == found["transformer"] == 12.0 and found["previous"] == 0.0
    assert sum(60 * cell.minutes + BEYOND for cell in cells("fig8", traces="x")) / 2 < 25 * 60
    assert [cell.minutes for cell in cells("fig2", traces="x")] == [8.0, 8.0]


def test_figure_2_sets_ordered_against_shuffled_and_nothing_else_apart() -> None:
    ordered, shuffled = cells("fig2")
    assert ordered.options == Options() and shuffled.options == Options(ordered=False)
    assert (ordered.predictor, ordered.minutes) == (shuffled.predictor, shuffled.minutes) == ("transformer", 2.0)
