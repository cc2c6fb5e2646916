"""Protects the short table: every cell is in it, failures stand together with their reason, nothing is cut short."""

from __future__ import annotations

import io

import pytest
from report_samples import ENVIRONMENT, HOME, NEEDS_GPU, cell, quick_sweep, record
from rich.console import Console

from seqmoe.report.frame import records_frame
from seqmoe.report.summary import summarise
from seqmoe.report.table import ShortTable, short_table
from seqmoe.spec.answer import tokens_sha256


def table_of(records) -> ShortTable:
    return short_table(summarise(records_frame(records, HOME)))


def texts(table: ShortTable) -> list[dict[str, str]]:
    return [
        dict(zip(table.headings, (entry.text for entry in row.entries), strict=True)) for row in table.rows
    ]  # fmt: skip


def printed(table: ShortTable, width: int = 80) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table.rich())
    return stream.getvalue()


@pytest.fixture(scope="module")
def quick() -> ShortTable:
    return table_of(quick_sweep())


def test_columns_are_those_that_the_main_command_promises(quick):
    promised = ("System", "Lane", "Residency", "tok/s", "Share of full load", "Hit rate", "Same answer")
    assert quick.headings == ("System", "Workload", *promised[1:], "Link, per token", "Note")


def test_values_carry_their_interval_and_unit():
    points = [record(cell(), speed, repeat) for repeat, speed in enumerate((40.0, 50.0, 60.0))]
    points += [record(cell(system="lru", residency=0.25), 20.0, repeat, stats={"hit_rate": 0.5}) for repeat in range(3)]
    table = table_of(points)
    lru, full = texts(table)
    assert lru["tok/s"] == "20.0" and lru["Share of full load"] == "40.0% [33.3, 50.0]"
    assert lru["Hit rate"] == "50.0%" and lru["Same answer"] == "yes"
    assert full["tok/s"] == "50.0 [40.0, 60.0]" and full["Share of full load"] == "100%"
    assert full["Hit rate"] == "missing" and full["Note"] == ""
    assert table.remarks == ("no hit rate (FullLoad): the system does not report hit_rate",)


def test_bytes_over_the_link_stand_beside_the_hit_rate():
    moved = {"bytes_on_demand": 22e6, "bytes_prefetched": 11e6, "bytes_wasted": 5.5e6}
    point = cell(system="lru", residency=0.25, prompts=2, decode_tokens=11)
    (row,) = texts(table_of([record(point, stats=moved)]))
    # 33 MB over 2 * 10 tokens: the first of each prompt is prefill's
    assert row["Link, per token"] == "1.65 MB, 275 kB in vain"


def test_cells_that_failed_alike_are_one_row_with_their_span(quick):
    rows = [row for row in texts(quick) if row["Note"] == "unsupported"]
    assert [row["System"] for row in rows] == ["llama.cpp", "KTransformers", "MoE-Infinity", "FreeToken", "vLLM"]
    assert {row["Residency"] for row in rows} == {"15-45%"}
    assert any(NEEDS_GPU.reason in reason and NEEDS_GPU.hint in reason for reason in quick.reasons)


def test_lanes_stay_together_in_the_order_of_the_records(quick):
    lanes = [row["Lane"] for row in texts(quick)]
    assert lanes == sorted(lanes, key=lanes.index) and lanes[0] == "emulated, rtx4090"


def test_a_terminal_of_80_columns_shows_every_value_whole(quick):
    text = printed(quick)
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    for row in texts(quick):
        assert row["tok/s"] in text and row["Residency"] in text


def test_sort_keys_are_numbers_where_the_column_has_numbers(quick):
    for row in quick.rows:
        for number, entry in zip(quick.numeric, row.entries, strict=True):
            assert isinstance(entry.key, float) == number


def test_several_workloads_are_named_and_never_in_one_terminal_table():
    records = [record(cell()), record(cell(decode_tokens=12)), record(cell(), host="another-host")]
    table = table_of(records)
    assert [row["Workload"] for row in texts(table)] == [
        f"{ENVIRONMENT['host']}, 11 tokens", f"{ENVIRONMENT['host']}, 12 tokens", "another-host, 11 tokens",
    ]  # fmt: skip
    assert printed(table).count("Residency") == 3


def test_no_records_give_an_empty_table():
    assert table_of([]).rows == () and printed(table_of([])).strip() == ""


def test_a_row_of_the_cpu_on_a_host_with_a_gpu_says_so_everywhere():
    records = [record(cell()), record(cell(system="vLLM"), 900.0, device="cuda")]
    table = table_of(records)
    assert [(row["System"], row["Lane"]) for row in texts(table)] == [
        ("vLLM", "measured, GPU"), ("FullLoad", "measured, CPU"),
    ]  # fmt: skip
    assert "measured, CPU" in printed(table) and "measured, GPU" in printed(table)
    # a share of another device's full load would say nothing
    assert [row["Share of full load"] for row in texts(table)] == ["", "100%"]
    assert texts(table_of([record(cell())]))[0]["Lane"] == "measured, CPU"


def test_the_hash_of_the_tokens_stands_below_the_answer():
    same = [record(cell(), repeat=repeat) for repeat in range(2)]
    below = [entry.below for entry in table_of(same).rows[0].entries]
    assert tokens_sha256([*range(100, 111)] * 2)[:8] in below
    torn = [record(cell(system="llama.cpp"), repeat=repeat, tokens=[repeat] * 11) for repeat in range(2)]
    assert not any(entry.below for entry in table_of(torn).rows[0].entries)
