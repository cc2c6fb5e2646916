"""One request of a trace through one system: what `seqmoe generate --routing replay:SRC` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqmoe.predictor.online import ONLINE
from seqmoe.runtime.emulation import UNPACED_PROMPT
from seqmoe.runtime.host_misses import HOST_COUNTS
from seqmoe.runtime.replay_runner import Replay, ReplayCase, ReplayRunner
from seqmoe.runtime.stream import GenerateResult
from seqmoe.spec.answer import tokens_sha256
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.miss_prices import emulated_pace
from seqmoe.spec.paths import Home
from seqmoe.spec.system import SystemSpec
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.source import load_traces
from seqmoe.traces.summary import column

_TIMES = ("stall_seconds", "layer_seconds", "link_seconds_per_expert", "dilation", "overrun_share")


def replay_generate(
    traces: str,
    spec: SystemSpec,
    residency: float,
    tokens: int,
    home: Home,
    emulate: str,
    predictor: Path | None = None,
    dilation: float | None = None,
) -> GenerateResult:
    """Replay the first request that is long enough, at the pace of hardware ``emulate`` and charged its experts' size.

    ``predictor`` is a file, or a kind that learns as it goes. Raises `InputError` for traces, residencies and
    predictors that do not fit.
    """
    hardware = load_hardware(home, emulate)
    replay = Replay(
        traces=traces,
        requests=(first_of_length(load_traces(traces), traces, tokens),),
        expert_bytes=hardware.full_load[hardware.emulates].expert_bytes,
        pace=emulated_pace(home, emulate),
        predictor=predictor_name(spec, predictor),
        dilation=dilation,
    )
    events: list[dict[str, Any]] = []
    runner = ReplayRunner()
    try:
        runner.run(replay, ReplayCase(spec, residency, 1, tokens), lambda **event: events.append(event))
    except ValueError as error:
        raise InputError(str(error)) from None
    finally:
        runner.close()
    return _result(spec, residency, events)


def first_of_length(traces: TraceSet, name: str, tokens: int) -> int:
    """The first request with more than ``tokens`` steps; `InputError` where the traces ``name`` have none."""
    steps = column(traces.requests, "steps")
    chosen = next((index for index, count in enumerate(steps) if count > tokens), None)
    if chosen is None:
        raise InputError(f"--tokens {tokens}: the longest request of {name} has {max(steps, default=0)} steps")
    return chosen


def predictor_name(spec: SystemSpec, predictor: Path | None) -> str | None:
    """What a person gave as ``--predictor``; `InputError` where the system needs one and none was given."""
    if predictor is None and spec.predictor != "none":
        kinds = " or ".join(ONLINE)
        raise InputError(f"system {spec.name!r} needs --predictor: a file made for these traces' model, or {kinds}")
    return None if predictor is None else str(predictor)


def _result(spec: SystemSpec, residency: float, events: list[dict[str, Any]]) -> GenerateResult:
    stats = {event["name"]: event["value"] for event in events if event["event"] == "stat"}
    tokens = [event["token"] for event in events if event["event"] == "token"]
    times = [event["time_ns"] for event in events if event["event"] == "token"]
    seconds = (times[-1] - times[0]) / 1e9
    sizes = {name.removeprefix("bytes_"): value for name, value in stats.items() if name.startswith("bytes_")}
    names = (*_TIMES, *HOST_COUNTS, "overlap_ratio", "overlap_ratio_achieved")
    return GenerateResult(
        system=spec.name,
        residency=1.0 if spec.retention == "all" else residency,
        lane="emulated",
        tokens=tokens,
        text="",
        sha256=tokens_sha256(tokens),
        ttft_s=None,
        decode_tok_s=(len(tokens) - 1) / seconds if seconds else 0.0,
        hit_rate=stats["hit_rate"],
        bytes=sizes | {"prefill": stats["prefill_bytes"]},
        breakdown={"decode_seconds": seconds} | {name: stats[name] for name in names if name in stats},
        missing={"ttft_s": UNPACED_PROMPT},
    )
