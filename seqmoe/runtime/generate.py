"""One prompt through one system: what `seqmoe generate` does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqmoe.predictor.load import predictor_for
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.meter import DecodeMeter, placement_statistics
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import SystemSpec


@dataclass(frozen=True, slots=True)
class GenerateResult:
    """Tokens, text and statistics of one prompt. Times in seconds, bytes summed over the request."""

    system: str
    residency: float
    lane: str
    tokens: list[int]
    text: str
    sha256: str
    ttft_s: float
    decode_tok_s: float
    hit_rate: float
    bytes: dict[str, int]
    breakdown: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def tokens_sha256(tokens: list[int]) -> str:
    """SHA-256 over the token ids as little-endian int32."""
    return hashlib.sha256(np.asarray(tokens, dtype="<i4").tobytes()).hexdigest()


def generate(
    checkpoint: Path | str,
    prompt: str,
    spec: SystemSpec,
    residency: float,
    tokens: int,
    overlap_ratio: float | None = None,
    predictor: Path | None = None,
    threads: int = 1,
    on_text: Callable[[str], None] | None = None,
) -> GenerateResult:
    """Load a model, place it, and decode greedily; ``on_text`` receives the text as it grows.

    With ``overlap_ratio`` the link is throttled to move that many experts per full-load layer time of this host.
    Raises `InputError` for a prompt, residency or length that the model cannot take.
    """
    torch.set_num_threads(threads)
    forecaster = predictor_for(spec, predictor)
    opened = Checkpoint.open(checkpoint)
    ids = opened.tokenizer.encode(prompt)
    try:
        opened.geometry.slots(residency)
        opened.check_lengths(ids, tokens)
    except ValueError as error:
        raise InputError(str(error)) from None
    engine = Engine(opened)
    try:
        emulation = engine.emulate(overlap_ratio) if overlap_ratio is not None else None
        engine.place(spec, residency, forecaster, emulation)
        meter = DecodeMeter(engine)

        def on_token(index: int, token: int) -> None:
            meter(index, token)
            if on_text is not None:
                on_text(engine.tokenizer.decode([token]))

        result = engine.generate(ids, tokens, on_token=on_token)
        meter.prompt_done()
        totals = placement_statistics(engine, emulation)
    finally:
        engine.close()
    names = ("stall_seconds", "overlap_ratio", "overlap_ratio_achieved", "layer_seconds", "link_seconds_per_expert")
    return GenerateResult(
        system=spec.name,
        residency=1.0 if spec.retention == "all" else residency,
        lane="measured" if emulation is None else "emulated",
        tokens=result.tokens,
        text=engine.tokenizer.decode(result.tokens),
        sha256=tokens_sha256(result.tokens),
        ttft_s=result.ttft_seconds,
        decode_tok_s=result.decode_tok_s,
        hit_rate=meter.hit_rate,
        bytes={name[6:]: value for name, value in totals.items() if name.startswith("bytes_")},
        breakdown={"decode_seconds": result.decode_seconds} | {name: totals[name] for name in names if name in totals},
    )
