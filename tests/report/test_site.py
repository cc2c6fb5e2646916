"""Protects the site: it refers to nothing but its own files, every page leads to every other, headings are in order."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pandas as pd
import pytest
from html_reader import Page
from report_samples import HOME, cell, record

from seqmoe.report.site.table import Cell, Row, Table, plain
from seqmoe.report.writer import write_report

CODEC = "data:,"


@pytest.fixture(scope="module")
def folder(site) -> Path:
    return site


@pytest.fixture(scope="module")
def pages(folder) -> dict[str, Page]:
    return {path.name: Page(path.read_text(encoding="utf-8")) for path in folder.glob("*.html")}


def test_there_is_a_page_for_every_figure_table_and_record_set(pages):
    assert {f"figure{n}.html" for n in (1, 2, 3, 4, 6, 7, 8, 9)} <= set(pages)
    assert {"index.html", "verdicts.html", "comparison.html", "records.html", "fullload.html"} <= set(pages)
    assert {"table1.html", "table2.html"} <= set(pages)
    assert {"records-cpu-example-2c-fig4.html", "records-cpu-example-2c-fig6.html"} <= set(pages)


def test_every_page_is_well_formed_with_unique_ids_and_refers_to_what_is_there(folder, pages):
    for name, page in pages.items():
        assert page.wrong == [] and page.open == [], name
        assert [one for one, count in page.ids.items() if count > 1] == [], name
        for link in page.links - {CODEC}:
            if link.startswith("#"):
                assert link[1:] in page.ids, f"{name}: {link}"
            else:
                assert (folder / link).is_file(), f"{name}: {link}"
        text = (folder / name).read_text(encoding="utf-8")
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(page.ids), name
        assert not re.search(r"url\((?!#)", text) and "@import" not in text, name
        assert not re.search(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]+"', "", text)), name


def test_every_page_leads_to_the_others_and_every_page_and_file_is_led_to(folder, pages):
    led = set().union(*(page.links for page in pages.values()))
    assert {path.name for path in folder.iterdir()} - led == set()
    for name, page in pages.items():
        assert {"index.html", "verdicts.html", "records.html", "figure6.html", "table2.html"} <= page.links, name
        current = [value for _, attribute, value in page.attributes if attribute == "aria-current"]
        assert len(current) == (0 if name.startswith("records-") else 1), name


def test_headings_are_in_order_and_pictures_and_tables_have_names(pages):
    for name, page in pages.items():
        levels = [int(tag[1]) for tag in page.order if re.fullmatch(r"h[1-6]", tag)]
        assert levels[0] == 1 and levels.count(1) == 1, name
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), (name, levels)
        assert page.tags["caption"] == page.tags["table"], name
        assert page.tags["img"] == sum(1 for tag, attribute, value in page.attributes
                                       if tag == "img" and attribute == "alt" and value), name  # fmt: skip
        assert page.tags["main"] == 1 and "lang" in {
            attribute for tag, attribute, _ in page.attributes if tag == "html"
        }


def test_the_history_of_benchmarks_is_drawn_machine_by_machine(folder, pages):
    data = pd.read_csv(folder / "history.csv")
    assert len(data) == 6 and set(data["machine"]) == {"a small machine", "a large one"}
    page = pages["history.html"]
    assert page.tags["svg"] == 3 and "200 µs" in page.text and "aaaaaaa" in page.text


def test_only_the_pictures_that_were_asked_for_are_png(folder):
    assert [path.name for path in folder.glob("*.png")] == ["figure6.png"]
    assert {path.stem for path in folder.glob("figure*.svg")} == {path.stem for path in folder.glob("figure*.csv")}


def test_a_picture_of_no_figure_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"--png figure66: no figure of this report; did you mean .figure6"):
        write_report([record(cell())], HOME, tmp_path, png=["figure66"])


def test_systems_stand_beside_each_other_with_the_verdict_of_the_contract(folder, pages):
    data = pd.read_csv(folder / "comparison.csv")
    modes = data[data["work"].str.startswith("fig4")]
    assert len(modes) == 1
    row = modes.iloc[0]
    assert (row["a"], row["b"], row["verdict"]) == ("FullLoad, eager", "FullLoad, graph", "faster")
    assert row["ratio"] == pytest.approx(903.5 / 103.5, rel=1e-3) and row["p_value"] < 0.01
    assert set(data.loc[data["work"].str.startswith("fig6"), "verdict"]) == {"too few repeats"}
    assert (data["ratio"] >= 1).all() and "simulated" not in set(data["lane"])


def test_the_first_page_counts_the_verdicts_and_shows_the_newest_figures_first(pages):
    text = pages["index.html"].text
    assert re.search(r"The verdicts on \d+ claims", text) and "not reproduced" in text
    assert "figure6.svg" in pages["index.html"].links and "figure4.svg" in pages["index.html"].links


def test_table_1_is_shown_once_it_was_counted(tmp_path):
    (tmp_path / "table1.csv").write_text(
        "model,family,format,layers,experts,top_k,routed,total,unquantised,printed_moe_parameters,"
        "printed_total_parameters,printed_active_experts,printed_experts,agrees\n"
        "Small,tiny,fp8,2,8,2,1500000000,2000000000,1,2,2,2,8,False\n"
    )
    write_report([], HOME, tmp_path)
    page = Page((tmp_path / "table1.html").read_text(encoding="utf-8"))
    assert "1.50B" in page.text and "Not counted yet" not in page.text and "table1.csv" in page.links


def test_a_table_holds_as_many_cells_as_headings_and_sorts_texts_by_their_numbers():
    with pytest.raises(ValueError, match="1 cells under 2 headings"):
        Table("t", "", ("A", "B"), (Row((Cell("x"),)),))
    table = plain(
        "t", "", ("Name", "Value"), [("a", "1,234.5 [1, 2]"), ("b", "84.6%"), ("c", "-"), ("d", "unsupported")]
    )
    assert [row.cells[1].sorting for row in table.rows] == ["1234.5", "84.6", "", "unsupported"]
    assert Cell("", float("nan")).sorting == ""
