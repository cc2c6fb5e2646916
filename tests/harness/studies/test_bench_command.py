"""`seqmoe bench` on a study: wrong input is one line and exit code 2 before anything runs."""

from __future__ import annotations

import json
from functools import partial

import pytest
from study_samples import write_study


@pytest.fixture
def bench(home, monkeypatch, seqmoe):
    """Run `seqmoe bench ...` where the study `small` is declared; returns exit code, stdout, stderr."""
    write_study(home)
    (home.work / "pyproject.toml").write_text("")
    monkeypatch.chdir(home.work)
    return partial(seqmoe, "bench")


def test_a_dry_run_lists_the_cells_and_starts_nothing(home, bench) -> None:
    code, out, _ = bench("small", "--dry-run", "--json")
    counts = json.loads(out.splitlines()[-1])
    assert (code, counts["cells"], counts["to_run"], counts["written"]) == (0, 6, 6, 0)
    assert "mamba2 (Psi off) on routing-0, 0.01 min, ablation" in out and not home.results.exists()


def test_a_cell_is_computed_by_a_process_of_its_own(bench) -> None:
    code, out, err = bench("small", "--only", "popularity", "--json")
    assert (code, json.loads(out.splitlines()[-1])["written"]) == (0, 1)
    assert "popularity on routing-0: ok, recall 0." in err
    assert json.loads(bench("small", "--only", "popularity", "--json")[1].splitlines()[-1])["written"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("small", "--traces", "absent.npz"), "traces 'absent.npz': no such file or folder"),
        (("small", "--traces", ""), "traces '': no such file or folder"),
        (("small", "--seed", "-1"), "'--seed'"),
        (("small", "--only", "predictor=mamab2"), "did you mean 'mamba2'?"),
        (("small", "--repeat", "3"), "--repeat 3"),
        (("demo", "--traces", "x"), "--traces x: no such file or folder"),
        (("smal",), "did you mean 'small'?"),
    ],
)
def test_wrong_input_is_one_line(home, bench, arguments, words) -> None:
    code, out, err = bench(*arguments)
    assert code == 2 and words in err and len(err.strip().splitlines()) == 1 and out == ""
    assert not home.results.exists()
