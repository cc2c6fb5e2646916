"""One prompt through one system: what `seqmoe generate` does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from seqmoe.predictor.load import predictor_for
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.dilation import emulation_of
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.memory_plan import plan_memory
from seqmoe.runtime.meter import DecodeMeter
from seqmoe.spec.answer import tokens_sha256
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import Pace
from seqmoe.spec.system import SystemSpec


@dataclass(frozen=True, slots=True)
class GenerateResult:
    """Tokens, text and statistics of one prompt. Times in seconds; hit rate, bytes and stalls of the decode steps.

    ``hit_rate`` is None where no step was decoded through an offloaded placement.
    """

    system: str
    residency: float
    lane: str
    tokens: list[int]
    text: str
    sha256: str
    ttft_s: float
    decode_tok_s: float
    hit_rate: float | None
    bytes: dict[str, int]
    breakdown: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def generate(
    checkpoint: Path | str,
    prompt: str,
    spec: SystemSpec,
    residency: float,
    tokens: int,
    pace: Pace | None = None,
    predictor: Path | None = None,
    threads: int = 1,
    dilation: float | None = None,
) -> GenerateResult:
    """Load a model, place it, and decode greedily.

    With ``pace`` a GPU of that pace is imitated in dilated time; all times are then those of the imitated hardware.
    ``dilation`` is the factor by which time is stretched, found by trying if not given.
    Raises `InputError` for a prompt, residency, length or predictor that the model cannot take,
    `OutOfMemoryError` where all of it together does not fit into memory; both before anything is loaded.
    """
    if any("\ud800" <= letter <= "\udfff" for letter in prompt):
        raise InputError("--prompt: is not valid UTF-8 text; check the terminal's encoding")
    torch.set_num_threads(threads)
    forecaster = predictor_for(spec, predictor)
    opened = Checkpoint.open(checkpoint)
    shape = (opened.geometry.layers, opened.geometry.experts)
    if forecaster is not None and (forecaster.layers, forecaster.experts) != shape:
        raise InputError(
            f"--predictor {predictor}: made for {forecaster.layers} layers of {forecaster.experts} experts, "
            f"but the model has {shape[0]} of {shape[1]}; give one of this model"
        )
    ids = opened.tokenizer.encode(prompt)
    try:
        slots = opened.geometry.slots(residency)
        opened.check_lengths(ids, tokens)
    except ValueError as error:
        raise InputError(str(error)) from None
    plan_memory(
        opened,
        "pageable",
        None if spec.retention == "all" else slots,
        tokens=len(ids) + tokens,
        prompt_tokens=len(ids),
    ).check()
    engine = Engine(opened)
    try:
        emulation = emulation_of(engine, pace, forecaster, dilation) if pace is not None else None
        engine.place(spec, residency, forecaster, emulation)
        meter = DecodeMeter(engine)
        result = engine.generate(ids, tokens, on_token=meter)
        meter.prompt_done()
        totals = meter.statistics(emulation)
    finally:
        engine.close()
    factor = emulation.factor if emulation is not None else 1.0
    timing = ("stall_seconds", "layer_seconds", "link_seconds_per_expert", "dilation", "overrun_share")
    names = (*timing, "overlap_ratio", "overlap_ratio_achieved")
    return GenerateResult(
        system=spec.name,
        residency=1.0 if spec.retention == "all" else residency,
        lane="measured" if emulation is None else "emulated",
        tokens=result.tokens,
        text=engine.tokenizer.decode(result.tokens),
        sha256=tokens_sha256(result.tokens),
        ttft_s=result.ttft_seconds / factor,
        decode_tok_s=result.decode_tok_s * factor,
        hit_rate=meter.hit_rate,
        bytes={name[6:]: value for name, value in totals.items() if name.startswith("bytes_")}
        | {"prefill": totals["prefill_bytes"]},
        breakdown={"decode_seconds": result.decode_seconds / factor}
        | {name: totals[name] for name in names if name in totals},
    )
