"""Protects figure 6's page: what ran and what did not, safe against what records contain, replaced as a whole."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from html_reader import Page
from report_samples import HOME, NEEDS_GPU, NOT_INSTALLED, cell, quick_sweep, record

from seqmoe.harness.record import Status
from seqmoe.report import writer
from seqmoe.report.environments import environments
from seqmoe.report.figure6 import Figure6
from seqmoe.report.frame import records_frame
from seqmoe.report.paper import figure6_bars
from seqmoe.report.parts import part6_simulated
from seqmoe.report.section6 import section6
from seqmoe.report.site.document import Document, render
from seqmoe.report.site.record_pages import record_page
from seqmoe.report.site.record_sets import record_sets
from seqmoe.report.summary import summarise
from seqmoe.report.writer import Report, write_report
from seqmoe.spec.answer import tokens_sha256
from seqmoe.spec.paths import Home


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Report:
    return write_report(quick_sweep(2), HOME, tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="module")
def text(report) -> str:
    return report.figures["6"].page.read_text(encoding="utf-8")


def page_of(records) -> str:
    """The page alone, without the sheet and the data file, and the pages of its records below it."""
    summary = summarise(records_frame(records, HOME))
    section = section6(Figure6(summary, figure6_bars(HOME), HOME), summary, HOME)
    pages = [Document("figure6.html", section.title, section.label, section.body)]
    pages += [record_page(one) for one in record_sets(records)]
    return "".join(render(pages).values())


def test_the_page_says_what_ran_what_did_not_and_how_to_run_it(text):
    words = Page(text).text
    assert re.search(r"\d+ of \d+ cells ran", words) and "The paper prints 84.8% for Qwen3-30B-A3B-FP8" in words
    assert NEEDS_GPU.reason in words and NOT_INSTALLED.hint in words
    assert "nox -s reproduce-fig6" in words and "the one named" in words
    for lane in ("measured", "emulated", "paper"):
        assert f" {lane} " in words


def test_pictures_take_the_pages_colours_so_that_dark_mode_reaches_them(text):
    pictures = re.findall(r"<svg viewBox=\"0 0 [^>]*role=\"img\".*?</svg>", text, re.DOTALL)
    assert len(pictures) == 2
    for picture in pictures:
        assert "var(--ink)" in picture and "#1b2026" not in picture and "#ffffff" not in picture
    assert "prefers-color-scheme: dark" in text


def test_what_a_record_says_is_text_and_never_markup():
    evil = '<script>alert("x")</script><b>'
    records = [
        record(cell(system=evil), status=Status("crash", evil, f"`{evil}`")),
        record(cell(), stats={"hit_rate": {"missing": evil}}, cpu={"model": evil}),
    ]
    page = page_of(records)
    assert "<script>alert" not in page and Page(page).wrong == []


def test_without_records_a_page_says_so_and_the_simulated_one_shows_the_paper():
    page = page_of([])
    assert "Nothing was run yet" in page and 'role="img"' not in page
    printed = str(part6_simulated([], HOME).section.body)
    assert "Nothing was simulated yet" in printed and printed.count('role="img"') == 16
    assert Page(page).wrong == []


def test_records_of_another_suite_are_not_in_this_page(tmp_path):
    report = write_report([record(cell(suite="fig7"))], HOME, tmp_path)
    assert report.table.rows == () and "Nothing was run yet" in report.page_of("6").read_text(encoding="utf-8")


def test_the_data_file_holds_every_drawn_number(report):
    table = pd.read_csv(report.figures["6"].csv)
    assert (table["lane"] == "paper").sum() == 288 and (table["lane"] != "paper").sum() == 37
    assert table.loc[table["lane"] == "emulated", "share"].notna().all()


def test_the_data_file_has_gaps_bytes_and_hashes(tmp_path):
    stats = {"bytes_on_demand": 20e6, "bytes_late": 4e6, "per_assignment_hit_rate": 0.25}
    report = write_report([record(cell(system="lru", residency=0.25), 50.0, stats=stats)], HOME, tmp_path)
    row = pd.read_csv(report.figures["6"].csv).iloc[0]
    assert row["itl_p50_s"] == pytest.approx(0.02) and row["itl_p95_s"] == pytest.approx(0.02)
    assert (row["bytes_on_demand"], row["bytes_late"]) == (1e6, 2e5) and row["assignment_hit_rate"] == 0.25
    assert row["tokens_sha256"] == tokens_sha256([*range(100, 111)] * 2) and row["device"] == "cpu"


def test_earlier_weights_are_counted_and_never_in_a_median(tmp_path):
    old = [record(cell(), 10.0, repeat, weights={"model": "old", "predictor": None}) for repeat in range(3)]
    new = [record(cell(), speed, repeat) for repeat, speed in enumerate((40.0, 60.0))]
    report = write_report([*old, *new], HOME, tmp_path)
    assert pd.read_csv(report.figures["6"].csv).iloc[0]["tok_s"] == pytest.approx(50.0, rel=1e-6)
    remark = "3 older records are left out: made with earlier weights of reference"
    assert remark in report.table.remarks and remark in report.page_of("6").read_text(encoding="utf-8")


def test_notes_stand_below_the_system_and_need_no_column():
    failed = [record(cell(), 40.0), record(cell(), repeat=1, status=Status("crash", "a long last word " * 20))]
    page = page_of(failed)
    start = page.index('<table class="sortable" id="cells">')
    table = page[start : page.index("</table>", start)]
    assert ">Note<" not in table
    first = re.search(r'<td [^>]*class="wraps">.*?</td>', table, re.DOTALL)[0]
    assert "1 of 2 repeats gave no result" in first and "<small>" in first
    assert re.search(r"td\.wraps \{[^}]*white-space: normal[^}]*max-width", page)
    rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    assert {len(re.findall("<t[hd][ >]", row)) for row in rows} == {8}


def test_all_files_are_written_and_nothing_is_left_over(report):
    folder = report.page.parent
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".html") == [
        "comparison.csv", "figure6-simulated.csv", "figure6-simulated.png", "figure6-simulated.svg", "figure6.csv",
        "figure6.png", "figure6.svg", "verdicts.csv",
    ]  # fmt: skip
    assert (
        report.figures["6"].png.read_bytes().startswith(b"\x89PNG")
        and "<svg" in report.figures["6"].svg.read_text()[:600]
    )


@pytest.mark.parametrize("broken", ["page", "sheet"])
def test_a_report_that_fails_leaves_the_last_one_alone(tmp_path, monkeypatch, broken):
    old = {name: f"old {name}" for name in ("figure6.csv", "figure6.png", "figure6.svg", "index.html")}
    for name, content in old.items():
        (tmp_path / name).write_text(content, encoding="utf-8")

    def failing(_, file, **__) -> None:
        Path(file).write_bytes(b"half")
        raise OSError("disk full")

    def refusing(*_) -> str:
        raise RuntimeError("template")

    if broken == "page":
        monkeypatch.setattr(writer, "build_site", refusing)
    monkeypatch.setattr(Figure6, "figure", lambda self: type("Sheet", (), {"savefig": failing})())
    with pytest.raises((OSError, RuntimeError)):
        write_report([], HOME, tmp_path)
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == old


def test_a_damaged_transcription_is_an_error_that_names_the_file(tmp_path):
    home = Home(tmp_path, tmp_path, "clone")
    with pytest.raises(ValueError, match=r"fig6\.csv: no such file"):
        write_report([], home, tmp_path / "out", "fig6")
    home.paper.mkdir(parents=True)
    (home.paper / "fig6.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"fig6\.csv: columns a, b; expected figure"):
        write_report([], home, tmp_path / "out", "fig6")


def test_environments_are_listed_once_with_nested_values_flattened():
    gpus = [{"name": "A", "memory": "8"}]
    records = [record(cell(), load_average=0.5), record(cell(), repeat=1, load_average=1.25)]
    records.append(record(cell(), host="other", gpus=gpus))
    found = environments(records)
    assert sorted((entry.host, entry.records) for entry in found) == [("cpu-example-2c", 2), ("other", 1)]
    assert ("load average", "0.5 to 1.25 while these were recorded") in next(e for e in found if e.records == 2).lines
    lines = dict(next(entry for entry in found if entry.host == "other").lines)
    assert lines["device"] == "cpu" and lines["weights of reference"] == "5ca1ab1e5ca1"
    assert (
        lines["gpus 0 name"] == "A" and lines["cpu instruction sets"] == "avx2, avx512f" and lines["git dirty"] == "no"
    )


def test_the_sample_home_is_the_clone_under_test():
    assert Path(HOME.declarations, "suites", "fig6.toml").is_file()
