"""Protects the JSON formats: right values from hand-written files, a place in the error from broken ones."""

from __future__ import annotations

import base64
import copy
import io
import json
from pathlib import Path

import numpy as np
import pytest

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, MISSING, PREFILL
from seqmoe.traces.importers import import_traces
from seqmoe.traces.split import split

FIXTURES = Path(__file__).parent / "fixtures"
M = MISSING


def test_fingerprints_are_decode_tokens_behind_their_prompt():
    traces = import_traces(FIXTURES / "fingerprint.json")
    assert (traces.model, traces.layers, traces.experts, traces.top_k) == ("gpt-oss-20b", 2, 7, 3)
    assert traces.router == "softmax_renormalised"
    (request,) = traces.requests
    assert (request.dataset, request.identifier) == ("gpqa_diamond", "gpqa_diamond/7")
    assert (request.prompt_length, request.first_position) == (6, 6)
    assert request.phase.tolist() == [DECODE, DECODE]
    assert request.experts.tolist() == [[[5, 0, 2], [1, 4, 3]], [[0, 5, 6], [4, 1, 0]]]
    assert request.weights[1, 0].tolist() == [0.625, 0.25, 0.125]


def test_fingerprints_of_the_models_own_geometry_have_its_experts(tmp_path):
    layers = {
        f"layer_{i}": {"selected_experts": [3, 1, 0, 2], "selected_probs": [0.4, 0.3, 0.2, 0.1]} for i in range(24)
    }
    example = {"dataset": "d", "row_index": 1, "router_data": [{"token_9": layers}]}
    (tmp_path / "e.json").write_text(json.dumps([example, example | {"row_index": 2}]))
    traces = import_traces(tmp_path / "e.json")
    assert (traces.layers, traces.experts, traces.model_top_k) == (24, 32, 4)
    assert [request.identifier for request in traces.requests] == ["d/1", "d/2"]


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("token_7", "layer_1", "selected_experts"), [4, 1], r"token_7.layer_1.selected_probs: expected 2 weights"),
        (("token_7", "layer_1", "selected_experts"), [4, 1, 4], r"router_data\[1\].token_7.layer_1: expert 4 .* twice"),
        (("token_7", "layer_1", "selected_experts"), [4, 1, -1], r"token_7.layer_1.selected_experts: expert id -1"),
        (("token_7", "layer_1", "selected_experts"), [4, 1, "2"], "expert id '2'"),
        (("token_7", "layer_0", "selected_probs"), [0.6, 0.3, 0.2], r"token_7.layer_0: weights add up to 1.1"),
        (("token_7", "layer_0", "selected_probs"), [1.5, -0.7, 0.2], "weight -0.7.*: expected no negative"),
        (("token_7", "layer_0", "selected_probs"), None, "expected 3 weights"),
        (("token_7", "layer_1"), {"selected_experts": [1, 0], "selected_probs": [0.5, 0.5]}, "2 experts, but 3 before"),
        (("token_7", "layer_1"), 3, "expected an object with selected_experts"),
        (("token_7",), {"depth_1": {}}, "unknown key 'depth_1'; expected layer_"),
        (("token_7",), {}, r"token_7: expected an object with layers"),
        (("token_7",), {"layer_99999": {}}, "layer = 99999|selected_experts"),
    ],
)
def test_broken_fingerprints_name_the_token(tmp_path, where, value, message):
    example = json.loads((FIXTURES / "fingerprint.json").read_text())
    place = example["router_data"][1]
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    (tmp_path / "e.json").write_text(json.dumps(example))
    with pytest.raises(InputError, match=message):
        import_traces(tmp_path / "e.json")


def test_a_token_that_was_cut_short_is_told(tmp_path):
    example = json.loads((FIXTURES / "fingerprint.json").read_text())
    del example["router_data"][1]["token_7"]["layer_1"]
    (tmp_path / "e.json").write_text(json.dumps(example))
    with pytest.raises(InputError, match="token 7, layer 1 is missing, though all others have it"):
        import_traces(tmp_path / "e.json")


