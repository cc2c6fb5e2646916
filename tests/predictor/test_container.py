"""Protects predictor files: what was written comes back, and nothing that is cut, foreign or newer is believed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from seqmoe.predictor.container import SCHEMA, read_container, write_container
from seqmoe.spec.errors import InputError

ABOUT = {"geometry": {"layers": 2, "experts": 4, "top_k": 1}, "ranges": [[0, 1], [1, 2]]}
TENSORS = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b.c": np.array([3, 1], dtype=np.int32)}


def test_round_trip(tmp_path):
    path = tmp_path / "p.safetensors"
    write_container(path, "previous", TENSORS, ABOUT | {"training": {"curve": [1, 2]}, "settings": {"x": 0.5}})
    about, tensors = read_container(path)
    assert about == ABOUT | {
        "schema": SCHEMA, "kind": "previous", "training": {"curve": [1, 2]}, "settings": {"x": 0.5},
    }  # fmt: skip
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert np.array_equal(tensors[name], tensor) and tensors[name].dtype == tensor.dtype
    assert [file.name for file in tmp_path.iterdir()] == ["p.safetensors"]


def test_a_transposed_tensor_comes_back_as_it_was(tmp_path):
    tensor = np.arange(6, dtype=np.float32).reshape(2, 3).T
    write_container(tmp_path / "p", "previous", {"a": tensor}, ABOUT)
    assert np.array_equal(read_container(tmp_path / "p")[1]["a"], tensor)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "p"
    write_container(path, "previous", TENSORS, ABOUT)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_container(path, "previous", TENSORS, ABOUT | {"training": {"x": object()}})
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(ValueError, match="geometry and ranges"):
        write_container(path, "previous", {}, {"geometry": {}})
    with pytest.raises(InputError, match="there is no folder"):
        write_container(tmp_path / "nowhere" / "p", "previous", {}, ABOUT)


def test_every_cut_is_noticed(tmp_path):
    path = tmp_path / "p"
    write_container(path, "previous", TENSORS, ABOUT)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="p: not a predictor"):
            read_container(path)


def _described(change):
    described = {"settings": {}, "training": {}, "schema": SCHEMA, "kind": "previous"} | ABOUT | change
    return {"seqmoe_predictor": json.dumps({name: value for name, value in described.items() if value != "drop"})}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "without the metadata"),
        ({"format": "pt"}, "without the metadata"),
        ({"seqmoe_predictor": "{"}, "no JSON"),
        ({"seqmoe_predictor": "[1]"}, "has no schema"),
        (_described({"schema": SCHEMA + 1}), f"schema {SCHEMA + 1}; this version reads {SCHEMA}"),
        (_described({"schema": 0}), "has no schema"),
        (_described({"schema": True}), "has no schema"),
        (_described({"kind": 3}), "kind = 3"),
        (_described({"ranges": "drop"}), "ranges = None"),
        (_described({"geometry": {"layers": 2, "experts": 4}}), "lack geometry.top_k"),
        *((_described({"geometry": {"layers": 2, "experts": 4, "top_k": k}}), "geometry = ") for k in (0, 5)),
        *(
            (_described({"ranges": ranges}), r"ranges = .* of 2 layers")
            for ranges in (
                [],
                [5],
                [[0, 1]],
                [[0, 1], [1, 3]],
                [[1, 2], [0, 1]],
                [["0", "2"]],
                [[0, 2, 3]],
                [[0, 0], [0, 2]],
            )
        ),
    ],
)
def test_foreign_and_newer_files_are_refused(tmp_path, metadata, message):
    save_file({"a": np.zeros(2)}, tmp_path / "p", metadata=metadata)
    with pytest.raises(InputError, match=message):
        read_container(tmp_path / "p")


def test_what_is_no_such_file_at_all(tmp_path):
    (tmp_path / "text").write_text("a predictor? no")
    np.savez(tmp_path / "old.npz", schema=1)
    for name in ("text", "old.npz"):
        with pytest.raises(InputError, match=f"{name}: not a predictor"):
            read_container(tmp_path / name)
    for name in ("absent", "."):
        with pytest.raises(InputError, match="no such predictor file"):
            read_container(tmp_path / name)
