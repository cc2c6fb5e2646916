"""Full load beside other systems: values, agreement and words are those of the records."""

from __future__ import annotations

import pytest
from report_samples import HOME, cell, record

from seqmoe.harness.record import Status
from seqmoe.report import style
from seqmoe.report.fullload import FullLoad
from seqmoe.report.parts import part_fullload
from seqmoe.report.writer import write_report
from seqmoe.spec.suite import load_suite

SPEEDS = {"FullLoad, sync": 40.0, "FullLoad, graph": 200.0, "llama.cpp": 300.0, "Transformers": 20.0}
TIMED = {"computation": 0.6, "predictor": 0.0, "management": 0.3, "stall": 0.0, "other": 0.1}


def point(title, **changes):
    system, _, mode = title.partition(", ")
    named = {"system": "full" if system == "FullLoad" else system, "execution": mode}
    return cell(suite="fullload", panel="full-load", **named, **changes)


def records(repeats=8, **changes):
    found = []
    for repeat in range(repeats):
        for title, speed in SPEEDS.items():
            stats = {"threads": 1, "version": f"{title} 1"}
            if title.startswith("FullLoad"):
                stats |= {f"{part}_seconds": value for part, value in TIMED.items()} | {"timed_steps": 20}
            one = point(title, **changes)
            found.append(record(one, speed * (1 + 0.001 * repeat), repeat, stats=stats, ttft_s=1 / speed))
    return found


def test_rows_are_medians_and_intervals_of_the_repeats() -> None:
    (group,) = FullLoad(records()).groups
    row = next(row for row in group.rows if row.title == "llama.cpp")
    speed, first = row.summary("tok_s"), row.summary("ttft_s")
    assert speed.median == pytest.approx(301.05, rel=1e-6) and speed.low < speed.median < speed.high
    assert (speed.count, row.threads, row.version) == (8, "1", "llama.cpp 1")
    assert first.median == pytest.approx(1 / 300, rel=1e-6)
    assert row.shares == {} and group.ours.shares == pytest.approx(TIMED)


def test_words_give_the_factor_and_where_the_time_goes() -> None:
    against, goes = FullLoad(records()).sentences()
    assert against.startswith("FullLoad, graph is behind llama.cpp by a factor of 1.50")
    assert "the same 1 thread: 4.98 ms a step against 3.32 ms" in against
    assert "computation 60%, management 30%, other 10%" in goes and "(sync) a step takes 24.91 ms" in goes


def test_a_lead_is_called_one_and_few_repeats_are_named() -> None:
    few = [r for r in records(2) if r.cell.system != "llama.cpp"] + [
        record(point("llama.cpp"), 100.0, repeat, stats={"threads": 2}) for repeat in range(2)
    ]
    (against, _) = FullLoad(few).sentences()
    assert "is ahead of llama.cpp by a factor of 2.00" in against and "2 threads, ours on 1" in against
    assert "not enough to call one faster: 2 repeats" in against
    assert len(FullLoad([r for r in few if r.cell.system != "llama.cpp"]).sentences()) == 1


def test_tokens_are_held_to_our_own_full_load_and_the_worst_repeat_counts() -> None:
    said = [*range(100, 108), 7, 7, 7]
    given = [r for r in records(2) if r.cell.system == "full"]
    given += [record(point("llama.cpp"), repeat=0), record(point("llama.cpp"), repeat=1, tokens=said)]
    given += [record(point("vLLM")), record(point("FreeToken"), tokens=[None] * 11)]
    (group,) = FullLoad(given).groups
    assert {row.title: row.agreement for row in group.rows} == {
        "FullLoad, sync": "itself", "FullLoad, graph": "all tokens", "llama.cpp": "0% of prompts, 73% of tokens",
        "vLLM": "all tokens", "FreeToken": "the system does not tell its token ids",
    }  # fmt: skip
    (alone,) = FullLoad([record(point("vLLM"))]).groups
    assert alone.rows[0].agreement == "full load was not run"


def test_what_did_not_run_has_its_reason_in_picture_table_and_data() -> None:
    status = Status("not_installed", "no environment here", "nox -s baseline-vllm")
    part = part_fullload([*records(2), record(point("vLLM"), status=status)], HOME)
    assert "no environment here" in part.section.body
    row = part.data().set_index("system").loc["vLLM"]
    assert row["repeats"] == 0 and row["reason"] == "not_installed(no environment here)"


def test_other_work_is_another_group() -> None:
    part = part_fullload([*records(2), *records(2, decode_tokens=7)], HOME)
    assert len(part.data()) == 8 and part.data()["work"].nunique() == 2
    assert part.section.body.count('role="img"') == 4 and "7 tokens each" in part.section.body
    with style.theme():
        assert len(part.sheet().axes) == 4


def test_it_has_a_section_and_files_of_its_own_name(tmp_path) -> None:
    report = write_report(records(2), HOME, tmp_path)
    assert report.figures["fullload"].csv.name == "fullload.csv" and (tmp_path / "fullload.svg").is_file()
    page = report.page_of("fullload").read_text(encoding="utf-8")
    assert '<p class="eyebrow">Full load</p>' in page and 'href="fullload.csv"' in page
    empty = write_report([], HOME, tmp_path / "empty")
    assert (
        "nox -s reproduce-fullload" in empty.page_of("fullload").read_text(encoding="utf-8")
        and "fullload" not in empty.figures
    )


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_the_suite_sets_every_system_to_the_same_work(profile) -> None:
    cells = load_suite(HOME.suites / "fullload.toml").cells(profile)
    names = {(one.system, one.execution) for one in cells}
    others = {(name, "") for name in ("Transformers", "llama.cpp", "llama.cpp (bf16)", "vLLM")}
    assert names >= others | {("full", "sync"), ("full", "graph")}
    assert len({(one.model, one.dataset, one.prompts, one.decode_tokens, one.residency) for one in cells}) == 1
