"""Records survive the way to a JSON line and back, and nothing that is not a whole record passes for one."""

from __future__ import annotations

import dataclasses
import json

import pytest
from harness_samples import cell, record
from hypothesis import given
from hypothesis import strategies as st

from seqmoe.harness.record import (
    SCHEMA,
    Observations,
    PromptObservation,
    Record,
    Status,
    from_json,
    to_json,
)
from seqmoe.spec.errors import InputError

stats = st.dictionaries(
    st.text(max_size=8),
    st.one_of(
        st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.fixed_dictionaries({"missing": st.text()})
    ),
    max_size=4,
)


@given(
    times=st.lists(st.integers(0, 2**62), min_size=4, max_size=4).map(sorted),
    tokens=st.lists(st.one_of(st.none(), st.integers(0, 2**31 - 1)), min_size=3, max_size=3),
    stats=stats,
    seconds=st.floats(0, 1e6),
)
def test_a_record_comes_back_from_its_line_unchanged(times, tokens, stats, seconds) -> None:
    prompt = PromptObservation(times[0], tuple(times[1:]), tuple(tokens))
    point = cell(prompts=1, decode_tokens=3)
    before = Record(SCHEMA, point, point.key, 2, Status("ok"), Observations((prompt,), stats), {"a": [1]}, "t", seconds)
    line = to_json(before)
    assert "\n" not in line
    assert from_json(line, "x") == before


@pytest.mark.parametrize("path", [(), ("cell",), ("status",), ("observations",), ("observations", "prompts", 0)])
def test_an_unknown_field_is_refused_wherever_it_is(path) -> None:
    table = json.loads(to_json(record()))
    inner = table
    for step in path:
        inner = inner[step]
    inner["surprise"] = 1
    with pytest.raises(InputError, match=r"file:7.*unknown key 'surprise'"):
        from_json(json.dumps(table), "file:7")


@pytest.mark.parametrize("key", ["cell", "cell_key", "repeat", "status", "observations", "environment", "seconds"])
def test_a_missing_field_is_refused(key) -> None:
    table = json.loads(to_json(record()))
    del table[key]
    with pytest.raises(InputError, match=f"'{key}' is missing"):
        from_json(json.dumps(table), "file:1")


def test_a_newer_schema_is_refused_and_says_to_upgrade() -> None:
    table = json.loads(to_json(record())) | {"schema": SCHEMA + 1, "field_of_the_future": 0}
    with pytest.raises(InputError, match="upgrade seqmoe"):
        from_json(json.dumps(table), "file:1")


@pytest.mark.parametrize("schema", [0, "1", None])
def test_another_schema_is_refused(schema) -> None:
    with pytest.raises(InputError, match="schema"):
        from_json(json.dumps(json.loads(to_json(record())) | {"schema": schema}), "file:1")


@pytest.mark.parametrize("line", ["{", "[1]", "3", '{"schema":1'])
def test_what_is_not_an_object_is_refused_with_its_place(line) -> None:
    with pytest.raises(InputError, match="file:3"):
        from_json(line, "file:3")


@pytest.mark.parametrize(
    ("key", "value"), [("repeat", "0"), ("repeat", True), ("seconds", "1"), ("status", "ok"), ("repeat", -1)]
)
def test_a_value_of_the_wrong_kind_is_refused(key, value) -> None:
    with pytest.raises(InputError, match=key):
        from_json(json.dumps(json.loads(to_json(record())) | {key: value}), "file:1")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("cell", "lane"), "emulate", "lane = 'emulate'; did you mean 'emulated'"),
        (("cell", "residency"), float("nan"), "residency = nan"),
        (("cell", "residency"), 1e999, "residency = inf"),
        (("cell", "batch"), 0, "batch = 0"),
        (("cell", "residency"), 0.5, "cell_key = .*the cell's own is"),
        (("cell_key",), "0123456789ab", "cell_key = '0123456789ab'"),
        (("environment", "load_average"), "high", "load_average = 'high'"),
        (("environment", "load_average"), None, "load_average = None"),
        (("environment", "weights"), "gone", "weights = 'gone'"),
        (("observations", "prompts", 0, "tokens", 0), 2**40, "tokens"),
        (("seconds",), float("nan"), "seconds = nan"),
        (("observations", "prompts", 0, "token_ns", 3), 2**70, "time stamps"),
    ],
)
def test_a_line_edited_by_hand_is_refused_with_its_place(path, value, words) -> None:
    table = json.loads(to_json(record(environment={"load_average": 0.5})))
    inner = table
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(InputError, match=f"^file:7: .*{words}"):
        from_json(json.dumps(table), "file:7")


def test_ok_means_every_token_of_every_prompt() -> None:
    good = record(prompts=2, decode_tokens=4)
    first, second = good.observations.prompts
    short = dataclasses.replace(second, token_ns=second.token_ns[:3], tokens=second.tokens[:3])
    with pytest.raises(ValueError, match="prompt 1 emitted 3 tokens where 4"):
        dataclasses.replace(good, observations=Observations((first, short)))
    with pytest.raises(ValueError, match="1 of 2 prompts"):
        dataclasses.replace(good, observations=Observations((first,)))


def test_time_does_not_run_backwards_and_every_token_has_its_time() -> None:
    with pytest.raises(ValueError, match="backwards"):
        PromptObservation(5, (6, 4), (1, 2))
    with pytest.raises(ValueError, match="backwards"):
        PromptObservation(5, (4,), (1,))
    with pytest.raises(ValueError, match="time stamps"):
        PromptObservation(5, (6,), (1, 2))


def test_a_failure_needs_a_known_kind_and_a_reason() -> None:
    with pytest.raises(ValueError, match="did you mean 'crash'"):
        Status("crashed", "x")
    with pytest.raises(ValueError, match="needs a reason"):
        Status("oom")
    assert str(Status("hang", "after 3 s")) == "hang(after 3 s)"


def test_infinities_do_not_reach_the_file() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json(record(environment={"unknown": float("inf")}))
