"""Files appear whole or not at all, and only in the place of files."""

from __future__ import annotations

import os

import pytest

from seqmoe.spec.errors import InputError
from seqmoe.spec.files import replacing


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as partial:
        partial.write_text("one")
    with pytest.raises(RuntimeError), replacing(path) as partial:
        partial.write_text("two")
        raise RuntimeError
    assert path.read_text() == "one" and list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_left_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(InputError, match=f"{name}: is there and is no file"), replacing(tmp_path / name) as partial:
            partial.write_text("one")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]