@pytest.mark.parametrize("name", ["fingerprint.json", "routed_experts.json"])
def test_a_truncated_document_is_refused_wherever_it_ends(tmp_path, name):
    whole = (FIXTURES / name).read_bytes().rstrip()
    for end in range(len(whole) // 2, len(whole), 37):
        (tmp_path / "cut.json").write_bytes(whole[:end])
        with pytest.raises(InputError, match=r"truncated|not a known trace format"):
            import_traces(tmp_path / "cut.json")


def test_layer_records_are_put_together_by_request():
    traces = import_traces(FIXTURES / "layer_records.jsonl")
    assert (traces.layers, traces.experts, traces.top_k, traces.router) == (2, 5, 2, "unknown")
    first, second = traces.requests
    assert (first.identifier, first.prompt_length, first.first_position) == ("a", 2, 0)
    assert first.phase.tolist() == [PREFILL, PREFILL, DECODE]
    assert first.experts.tolist() == [[[3, 1], [M, M]], [[2, 0], [1, 2]], [[3, 2], [0, 3]]]
    assert first.weights[0].tolist() == [[0.75, 0.25], [0, 0]]
    assert (second.identifier, second.prompt_length, second.first_position) == ("b", 5, 5)


def _records(path, *records):
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n")
    return path


@pytest.mark.parametrize("layer", ["layer", "layer_idx"])
@pytest.mark.parametrize("token", ["token_idx", "step"])
@pytest.mark.parametrize("experts", ["topk_ids", "selected_ids", "experts"])
def test_layer_records_have_several_names(tmp_path, layer, token, experts):
    records = [{token: t, layer: p, experts: [t, p + 2], "unknown": {"x": 1}} for t in range(2) for p in range(2)]
    (request,) = import_traces(_records(tmp_path / "t.jsonl", *records)).requests
    assert request.experts.tolist() == [[[0, 2], [0, 3]], [[1, 2], [1, 3]]]
    assert (request.weights, request.prompt_length, request.identifier) == (None, 0, "")


def test_tokens_without_a_record_are_missing(tmp_path):
    records = [{"step": t, "layer": p, "experts": [0, 1]} for t in (3, 5) for p in range(2)]
    (request,) = import_traces(_records(tmp_path / "t.jsonl", *records)).requests
    assert request.first_position == 3
    assert (request.experts[1] == MISSING).all()
    assert (request.experts[[0, 2]] != MISSING).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topk_ids": [1, 1]}, "line 6: expert 1 appears twice"),
        ({"topk_ids": [1, 2, 3], "weights": [0.5, 0.3, 0.2]}, "line 6: 3 experts, but 2 before"),
        ({"topk_ids": [1, -5]}, "line 6: topk_ids: expert id -5"),
        ({"topk_ids": [1, 40000]}, "line 6: topk_ids: expert id 40000"),
        ({"topk_ids": []}, "line 6: topk_ids: expected a list"),
        ({"topk_ids": None}, "line 6: none of the keys topk_ids, selected_ids, experts"),
        ({"layer": -1}, "line 6: layer = -1"),
        ({"layer": 5000}, "line 6: layer = 5000: expected a number below"),
        ({"layer": 1.5}, "line 6: layer = 1.5"),
        ({"token_idx": 10**9}, "tokens 0 to 1000000000, but only"),
        ({"weights": [0.5, 0.6]}, "line 6: weights add up to 1.1"),
        ({"weights": [float("nan"), 0.6]}, "line 6: weight nan"),
        ({"weights": [0.5]}, "line 6: weights: expected 2 weights"),
        ({"weights": None}, "line 6: no weights, though other records have them"),
        ({"phase": "later"}, "line 6: phase = 'later'"),
        ({"layer": 0}, "line 6: token 2, layer 0 was already at line 5"),
    ],
)
def test_broken_layer_records_name_the_line(tmp_path, change, message):
    records = [json.loads(line) for line in (FIXTURES / "layer_records.jsonl").read_text().splitlines()]
    records[5] |= change
    with pytest.raises(InputError, match=message):
        import_traces(_records(tmp_path / "t.jsonl", *records))


