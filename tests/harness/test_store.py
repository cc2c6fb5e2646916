"""No record is lost, none is written twice at a time, and a damaged file says where it is damaged."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import pytest
from harness_samples import record

from seqmoe.harness.record import Status, to_json
from seqmoe.harness.store import Store, latest, read_records, store_files, store_path
from seqmoe.spec.errors import InputError


@pytest.fixture
def path(tmp_path):
    return store_path(tmp_path / "results", "cpu-x-2c", "demo")


def written(path, *records):
    with Store(path) as store:
        for item in records:
            store.append(item)
    return list(records)


def test_records_come_back_in_the_order_of_writing_over_several_sessions(path) -> None:
    first = written(path, record(repeat=0), record(repeat=1))
    second = written(path, record(repeat=0, residency=0.5))
    assert read_records(path) == first + second
    with Store(path) as store:
        assert list(store.records) == first + second


def test_a_store_that_does_not_exist_is_empty(path) -> None:
    assert read_records(path) == []
    assert not path.exists()


@pytest.mark.parametrize("cut", [1, 40, -2])
@pytest.mark.parametrize("reader", ["read", "write"])
def test_a_torn_last_line_is_set_aside_with_a_warning_that_names_both_files(path, caplog, cut, reader) -> None:
    kept = written(path, record(repeat=0), record(repeat=1))
    whole = path.read_bytes()
    torn = to_json(record(repeat=2)).encode()[:cut]
    path.write_bytes(whole + torn)
    with caplog.at_level(logging.WARNING):
        if reader == "read":
            assert read_records(path) == kept
        else:
            written(path)
    aside = path.with_name("demo.torn-1.jsonl")
    assert aside.read_bytes() == torn and path.read_bytes() == whole
    assert str(path) in caplog.text and str(aside) in caplog.text
    assert store_files(path.parent.parent) == [path]
    caplog.clear()
    assert read_records(path) == kept and not caplog.records


def test_garbage_with_a_newline_at_the_end_is_a_torn_line_too_and_numbers_go_on(path, caplog) -> None:
    kept = written(path, record())
    for number in (1, 2):
        with path.open("ab") as stream:
            stream.write(b"\0\0\0\0\n")
        assert read_records(path) == kept
        assert path.with_name(f"demo.torn-{number}.jsonl").exists()


@pytest.mark.parametrize("text", ["# Title\n\nThe last line.\n", "no newline", '{"mine": 1}\n{"mine"', '{"mine": 1}'])
def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(tmp_path, text) -> None:
    path = tmp_path / "notes.md"
    path.write_text(text)
    for opened in (read_records, Store):
        with pytest.raises(InputError, match=r"notes.md:1: "):
            opened(path)
    assert path.read_text() == text and list(tmp_path.iterdir()) == [path]


def test_a_first_record_that_was_cut_short_leaves_an_empty_store(path) -> None:
    path.parent.mkdir(parents=True)
    for torn in (to_json(record()).encode()[:3], to_json(record()).encode()[:40], b"\0\0\0"):
        path.write_bytes(torn)
        assert read_records(path) == [] and path.read_bytes() == b""


def test_a_last_line_that_lacks_only_its_newline_is_kept_and_ended(path, caplog) -> None:
    kept = written(path, record(repeat=0), record(repeat=1))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    more = written(path, record(repeat=2))
    assert read_records(path) == kept + more and not caplog.records


def test_a_corrupt_line_in_the_middle_is_an_error_with_file_and_line(path) -> None:
    written(path, *(record(repeat=n) for n in range(3)))
    lines = path.read_text().splitlines()
    lines[1] = lines[1][:30]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=rf"{path.name}:2: not a JSON line"):
        read_records(path)
    with pytest.raises(InputError, match=":2:"), Store(path):
        pass
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000])
def test_what_no_reader_of_json_takes_is_refused_with_file_and_line(path, value) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f'{{"schema":1,"seconds":{value}}}\n{to_json(record())}\n')
    with pytest.raises(InputError, match=rf"{path.name}:1: not a JSON line"):
        read_records(path)


def test_a_line_of_a_newer_version_is_refused_and_left_where_it_is(path) -> None:
    written(path, record())
    newer = json.dumps(json.loads(to_json(record())) | {"schema": 99})
    path.write_text(newer + "\n")
    with pytest.raises(InputError, match=r":1: schema = 99.*upgrade"):
        read_records(path)
    assert path.read_text() == newer + "\n"


def test_two_writers_are_kept_apart_and_the_lock_goes_with_its_holder(path) -> None:
    with Store(path), pytest.raises(InputError, match="another sweep"), Store(path):
        pass
    holder = (
        "import sys, pathlib; from seqmoe.harness.store import Store\n"
        "store = Store(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", holder, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    with pytest.raises(InputError, match="another sweep"):
        Store(path)
    process.kill()
    process.communicate()
    assert written(path, record()) == read_records(path)


def test_a_reader_beside_a_writer_leaves_the_unfinished_line_alone(path, caplog) -> None:
    with Store(path) as store:
        store.append(record())
        with path.open("ab") as stream:
            stream.write(b'{"schema":1,')
        assert read_records(path) == [record()]
        assert "not complete" in caplog.text
    assert path.read_bytes().endswith(b'{"schema":1,')


def ran(model, status=None, repeat=0):
    """A record of the default cell on the weights of that digest."""
    return record(status=status, repeat=repeat, environment={"weights": {"model": model, "predictor": None}})


def test_an_obstacle_leaves_alone_what_the_cell_gave_on_the_same_weights() -> None:
    refused, absent = Status("unsupported", "no GPU"), Status("not_installed", "no weights")
    good = [ran("m"), ran("m", repeat=1)]
    for status, now in ((refused, "m"), (absent, "m"), (absent, None)):
        assert latest([*good, ran(now, status)]) == good
    assert latest([*good, ran("n", refused)]) == [ran("n", refused), good[1]]
    assert latest([ran("m", refused), good[0]]) == [good[0]]
    crashed = ran("m", Status("crash", "r"))
    assert latest([*good, crashed]) == [crashed, good[1]]


@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_what_is_no_regular_file_is_refused_before_it_is_read(path, kind) -> None:
    path.parent.mkdir(parents=True)
    if kind == "device":
        path.symlink_to("/dev/full")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    for attempt in (read_records, Store):
        with pytest.raises(InputError, match=f"{path}: is not a regular file"):
            attempt(path)


def test_latest_lets_a_repeated_run_replace_the_earlier_one() -> None:
    old, new = record(repeat=0, stats={"a": 1}), record(repeat=0, stats={"a": 2})
    assert latest([old, record(repeat=1), new]) == [new, record(repeat=1)]
