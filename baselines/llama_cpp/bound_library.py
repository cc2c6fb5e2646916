"""llama.cpp through llama-cpp-python, which the full profile builds from source for this host's processor."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType

import llama_cpp
import numpy as np

from baselines._shared.clock import Token
from baselines._shared.protocol import Refusal, Request
from baselines.llama_cpp.placement import Placement

_F32 = 0


class BoundLibrary:
    """One loaded model; a context manager that frees it."""

    def __init__(self, request: Request, placement: Placement) -> None:
        if placement.override or placement.cache_bytes:
            raise Refusal(
                "unsupported",
                "llama-cpp-python cannot keep experts on the CPU (it has no -ot)",
                "install the quick profile, which drives llama.cpp through xllamacpp",
            )
        if request.batch != 1:
            raise Refusal(
                "unsupported",
                "llama-cpp-python decodes one prompt at a time; batch must be 1",
                "install the quick profile, whose server decodes several",
            )
        try:
            self._model = llama_cpp.Llama(
                request.model_path,
                n_ctx=request.longest,
                n_threads=request.threads,
                n_threads_batch=request.threads,
                n_gpu_layers=placement.gpu_layers,
                # As in the server: float32 keys and values, no flash attention, so that tokens equal Transformers'.
                type_k=_F32,
                type_v=_F32,
                flash_attn=False,
                verbose=request.device == "cuda",  # it logs the sizes of buffers,
            )
        except ValueError as error:
            raise Refusal("crash", f"llama.cpp could not load the model: {error}") from None
        vocabulary = llama_cpp.llama_model_get_vocab(self._model.model)
        self._ends = [t for t in range(self._model.n_vocab()) if llama_cpp.llama_vocab_is_eog(vocabulary, t)]

    def __enter__(self) -> BoundLibrary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._model.close()

    def generate(self, prompt: Sequence[int], tokens: int) -> Iterator[Token]:
        """The greedy continuation, end-of-text masked, without reuse of an earlier prompt's cache."""
        self._model.reset()
        following = list(prompt)
        for _ in range(tokens):
            self._model.eval(following)
            logits = llama_cpp.llama_get_logits_ith(self._model.ctx, -1)
            scores = np.ctypeslib.as_array(logits, shape=(self._model.n_vocab(),))
            scores[self._ends] = -np.inf
            token = int(scores.argmax())
            yield Token(token, time.perf_counter_ns())
            following = [token]