def test_truncated_layer_records_are_refused(tmp_path):
    lines = (FIXTURES / "layer_records.jsonl").read_text()
    (tmp_path / "cut.jsonl").write_text(lines[:-20])
    with pytest.raises(InputError, match=r"line 7: not valid JSON.*truncated"):
        import_traces(tmp_path / "cut.jsonl")
    whole = [{"step": t, "layer": p, "experts": [0, 1]} for t in range(3) for p in range(3)]
    with pytest.raises(InputError, match="token 2, layer 2 is missing"):
        import_traces(_records(tmp_path / "cut.jsonl", *whole[:-1]))
    (tmp_path / "odd.jsonl").write_text(json.dumps(whole[0]) + "\n[1, 2]\n")
    with pytest.raises(InputError, match="line 2: expected an object"):
        import_traces(tmp_path / "odd.jsonl")


def test_routed_experts_of_a_response():
    traces = import_traces(FIXTURES / "routed_experts.json")
    assert (traces.model, traces.layers, traces.experts, traces.top_k) == ("some/moe", 2, 6, 2)
    (request,) = traces.requests
    assert (request.identifier, request.prompt_length, request.first_position) == ("cmpl-1", 3, 0)
    assert request.phase.tolist() == [PREFILL, PREFILL, PREFILL, DECODE]
    assert (request.experts[:, 0] == MISSING).all()  # a dense layer
    assert request.experts[:, 1].tolist() == [[3, 1], [2, 0], [0, 5], [5, 2]]
    assert request.token_ids.tolist() == [11, 12, 13, 14]
    assert request.weights is None


def _response(**changed):
    response = json.loads((FIXTURES / "routed_experts.json").read_text())
    choice = response["choices"][0]
    for key, value in changed.items():
        (choice if key in choice else response)[key] = value
    return response


def _write(path, value):
    path.write_text(json.dumps(value))
    return path


