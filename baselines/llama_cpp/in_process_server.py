"""llama-server inside this process through xllamacpp, spoken to over 127.0.0.1 by token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import xllamacpp

from baselines._shared.clock import Token
from baselines._shared.protocol import Refusal, Request
from baselines._shared.sse import post_json, post_stream
from baselines.llama_cpp.placement import Placement


class InProcessServer:
    """One loaded model; a context manager that stops the server."""

    def __init__(self, request: Request, placement: Placement) -> None:
        self._parallel = request.batch
        self._server: Any = None
        self._parameters = _parameters(request, placement)

    def __enter__(self) -> InProcessServer:
        try:
            self._server = xllamacpp.Server(self._parameters)
        except (RuntimeError, ValueError) as error:
            raise Refusal("crash", f"llama.cpp could not load the model: {error}") from None
        self._port = urlsplit(self._server.listening_address).port or 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server = None

    def generate(self, prompt: Sequence[int], tokens: int) -> Iterator[Token]:
        """Stream the greedy continuation, end-of-text masked, without reuse of an earlier prompt's cache.

        The server holds a token back while its text ends inside a UTF-8 character, and never sends that token's id.
        Such a token is stamped with the chunk that reveals it; its id comes from an untimed repetition afterwards.
        """
        seen = 0
        held: list[Token] = []
        for arrival, payload in post_stream(self._port, "/completion", _body(prompt, tokens, stream=True)):
            ids: list[int | None] = list(payload["tokens"])
            hidden = payload["tokens_predicted"] - seen - len(ids)
            seen = payload["tokens_predicted"]
            arrived = [Token(identifier, arrival) for identifier in [None] * hidden + ids]
            if held or hidden:
                held += arrived
            else:
                yield from arrived
        if held and self._parallel == 1:
            held = self._identified(prompt, tokens, held)
        yield from held

    def _identified(self, prompt: Sequence[int], tokens: int, held: list[Token]) -> list[Token]:
        answer = post_json(self._port, "/completion", _body(prompt, tokens, stream=False))
        known = answer["tokens"][tokens - len(held) :]
        if any(token.identifier not in (None, again) for token, again in zip(held, known, strict=True)):
            raise Refusal("invalid", "llama.cpp answered the same prompt with different greedy tokens")
        return [Token(again, token.time_ns) for token, again in zip(held, known, strict=True)]


def _body(prompt: Sequence[int], tokens: int, stream: bool) -> dict[str, Any]:
    return {
        "prompt": list(prompt),
        "n_predict": tokens,
        "stream": stream,
        "return_tokens": True,
        "cache_prompt": False,
        "ignore_eos": True,
        "temperature": 0,
        "top_k": 1,
        "samplers": ["top_k"],
    }


def _parameters(request: Request, placement: Placement) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = request.model_path
    parameters.n_parallel = request.batch
    parameters.n_ctx = request.batch * request.longest
    parameters.n_gpu_layers = placement.gpu_layers
    parameters.tensor_buft_overrides = placement.override
    parameters.moe_cache_size = placement.cache_bytes
    # Half-precision keys and values, and flash attention, would round differently from Transformers in float32.
    parameters.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.cpuparams.n_threads = request.threads
    parameters.cpuparams_batch.n_threads = request.threads
    # The placement is ours to choose and to report: nothing is fitted, cached or warmed behind our back.
    parameters.fit_params = False
    parameters.cache_prompt = False
    parameters.cache_ram_mib = 0
    parameters.warmup = False
    parameters.ui = False
    if request.device == "cuda":  # the sizes of buffers and the counters of the expert cache are logged at this level
        parameters.verbosity = 4
    if placement.cache_bytes:  # uploads run at the link's full speed only from pinned memory, not from a mapped file
        parameters.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
    return parameters
