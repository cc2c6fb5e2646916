"""Table 1 is generated from Transformers' classes, and says where it is not what the paper prints."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seqmoe.adapters.parameters import ParameterCounts, count_parameters
from seqmoe.cli import app
from seqmoe.report.table1 import Row, frame, rows_of
from seqmoe.spec.errors import InputError
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home

HOME = find_home(Path(__file__).parent)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return rows_of(HOME)


def test_the_generated_table_is_the_printed_one(rows: list[Row]) -> None:
    assert len(rows) == 4 and [row.differences for row in rows] == [[]] * 4
    assert [row.cells["parameters (MoE / total)"][0] for row in rows] == [
        "29B / 31B", "32B / 35B", "115B / 117B", "277B / 284B",
    ]  # fmt: skip
    assert list(frame(rows)["agrees"]) == [True] * 4


def test_declared_sizes_follow_from_the_counts(rows: list[Row]) -> None:
    bytes_of = {"fp8": 1.0, "bf16": 2.0, "mxfp4": 4.25 / 8}
    for row in rows:
        total = row.model.geometry.total_experts * row.model.expert_bytes
        # Biases are in bf16 where the experts have them: 0.1 % of GPT-OSS.
        assert total == pytest.approx(row.counts.routed * bytes_of[row.model.format], rel=2e-3)
    qwen3, qwen36, gpt_oss, deepseek = rows
    assert qwen3.model.non_expert_bytes == qwen3.counts.fp8_other_bytes
    for row in (qwen36, gpt_oss):
        assert row.model.non_expert_bytes == 2 * row.counts.others
    assert deepseek.model.non_expert_bytes == pytest.approx(deepseek.counts.fp8_other_bytes, rel=0.01)


def test_a_small_model_is_counted_right() -> None:
    changes = {"num_hidden_layers": 2, "hidden_size": 8, "num_experts": 4, "num_experts_per_tok": 2,
               "moe_intermediate_size": 3, "vocab_size": 10, "num_attention_heads": 2, "num_key_value_heads": 1,
               "head_dim": 4}  # fmt: skip
    found = count_parameters("qwen3_moe", changes)
    routed = 2 * 4 * 3 * 8 * 3
    attention = 2 * (8 * 8 + 2 * 8 * 4 + 8 * 8)
    vectors = 2 * (2 * 8 + 2 * 4) + 8
    kept = 2 * 10 * 8 + 2 * 8 * 4 + vectors
    assert found == ParameterCounts(2, 4, 2, routed, routed + attention + kept, kept)
    assert found.fp8_other_bytes == attention + 2 * kept


def test_an_unknown_key_of_a_configuration_is_named() -> None:
    with pytest.raises(InputError, match="no 'num_layrs'"):
        count_parameters("qwen3_moe", {"num_layrs": 2})


def test_another_print_or_another_declaration_is_a_difference(rows: list[Row]) -> None:
    first = rows[0]
    printed = dataclasses.replace(first.printed, total_parameters=32)
    assert dataclasses.replace(first, printed=printed).differences == [
        "parameters (MoE / total): 29B / 31B, printed 29B / 32B"
    ]
    counts = dataclasses.replace(first.counts, layers=24)
    assert "layers = 48, the class has 24" in dataclasses.replace(first, counts=counts).differences[0]


def test_a_configuration_needs_a_source() -> None:
    model = load_model(HOME, "qwen3-30b-a3b-fp8")
    sources = {name: text for name, text in model.sources.items() if name != "configuration"}
    with pytest.raises(ValueError, match="configuration has no source"):
        dataclasses.replace(model, sources=sources)


def test_the_command_writes_data_and_fails_where_the_print_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Row]
) -> None:
    from seqmoe.report import table1

    def command(found: list[Row]) -> Any:
        monkeypatch.setattr(table1, "rows_of", lambda home: found)
        return CliRunner().invoke(app, ["table1", "--json", "--out", str(tmp_path)])

    good = command(rows)
    assert good.exit_code == 0 and json.loads(good.stdout.splitlines()[-1])["differences"] == []
    assert (tmp_path / "table1.csv").read_text().startswith("model,family,format,layers,experts,top_k,routed,total")
    printed = dataclasses.replace(rows[0].printed, experts=64)
    assert command([dataclasses.replace(rows[0], printed=printed)]).exit_code == 1
