"""One prompt through one system: what `seqmoe generate` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from seqmoe.runtime.chat import chat_template, encode_chat
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.dilation import emulation_of
from seqmoe.runtime.sampling import Sampling
from seqmoe.runtime.session import Session
from seqmoe.runtime.setup import Setup, encode
from seqmoe.runtime.stream import GenerateResult, Stream
from seqmoe.spec.pace import Pace

__all__ = ["GenerateResult", "generate"]


def generate(
    checkpoint: Path | str,
    prompt: str,
    setup: Setup,
    tokens: int,
    pace: Pace | None = None,
    dilation: float | None = None,
    dtype: str = "float32",
    threads: int = 1,
    on_piece: Callable[[str, Stream], None] | None = None,
    *,
    sampling: Sampling | None = None,
    chat: bool = False,
) -> GenerateResult:
    """Load a model, place it, and decode: greedily, or as ``sampling`` says. With ``chat`` the prompt is a message.

    With ``pace`` a GPU of that pace is imitated in dilated time; all times are then those of the imitated hardware.
    ``dilation`` is the factor by which time is stretched, found by trying if not given. ``on_piece`` is called with
    each piece of text. Raises `InputError` for a prompt, residency, length or predictor that the model cannot take,
    `OutOfMemoryError` where all of it together does not fit into memory; both before anything is loaded.
    """
    torch.set_num_threads(threads)
    opened = Checkpoint.open(checkpoint, dtype)
    ids = _ids(opened.tokenizer, prompt, chat)
    setup.forecaster(opened)
    setup.check(opened, [ids], tokens)
    with Session(opened, setup) as session:
        if pace is not None:
            session.place(emulation_of(session.engine, pace, session.forecaster, dilation))
        stream = session.generate(ids, tokens, sampling)
        for piece in stream:
            if on_piece is not None:
                on_piece(piece, stream)
        return stream.result


def _ids(tokenizer: Any, prompt: str, chat: bool) -> list[int]:
    if not chat:
        return encode(tokenizer, prompt)
    return encode_chat(tokenizer, chat_template(tokenizer), [{"role": "user", "content": prompt}])
