"""The how-to of docs/baselines.md is enough: its baseline, added from a temporary folder, is run and drawn."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pandas as pd
from harness_samples import SUITE, write_home

from seqmoe.harness.environments import install
from seqmoe.harness.metrics import decode_tok_s
from seqmoe.harness.runner import run_suite
from seqmoe.report.writer import write_report
from seqmoe.spec.baseline import load_baselines
from seqmoe.spec.paths import find_home

ROOT = Path(__file__).parents[2]
PARROT = SUITE.replace('"lru", "seqmoe", "full"', '"Parrot"').replace("[0.25, 0.5]", "[0.5, 1.0]")


def code_of_the_how_to() -> dict[str, str]:
    """The code blocks of the document, by language."""
    text = (ROOT / "docs" / "baselines.md").read_text(encoding="utf-8")
    return dict(re.findall(r"```(toml|python)\n(.*?)```", text, re.DOTALL))


def test_a_new_baseline_is_three_files_and_stands_in_the_report(tmp_path) -> None:
    home = write_home(tmp_path / "home", PARROT.replace('name = "demo"', 'name = "fullload"'))
    (home.suites / "demo.toml").rename(home.suites / "fullload.toml")
    shutil.copytree(ROOT / "baselines" / "_shared", home.baselines / "_shared")
    folder, code = home.baselines / "parrot", code_of_the_how_to()
    folder.mkdir()
    (folder / "baseline.toml").write_text(code["toml"], encoding="utf-8")
    (folder / "worker.py").write_text(code["python"], encoding="utf-8")
    (folder / "requirements.txt").write_text("# nothing\n", encoding="utf-8")
    before = run_suite(home, "fullload")
    assert [record.status.kind for record in before.records] == ["unsupported", "not_installed"]
    assert [record.status.hint for record in before.records if record.status.hint] == ["nox -s baseline-parrot"]

    install(load_baselines(home.baselines)["parrot"], home)
    result = run_suite(home, "fullload")
    ran = [record for record in result.records if record.status.ok]
    assert len(ran) == 2 and all(decode_tok_s(record) > 0 for record in ran)
    # the data set's prompts are a letter three times, and Parrot says them again
    assert [prompt.tokens for prompt in ran[0].observations.prompts] == [(97,) * 4, (98,) * 4]
    assert ran[0].observations.stats["threads"] == 1 and ran[0].observations.stats["numa"]["cpus"]

    report = write_report(result.records, find_home(ROOT), tmp_path / "reports", "fullload")
    rows = pd.read_csv(report.figures["fullload"].csv).set_index("system")
    assert rows.loc["Parrot", "repeats"].max() == 2 and rows.loc["Parrot", "tok_s"].max() > 0
    page = report.page_of("fullload").read_text(encoding="utf-8")
    assert ">Parrot<" in page and "Parrot: " in page
