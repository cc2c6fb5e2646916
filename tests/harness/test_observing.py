"""Events become observations as they were sent; whatever is missing or foreign makes the result fail, with its name."""

from __future__ import annotations

import pytest
from harness_samples import cell

from seqmoe.harness.observing import Observer, ProtocolError, crash, without_paths
from seqmoe.harness.record import PromptObservation

POINT = cell(prompts=2, decode_tokens=2)


def good():
    events = [{"event": "ready"}]
    for prompt in range(2):
        events.append({"event": "request", "prompt": prompt, "time_ns": 10 * prompt})
        events += [{"event": "token", "prompt": prompt, "token": t, "time_ns": 10 * prompt + t} for t in (1, 2)]
    return [*events, {"event": "stat", "name": "hit_rate", "missing": "no counter"}, {"event": "done"}]


def observe(events):
    observer = Observer(POINT)
    for event in events:
        observer.add(event)
    return observer.result()


def test_a_whole_stream_is_ok_and_kept_raw() -> None:
    status, observations = observe(good())
    assert status.ok
    assert observations.prompts == (PromptObservation(0, (1, 2), (1, 2)), PromptObservation(10, (11, 12), (1, 2)))
    assert observations.stats == {"hit_rate": {"missing": "no counter"}}


def test_prompts_of_a_batch_may_come_interleaved() -> None:
    events = good()
    mixed = [events[0], events[4], events[1], events[5], events[2], events[3], *events[6:]]
    assert observe(mixed) == observe(events)


@pytest.mark.parametrize("drop", [1, 2, 6])
def test_too_few_tokens_or_prompts_are_invalid(drop) -> None:
    events = good()
    del events[drop]
    if drop == 1:
        events = [e for e in events if e.get("prompt") != 0]
    status, observations = observe(events)
    assert status.kind == "invalid" and ("tokens where 2" in status.reason or "1 of 2" in status.reason)
    assert observations.stats


def test_too_many_tokens_are_invalid() -> None:
    events = good()
    events.insert(4, {"event": "token", "prompt": 0, "token": 3, "time_ns": 9})
    assert "prompt 0 emitted 3 tokens" in observe(events)[0].reason


def test_a_clock_that_runs_backwards_is_invalid() -> None:
    events = good()
    events[2]["time_ns"] = 5
    status, observations = observe(events)
    assert status.kind == "invalid" and "prompt 0: time stamps run backwards" in status.reason
    assert observations.prompts == ()


def test_an_error_keeps_its_kind_reason_and_hint_without_folders() -> None:
    event = {"event": "error", "kind": "oom", "reason": "device: /home/ann/models/m.gguf", "hint": "less"}
    status, _ = observe([*good()[:3], event])
    assert (status.kind, status.reason, status.hint) == ("oom", "device: .../m.gguf", "less")


@pytest.mark.parametrize(
    "event",
    [
        {"event": "tokens"},
        {"event": "request", "prompt": 2, "time_ns": 1},
        {"event": "request", "prompt": -1, "time_ns": 1},
        {"event": "request", "prompt": 0, "time_ns": 1.5},
        {"event": "request", "prompt": 0, "time_ns": 1, "extra": 0},
        {"event": "token", "prompt": 0, "token": 1, "time_ns": 1},
        {"event": "stat", "name": "x"},
        {"event": "stat", "name": "x", "value": 1, "missing": "y"},
        {"event": "stat", "name": "x", "value": float("nan")},
        {"event": "stat", "name": "x", "value": {"deep": float("inf")}},
        {"event": "error", "kind": "tired", "reason": "x"},
        {"event": "error", "kind": "hang", "reason": "x"},
        {"event": "error"},
    ],
)
def test_what_the_protocol_does_not_have_is_refused(event) -> None:
    with pytest.raises(ProtocolError):
        Observer(POINT).add(event)


@pytest.mark.parametrize("token", ["a", 1.0, True, -1, 2**31])
def test_a_token_is_an_id_or_null(token) -> None:
    observer = Observer(POINT)
    observer.add({"event": "request", "prompt": 0, "time_ns": 1})
    with pytest.raises(ProtocolError, match="token"):
        observer.add({"event": "token", "prompt": 0, "token": token, "time_ns": 2})
    observer.add({"event": "token", "prompt": 0, "token": None, "time_ns": 2})
    with pytest.raises(ProtocolError, match="twice"):
        observer.add({"event": "request", "prompt": 0, "time_ns": 1})


@pytest.mark.parametrize(
    ("tail", "kind", "where"),
    [
        ("RuntimeError: CUDA error: out of memory in cudaHostAlloc", "oom", "host_pinned"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "oom", "device"),
        ("MemoryError", "oom", "host"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "oom", "host"),
        ("ValueError: x", "crash", "ValueError: x"),
        ("", "crash", "said nothing"),
    ],
)
def test_the_last_words_tell_an_exhausted_memory_from_a_crash(tail, kind, where) -> None:
    status = crash("ended with exit code 1", tail)
    assert status.kind == kind and where in status.reason


def test_a_kill_from_outside_has_a_hint() -> None:
    assert "dmesg" in crash("killed by SIGKILL", "").hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('File "/home/ann/venv/lib/x.py", line 3', 'File ".../x.py", line 3'),
        ("cannot open ~/models/a.gguf: gone", "cannot open .../a.gguf: gone"),
        ("see https://example.org/a/b and 1/2/3", "see https://example.org/a/b and 1/2/3"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_folders_do_not_reach_a_record(text, expected) -> None:
    assert without_paths(text) == expected
