"""Protects the reading of foreign traces: right values from right files, a clear error from broken ones."""

from __future__ import annotations

import json

import numpy as np
import pytest

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, MISSING, PREFILL
from seqmoe.traces.importers import import_traces

HEADER = [
    "# route_trace v1",
    "# model=some/tiny.gguf arch=qwen3moe n_layer=2 n_expert=4 n_expert_used=2",
    "# layer=0 expert_bytes=10 dense_bytes=10",
    "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes",
]
# Two prefill tokens, layer by layer, the first without the last layer; one decode token.
ROWS = [
    "0,0,0,0,0,3,0.6,0,10", "0,0,0,0,1,1,0.4,0,10", "0,0,1,0,0,2,0.7,0,10", "0,0,1,0,1,0,0.3,0,10",
    "0,0,1,1,0,1,0.9,0,10", "0,0,1,1,1,2,0.1,0,10",
    "0,1,2,0,0,3,0.5,1,0", "0,1,2,0,1,2,0.5,1,0", "0,1,2,1,0,0,0.5,1,0", "0,1,2,1,1,3,0.5,1,0",
]  # fmt: skip


def _write(path, rows):
    path.write_text("\n".join([*HEADER, *rows]) + "\n")
    return path


def test_route_trace_is_put_in_token_order(tmp_path):
    traces = import_traces(_write(tmp_path / "t.csv", ROWS))
    assert (traces.model, traces.layers, traces.experts, traces.top_k) == ("tiny", 2, 4, 2)
    assert traces.expert_bytes == 10
    (request,) = traces.requests
    assert request.phase.tolist() == [PREFILL, PREFILL, DECODE]
    assert request.experts.tolist() == [[[3, 1], [MISSING, MISSING]], [[2, 0], [1, 2]], [[3, 2], [0, 3]]]
    assert request.weights is not None
    assert request.weights[1, 1].tolist() == pytest.approx([0.9, 0.1])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS[:-1], "0,1,2,1,1"], "line 14: expected 9 numbers"),
        ([*ROWS, "0,1,3,0,0,4,0.5,0,10"], "line 15: layer 0, rank 0, expert 4 exceed"),
        ([*ROWS, "0,1,3,0,0,1,0.5,0,10", "0,1,3,0,1,1,0.5,0,10"], "line 16: turn 0, step 3, layer 0: expert 1 appears twice"),
        ([*ROWS, "0,1,3,0,0,1,0.5,0,10"], "step 3, layer 0: fewer experts"),
        ([*ROWS, "0,7,3,0,0,1,0.5,0,10"], "line 15: phase = 7"),
        ([*ROWS, "0,1,-3,0,0,1,0.5,0,10"], "line 15: turn = 0, step = -3"),
        ([*ROWS, "0,1,3,0,0,1,nan,0,10", "0,1,3,0,1,2,0.5,0,10"], "line 16: .*weight nan: expected a finite"),
        ([*ROWS, "0,0,2,0,0,1,0.5,0,10"], "line 15: step 2 is both prefill and decode"),
        (ROWS[:-2], "turn 0, step 2: layer 1 is missing"),
        ([*ROWS[:2], *ROWS[4:]], "turn 0, step 1: layer 0 is missing, but later ones are there"),
    ],
)
def test_broken_route_trace_names_the_line(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        import_traces(_write(tmp_path / "t.csv", rows))


def _npz(path, **changed):
    experts = np.array([[[0, 5], [1, 2]], [[3, 4], [5, 0]], [[2, 1], [4, 3]]], dtype=np.uint8)
    arrays = {
        "experts": experts,
        "weights_u8": np.full_like(experts, 127),
        "lengths": np.array([2, 1], dtype=np.int32),
        "meta": np.frombuffer(json.dumps([{"dataset": "a"}, {"dataset": "b"}]).encode(), dtype=np.uint8),
    }
    np.savez(path, **(arrays | changed))
    return path


def test_npz_is_cut_into_requests(tmp_path):
    traces = import_traces(_npz(tmp_path / "t.npz"))
    assert (traces.layers, traces.experts, traces.top_k) == (2, 6, 2)
    assert [request.dataset for request in traces.requests] == ["a", "b"]
    assert [request.decode_steps for request in traces.requests] == [2, 1]
    assert traces.requests[1].experts.tolist() == [[[2, 1], [4, 3]]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lengths": np.array([2, 2], dtype=np.int32)}, "lengths add up to 4"),
        ({"experts": np.zeros((3, 2, 2), dtype=np.uint8)}, "token 0, layer 0: expert 0 appears twice"),
        ({"weights_u8": np.zeros((3, 2), dtype=np.uint8)}, "must both be"),
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


def test_real_files_have_their_documented_shape(real_data):
    qwen = import_traces(real_data / "traces" / "qwen3-30b-a3b.route.csv")
    assert (qwen.layers, qwen.experts, qwen.top_k) == (48, 128, 6)
    (request,) = qwen.requests
    assert (request.decode_steps, len(request.phase)) == (128, 156)
    assert (request.experts[:27, 47] == MISSING).all()
    assert (request.experts[:27, :47] != MISSING).all()