def _base64(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return base64.b64encode(buffer.getvalue()).decode()


def test_routed_experts_in_every_form_are_the_same(tmp_path):
    rows = _response()["choices"][0]["routed_experts"]
    expected = import_traces(FIXTURES / "routed_experts.json").requests[0].experts
    array = np.array(rows, dtype=np.int32)
    flat = {"request_id": "x", "prompt_token_ids": [1, 2, 3], "token_ids": [4, 5], "routed_experts": rows}
    dumped = {
        "request_id": "x",
        "prompt_token_ids": [1, 2, 3],
        "outputs": [{"token_ids": [4, 5], "routed_experts": rows}],
    }
    split = _response(prompt_routed_experts=rows[:3], routed_experts=rows[3:])
    lines = json.dumps(flat) + "\n" + json.dumps(dumped | {"request_id": "y"}) + "\n"
    (tmp_path / "lines.jsonl").write_text(lines)
    for path in (
        _write(tmp_path / "base64.json", _response(routed_experts=_base64(array))),
        _write(tmp_path / "flat.json", flat),
        _write(tmp_path / "dumped.json", dumped),
        _write(tmp_path / "split.json", split),
        _write(tmp_path / "list.json", [flat, dumped | {"request_id": "y"}]),
        tmp_path / "lines.jsonl",
    ):
        traces = import_traces(path)
        for request in traces.requests:
            assert np.array_equal(request.experts, expected), path
            assert (request.prompt_length, request.decode_steps) == (3, 1), path
        assert [r.identifier for r in traces.requests][1:] == (["y"] if path.stem in ("list", "lines") else [])
    np.save(tmp_path / "one.npy", array)
    np.savez(tmp_path / "many.npz", r10=array[:2], r9=array)
    (alone,) = import_traces(tmp_path / "one.npy").requests
    assert np.array_equal(alone.experts, expected)
    assert (alone.prompt_length, alone.decode_steps) == (0, 4)  # an array does not tell its prompt
    assert [r.identifier for r in import_traces(tmp_path / "many.npz").requests] == ["r9", "r10"]


def test_a_cached_or_omitted_prefix_is_missing_not_zero(tmp_path):
    rows = _response()["choices"][0]["routed_experts"]
    cached = _response(prompt_routed_experts=[[[-1, -1], [-1, -1]], *rows[1:3]], routed_experts=rows[3:])
    (request,) = import_traces(_write(tmp_path / "c.json", cached)).requests
    assert (request.experts[0] == MISSING).all()
    (request,) = import_traces(_write(tmp_path / "o.json", _response(routed_experts=rows[2:]))).requests
    assert (request.first_position, request.prompt_length) == (2, 3)
    assert request.phase.tolist() == [PREFILL, DECODE]
    assert request.token_ids.tolist() == [13, 14]


def test_several_choices_are_several_requests(tmp_path):
    response = _response()
    response["choices"].append(copy.deepcopy(response["choices"][0]))
    traces = import_traces(_write(tmp_path / "n.json", response))
    assert [request.identifier for request in traces.requests] == ["cmpl-1#0", "cmpl-1#1"]
    # Answers to one prompt must not fall on both sides of a split.
    assert {request.group for request in traces.requests} == {"cmpl-1"}
    with pytest.raises(InputError, match="of one prompt cannot be split"):
        split(traces, 0.5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[[0, 1]], [[1, 1]], [[0, 1]], [[0, 1]]], "token 1, layer 0: expert 1 appears twice"),
        ([[[0, 1]], [[1]], [[0, 1]], [[0, 1]]], "token 1, layer 0: 1 experts, but 2 before"),
        ([[[0, 1]], [[1, 2], [1, 2]], [[0, 1]], [[0, 1]]], "token 1: expected a list of 1 layers"),
        ([[[0, 1]], [[1, -3]], [[0, 1]], [[0, 1]]], "token 1, layer 0: expert id -3"),
        ([[[0, 1]], [[1, 99999]], [[0, 1]], [[0, 1]]], "token 1, layer 0: expert id 99999"),
        ([[[0, 1]]] * 6, "6 rows for 3 prompt and 2 generated tokens"),
        ([], "expected whole numbers"),
        ({"a": 1}, "expected nested lists or a base64 string"),
        ("AAAA", "not base64 of a .npy file"),
        ("%%%", "not base64 of a .npy file"),
        (_base64(np.zeros((2, 2))), "expected whole numbers"),
        (_base64(np.ones((2, 2, 2), dtype=int))[:-40], "not base64 of a .npy file.*truncated"),
    ],
)
def test_broken_routed_experts_name_the_token(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        import_traces(_write(tmp_path / "r.json", _response(routed_experts=rows)))


def test_other_broken_responses(tmp_path):
    with pytest.raises(InputError, match="no request has routed experts"):
        import_traces(_write(tmp_path / "r.json", _response(routed_experts=None)))
    with pytest.raises(InputError, match="breaks the format"):
        import_traces(_write(tmp_path / "r.json", _response() | {"prompt_token_ids": [11, 12, 2**40]}))
    mixed = [_response(), _response(routed_experts=[[[0, 1, 2]]] * 4)]
    with pytest.raises(InputError, match=r"record 1.*\[1, 3\], but \[2, 2\] before"):
        import_traces(_write(tmp_path / "r.json", mixed))
    np.save(tmp_path / "r.npy", np.full((2, 3, 2), [0, 7], dtype=np.int16))
    whole = (tmp_path / "r.npy").read_bytes()
    (tmp_path / "r.npy").write_bytes(whole[:-3])
    with pytest.raises(InputError, match="truncated"):
        import_traces(tmp_path / "r.npy")


def test_json_of_something_else_is_not_known(tmp_path):
    for text in ('{"a": 1}', "[]", "{", '{"layer": 1}\n{"layer": 2}\n', ""):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(InputError, match="not a known trace format"):
            import_traces(tmp_path / "x.json")
