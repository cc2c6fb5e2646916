"""Protects the reading of foreign traces: right values from right files, a clear error from broken ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, MISSING, PREFILL
from seqmoe.traces.importers import import_traces

FIXTURES = Path(__file__).parent / "fixtures"
HEADER = (FIXTURES / "route_trace.csv").read_text().splitlines()[:4]
# Of the first turn: two prefill tokens, layer by layer, the first without the last layer; one decode token.
ROWS = (FIXTURES / "route_trace.csv").read_text().splitlines()[4:14]


def _write(path, rows):
    path.write_text("\n".join([*HEADER, *rows]) + "\n")
    return path


def test_route_trace_is_put_in_token_order():
    traces = import_traces(FIXTURES / "route_trace.csv")
    assert (traces.model, traces.layers, traces.experts, traces.top_k) == ("tiny", 2, 4, 2)
    assert (traces.expert_bytes, traces.router, traces.model_top_k) == (10, "softmax_renormalised", 0)
    request, second = traces.requests
    assert request.phase.tolist() == [PREFILL, PREFILL, DECODE]
    assert request.experts.tolist() == [[[3, 1], [MISSING, MISSING]], [[2, 0], [1, 2]], [[3, 2], [0, 3]]]
    assert request.weights is not None
    assert request.weights[1, 1].tolist() == pytest.approx([0.9, 0.1])
    assert (request.prompt_length, request.first_position, request.identifier) == (2, 0, "turn-0")
    assert (second.prompt_length, second.identifier) == (0, "turn-1")
    assert second.experts.tolist() == [[[1, 2], [3, 1]]]


def test_an_unknown_architecture_is_held_to_its_own_weights(tmp_path):
    text = (FIXTURES / "route_trace.csv").read_text().replace("arch=qwen3moe", "arch=new")
    (tmp_path / "t.csv").write_text(text)
    assert import_traces(tmp_path / "t.csv").router == "unknown"
    (tmp_path / "t.csv").write_text(text.replace("0,0,1,0,1,0,0.3", "0,0,1,0,1,0,0.2"))
    with pytest.raises(InputError, match=r"line 8: turn 0, step 1, layer 0: weights add up to 0.9"):
        import_traces(tmp_path / "t.csv")
    lines = [line.split(",") for line in text.splitlines()]
    halved = [
        ",".join([*row[:6], str(float(row[6]) / 2), *row[7:]]) if row[0] in "01" else ",".join(row) for row in lines
    ]
    (tmp_path / "t.csv").write_text("\n".join(halved))
    assert import_traces(tmp_path / "t.csv").requests[0].weights.sum(-1).max() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS[:-1], "0,1,2,1,1"], "line 14: expected 9 numbers"),
        ([*ROWS, "0,1,3,0,0,4,0.5,0,10"], "line 15: layer 0, rank 0, expert 4 exceed"),
        (
            [*ROWS, "0,1,3,0,0,1,0.5,0,10", "0,1,3,0,1,1,0.5,0,10"],
            "line 16: turn 0, step 3, layer 0: expert 1 appears twice",
        ),
        ([*ROWS, "0,1,3,0,0,1,0.5,0,10"], "step 3, layer 0: fewer experts"),
        ([*ROWS, "0,7,3,0,0,1,0.5,0,10"], "line 15: phase = 7"),
        ([*ROWS, "0,1,-3,0,0,1,0.5,0,10"], "line 15: turn = 0, step = -3"),
        ([*ROWS, "0,1,3,0,0,1,nan,0,10", "0,1,3,0,1,2,0.5,0,10"], "line 16: .*weight nan: expected a finite"),
        ([*ROWS, "0,0,2,0,0,1,0.5,0,10"], "line 15: step 2 is both prefill and decode"),
        ([*ROWS, "0,1,4,0,0,1,0.5,0,10", "0,1,4,0,1,2,0.5,0,10"], "turn 0: no rows for step 3, but for step 4"),
        ([*ROWS, ROWS[-1]], "line 15: step 2, layer 1, rank 1 was already in line 14"),
        ([*ROWS[:-1], "0,1,2,1,1,3,0.3,1,0"], "line 14: turn 0, step 2, layer 1: weights add up to 0.8"),
        (ROWS[:-2], "turn 0, step 2: layer 1 is missing"),
        ([*ROWS[:2], *ROWS[4:]], "turn 0, step 1: layer 0 is missing, but later ones are there"),
    ],
)
def test_broken_route_trace_names_the_line(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        import_traces(_write(tmp_path / "t.csv", rows))


META = [{"dataset": "a", "row": 5, "tokens": 2, "prompt_tokens": 11}, {"dataset": "b"}]


def _npz(path, **changed):
    experts = np.array([[[0, 5], [1, 2]], [[3, 4], [5, 0]], [[2, 1], [4, 3]]], dtype=np.uint8)
    arrays = {
        "experts": experts,
        "weights_u8": np.full_like(experts, 127),
        "lengths": np.array([2, 1], dtype=np.int32),
        "meta": np.frombuffer(json.dumps(META).encode(), dtype=np.uint8),
    }
    np.savez(path, **(arrays | changed))
    return path


def test_a_header_of_no_model_is_refused_before_memory_is_asked_for(tmp_path):
    text = (FIXTURES / "route_trace.csv").read_text()
    for old, new in (("n_layer=2", "n_layer=2000000000"), ("n_expert_used=2", "n_expert_used=2000000000")):
        (tmp_path / "t.csv").write_text(text.replace(old, new))
        with pytest.raises(InputError, match=r"line 2: .*not a geometry"):
            import_traces(tmp_path / "t.csv")


def test_npz_is_cut_into_requests(tmp_path):
    traces = import_traces(_npz(tmp_path / "t.npz"))
    assert (traces.layers, traces.experts, traces.top_k) == (2, 6, 2)
    assert [request.dataset for request in traces.requests] == ["a", "b"]
    assert [request.identifier for request in traces.requests] == ["a/5", ""]
    assert [request.prompt_length for request in traces.requests] == [11, 0]
    assert [request.first_position for request in traces.requests] == [11, 0]
    assert (traces.router, traces.licence) == ("softmax_renormalised", "")
    assert [request.decode_steps for request in traces.requests] == [2, 1]
    assert traces.requests[1].experts.tolist() == [[[2, 1], [4, 3]]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lengths": np.array([2, 2], dtype=np.int32)}, "lengths add up to 4"),
        ({"experts": np.zeros((3, 2, 2), dtype=np.uint8)}, "token 0, layer 0: expert 0 appears twice"),
        ({"weights_u8": np.zeros((3, 2), dtype=np.uint8)}, "must both be"),
        ({"weights_u8": np.full((3, 2, 2), 130, dtype=np.uint8)}, "token 0, layer 0: weights add up to 1.0196"),
        ({"experts": np.zeros((0, 2, 2), dtype=np.uint8)}, "must both be"),
        ({"meta": np.frombuffer(b"{", dtype=np.uint8)}, "not a complete trace archive"),
        ({"meta": np.frombuffer(b"[{}]", dtype=np.uint8)}, "expected a list of 2 descriptions"),
        ({"meta": np.frombuffer(b"[{}, 3]", dtype=np.uint8)}, r"meta\[1\]: expected an object"),
        ({"meta": np.frombuffer(b'[{}, {"prompt_tokens": -1}]', dtype=np.uint8)}, r"meta\[1\]: prompt_tokens = -1"),
        ({"meta": np.frombuffer(b'[{}, {"prompt_tokens": 4294967296}]', dtype=np.uint8)}, "prompt_length = 4294967296"),
        ({"meta": np.frombuffer(b'[{}, {"dataset": "\\ud800"}]', dtype=np.uint8)}, "surrogates not allowed"),
        ({"experts": np.array([[[0, 1.5]] * 2] * 3)}, "must be whole numbers"),
        ({"experts": np.array([[[0, 65537]] * 2] * 3)}, "experts from 0 to 65537"),
        ({"lengths": np.array(3)}, "must be whole numbers, lengths one for each request"),
    ],
)
def test_broken_npz_says_what_is_wrong(tmp_path, changed, message):
    with pytest.raises(InputError, match=message):
        import_traces(_npz(tmp_path / "t.npz", **changed))


def test_truncated_npz_and_unknown_formats_are_refused(tmp_path):
    whole = _npz(tmp_path / "t.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "other.txt").write_text("hello")
    with pytest.raises(InputError, match="not a complete trace archive"):
        import_traces(tmp_path / "cut.npz")
    with pytest.raises(InputError, match="not a known trace format"):
        import_traces(tmp_path / "other.txt")
    (tmp_path / "head.csv").write_text("# route_trace v1")
    (tmp_path / "bytes.csv").write_bytes(b"# route_trace v1\n\xff\xfe\n")
    with pytest.raises(InputError, match="line 2: expected n_layer="):
        import_traces(tmp_path / "head.csv")
    with pytest.raises(InputError, match="not a text file"):
        import_traces(tmp_path / "bytes.csv")
    with pytest.raises(InputError, match="no such trace file"):
        import_traces(tmp_path / "absent.csv")


def test_damage_that_only_the_libraries_notice_names_the_file(tmp_path):
    np.savez_compressed(tmp_path / "whole.npz", x=np.arange(2000).reshape(-1, 4, 2))
    np.save(tmp_path / "whole.npy", np.zeros((3, 4, 2), dtype=np.int32))
    packed, plain = (tmp_path / "whole.npz").read_bytes(), (tmp_path / "whole.npy").read_bytes()
    damaged = {
        "bytes.npz": packed[:60] + b"\xff" * 200 + packed[260:],  # zlib's error
        "header.npy": plain.replace(b"}", b"("),  # the tokenizer's
        "deep.json": b"[" * 100_000,  # the recursion's
    }
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=rf"{name}: "):
            import_traces(tmp_path / name)


def test_real_files_have_their_documented_shape(real_data):
    qwen = import_traces(real_data / "traces" / "qwen3-30b-a3b.route.csv")
    assert (qwen.layers, qwen.experts, qwen.top_k) == (48, 128, 6)
    (request,) = qwen.requests
    assert (request.decode_steps, len(request.phase)) == (128, 156)
    assert (request.experts[:27, 47] == MISSING).all()
    assert (request.experts[:27, :47] != MISSING).all()
    assert (request.prompt_length, request.first_position, qwen.router) == (28, 0, "softmax_renormalised")
    gpt = import_traces(real_data / "traces" / "gpt-oss-20b.npz")
    assert (gpt.layers, gpt.experts, gpt.top_k, gpt.model_top_k) == (24, 32, 4, 4)
    assert (len(gpt.requests), sum(len(request.experts) for request in gpt.requests)) == (393, 132_660)
    assert len({request.identifier for request in gpt.requests}) == 393
    assert all(request.prompt_length > 0 for request in gpt.requests)
