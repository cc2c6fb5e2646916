"""Replayed routing: the real pipeline moves real bytes, and one wrong slot would change the answer."""

from __future__ import annotations

import numpy as np
import pytest

from seqmoe.runtime.emulation import Emulation
from seqmoe.runtime.meter import DecodeMeter
from seqmoe.runtime.replay_runner import Replay, ReplayCase, ReplayRunner, predictor_of
from seqmoe.runtime.replayed import ReplayedEngine
from seqmoe.spec.errors import InputError
from seqmoe.spec.pace import Pace
from seqmoe.spec.system import system
from seqmoe.spec.trace import DECODE, MISSING, PREFILL, RequestTrace, TraceSet
from seqmoe.traces.store import write_store

LAYERS, EXPERTS, TOP_K, BYTES = 3, 10, 2, 1000
# Fast enough for a test, and slow enough that a layer's padding is not the sleep's granularity.
PACE = Pace(layer_seconds=0.4e-3, expert_seconds=0.3e-3)


def request(seed: int, prompt: int = 4, steps: int = 20, missing: bool = False) -> RequestTrace:
    """Random routing in which neighbours resemble each other."""
    rng = np.random.default_rng(seed)
    experts = np.empty((prompt + steps, LAYERS, TOP_K), dtype=np.int16)
    for step in range(len(experts)):
        for layer in range(LAYERS):
            again = step and rng.random() < 0.5
            experts[step, layer] = experts[step - 1, layer] if again else rng.choice(EXPERTS, TOP_K, replace=False)
    if missing:
        experts[: prompt - 1, -1] = MISSING
    weights = rng.random(experts.shape, dtype=np.float32) + 0.1
    phase = np.array([PREFILL] * prompt + [DECODE] * steps, dtype=np.uint8)
    return RequestTrace(experts, phase, weights=weights, identifier=f"r{seed}", prompt_length=prompt)


TRACES = TraceSet("m", LAYERS, EXPERTS, TOP_K, tuple(request(seed, missing=seed == 2) for seed in range(4)))


@pytest.fixture
def engine():
    found = ReplayedEngine(TRACES, BYTES)
    yield found
    found.close()


def online(engine):
    return predictor_of(system("seqmoe"), "online_first_order", engine)


@pytest.mark.parametrize("name", ["naive", "lru", "seqmoe"])
@pytest.mark.parametrize("residency", [0.2, 0.5])
def test_every_system_gives_full_loads_answer_and_meets_the_traces_events(engine, name, residency) -> None:
    spec = system(name)
    answers = [engine.generate([one], 20)[0].tokens for one in TRACES.requests]
    engine.place(spec, residency, online(engine) if spec.predictor != "none" else None, Emulation(PACE, 1.0))
    meter = DecodeMeter(engine)
    for one, answer in zip(TRACES.requests, answers, strict=True):
        assert engine.generate([one], 20, meter)[0].tokens == answer
        meter.prompt_done()
    counts = meter.statistics(Emulation(PACE, 1.0))
    assert counts["needed"] == len(TRACES.requests) * 19 * LAYERS * TOP_K
    assert counts["bytes_on_demand"] == counts["misses"] * BYTES > 0, "the real expert's size is charged"


def test_an_answer_depends_on_every_expert(engine) -> None:
    """One stand-in that is not what it should be, needed once in the middle, changes all that follows."""
    one = TRACES.requests[0]
    before = engine.generate([one], 20)[0].tokens
    key = int(LAYERS - 2) * EXPERTS + int(one.experts[12, LAYERS - 2, 0])
    first = next(step for step in range(24) if one.experts[step, LAYERS - 2].tolist().count(key % EXPERTS))
    engine.host.down[key] += 1e-3
    after = engine.generate([one], 20)[0].tokens
    changed = max(0, first - 3)
    assert before[:changed] == after[:changed]
    assert all(a != b for a, b in zip(before[changed:], after[changed:], strict=True))


def test_requests_that_run_together_say_what_they_say_alone(engine) -> None:
    alone = [engine.generate([one], 12)[0].tokens for one in TRACES.requests[:3]]
    engine.place(system("lru"), 0.5, None, Emulation(PACE, 1.0))
    meter = DecodeMeter(engine)
    together = engine.generate(list(TRACES.requests[:3]), 12, meter)
    meter.prompt_done()
    assert [result.tokens for result in together] == alone
    union = sum(
        len(np.unique([one.experts[4 + step, layer] for one in TRACES.requests[:3]]))
        for step in range(11)
        for layer in range(LAYERS)
    )
    assert meter.decode["needed"] == union, "an event needs what any of its requests needs, once"


def test_requests_that_are_too_short_are_refused(engine) -> None:
    with pytest.raises(ValueError, match="tokens = 22: request 'r0' of the traces gives at most 21"):
        engine.generate([TRACES.requests[0]], 22)
    with pytest.raises(ValueError, match="tokens = 0"):
        engine.generate([TRACES.requests[0]], 0)


def test_traces_without_a_prompt_begin_with_their_first_step(engine) -> None:
    decoding = RequestTrace(TRACES.requests[0].experts[4:], np.full(20, DECODE, dtype=np.uint8))
    assert len(engine.generate([decoding], 20)[0].tokens) == 20
    with pytest.raises(ValueError, match="at most 20"):
        engine.generate([decoding], 21)


def events_of(runner, replay, name, residency=0.5, batch=1):
    events = []
    runner.run(replay, ReplayCase(system(name), residency, batch, 8), lambda **event: events.append(event))
    return events, {event["name"]: event["value"] for event in events if event["event"] == "stat"}


def test_a_comparison_has_one_factor_one_answer_and_times_of_the_imitated_hardware(tmp_path) -> None:
    write_store(TRACES, tmp_path / "traces")
    runner = ReplayRunner()
    replay = Replay(str(tmp_path / "traces"), (0, 3), BYTES, PACE, warm_up=2, predictor="previous")
    try:
        found = {name: events_of(runner, replay, name) for name in ("full", "lru", "seqmoe")}
        together, _ = events_of(runner, replay, "lru", batch=2)
    finally:
        runner.close()
    tokens = {name: [e["token"] for e in events if e["event"] == "token"] for name, (events, _) in found.items()}
    assert tokens["full"] == tokens["lru"] == tokens["seqmoe"] and len(tokens["full"]) == 16
    assert [e["token"] for e in together if e["event"] == "token"] == tokens["full"]
    assert len({stats["dilation"] for _, stats in found.values()}) == 1
    assert all(stats["same_answer"] for _, stats in found.values())
    events, stats = found["full"]
    times = [e["time_ns"] for e in events if e["event"] == "token" and e["prompt"] == 0]
    assert (times[-1] - times[0]) / 1e9 == pytest.approx(7 * LAYERS * PACE.layer_seconds, rel=0.5)
    assert stats["hit_rate"] == 1 and stats["layer_seconds"] >= PACE.layer_seconds * 0.99


def test_what_does_not_fit_the_traces_is_refused_by_name(tmp_path, engine) -> None:
    from seqmoe.predictor.previous import Previous

    write_store(TRACES, tmp_path / "traces")
    runner = ReplayRunner()
    with pytest.raises(InputError, match=r"requests \[7\]: the traces have 4"):
        events_of(runner, Replay(str(tmp_path / "traces"), (7,), BYTES, PACE), "lru")
    Previous(LAYERS + 1, EXPERTS, TOP_K).save(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="made for 4 layers of 10 experts, but what runs has 3 of 10"):
        predictor_of(system("seqmoe"), str(tmp_path / "other.safetensors"), engine)
    assert predictor_of(system("lru"), None, engine) is None
