"""Every system is given the same prompts, and a damaged prompt file says where it is damaged."""

from __future__ import annotations

import importlib.util
import json

import pytest

from seqmoe.harness.prompts import Unavailable, load_prompts, read_prompt_file
from seqmoe.spec.errors import InputError


def test_the_first_prompts_in_order_and_others_for_another_seed(home) -> None:
    assert load_prompts(home, "few", 3) == ["aaa", "bbb", "ccc"]
    shuffled = load_prompts(home, "few", 6, seed=5)
    assert shuffled == load_prompts(home, "few", 6, seed=5) != load_prompts(home, "few", 6)
    assert sorted(shuffled) == load_prompts(home, "few", 6)
    assert load_prompts(home, "few", 2, seed=5) == shuffled[:2]


def test_a_file_of_ones_own_holds_texts_or_messages(home, tmp_path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{"text": "one"}, {"messages": [{"role": "user", "content": "two"}, {"role": "user", "content": "x"}]}]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    assert load_prompts(home, str(path), 2) == ["one", "two"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": "x"', "not JSON"),
        ('["x"]', "expected a JSON object"),
        ('{"prompt": "x"}', "has no text or messages"),
        ('{"text": 3}', "text = 3"),
        ('{"text": ""}', "text = ''"),
        ('{"messages": []}', "has no text"),
    ],
)
def test_a_bad_line_is_named_with_file_and_line(tmp_path, line, words) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(InputError, match=r"p\.jsonl:2: ") as caught:
        read_prompt_file(path)
    assert words in str(caught.value)


def test_a_file_that_is_not_there_empty_or_not_text_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_prompt_file(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="holds no prompts"):
        read_prompt_file(tmp_path / "empty.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        read_prompt_file(tmp_path / "binary.jsonl")


def test_more_prompts_than_there_are_is_refused_with_the_number(home) -> None:
    with pytest.raises(InputError, match=r"prompts = 7: it holds only 6"):
        load_prompts(home, "few", 7)


def test_an_unknown_set_names_the_nearest(home) -> None:
    with pytest.raises(InputError, match="did you mean 'few'"):
        load_prompts(home, "fev", 1)


def test_a_set_of_the_hub_needs_its_package(home, monkeypatch) -> None:
    text = (
        (home.suites / "datasets" / "few.toml").read_text().replace('file = "few.jsonl"', 'hub_id = "a/b"\nsplit = "x"')
    )
    (home.suites / "datasets" / "few.toml").write_text(text)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable) as caught:
        load_prompts(home, "few", 1)
    assert "pip install" in caught.value.hint
