"""Pass 1: token sequences by batched generation, with Transformers or with vLLM.

Every request draws its random numbers from its own seed: its sequence depends on its neighbours in the batch only as
far as rounding does.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from seqmoe.spec.errors import InputError
from seqmoe.traces.collect.request import CollectOptions, Request

OnStep = Callable[[float, int], None]


class Generator(Protocol):
    """Continues prompts. ``whole`` asks for many requests at once, because it schedules them itself."""

    whole: bool

    def generate(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[list[int]]:
        """The new tokens of each request, end-of-text included.

        ``on_step`` is told, now and then, how many requests are done (those under way by their share), and how many
        tokens were made.
        """
        ...

    def close(self) -> None:
        """Give memory back before the routing pass."""
        ...


class BatchedGenerator:
    """One padded batch through a Transformers model, token by token, until every row has ended.

    Prompts are padded on the left. The cache grows by concatenation: on a CPU that was twice as fast as a static one,
    which attends to its whole length at every step (reference model, 32 rows, 512 tokens: 23 against 38 ms a step).
    """

    whole = False

    def __init__(self, model: Any, end: Sequence[int], options: CollectOptions) -> None:
        self._model, self._options = model, options
        self._end = torch.tensor(list(end), dtype=torch.long, device=model.device)

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[list[int]]:
        """See `Generator`; all requests are one batch."""
        device, options = self._model.device, self._options
        longest = max(len(request.prompt) for request in requests)
        ids = torch.zeros((len(requests), longest), dtype=torch.long)
        mask = torch.zeros((len(requests), longest + options.tokens), dtype=torch.long)
        for row, request in enumerate(requests):
            ids[row, longest - len(request.prompt) :] = torch.tensor(request.prompt)
            mask[row, longest - len(request.prompt) :] = 1
        ids, mask = ids.to(device), mask.to(device)
        positions = (mask[:, :longest].cumsum(-1) - 1).clamp(min=0)
        padded = bool((mask == 0).any())
        draws = [torch.Generator(device).manual_seed(request.seed) for request in requests]
        ended = torch.zeros(len(requests), dtype=torch.bool, device=device)
        produced: list[torch.Tensor] = []
        cache, made, ended_rows = None, 0, 0
        for step in range(options.tokens):
            result = self._model(
                input_ids=ids,
                attention_mask=mask[:, : longest + step] if padded else None,
                position_ids=positions,
                cache=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = result.cache
            tokens = self._choose(result.logits[:, -1].float(), draws)
            produced.append(tokens)
            made += len(requests) - ended_rows
            ended |= torch.isin(tokens, self._end)
            ended_rows = int(ended.sum())
            if on_step is not None:
                on_step(ended_rows + (len(requests) - ended_rows) * (step + 1) / options.tokens, made)
            if options.stop_at_end and ended_rows == len(requests):
                break
            ids, positions = tokens[:, None], positions[:, -1:] + 1
        return [self._cut(row) for row in torch.stack(produced, dim=1).tolist()]

    def close(self) -> None:
        """Nothing: the routing pass uses the same model."""

    def _choose(self, logits: torch.Tensor, draws: list[torch.Generator]) -> torch.Tensor:
        if not self._options.stop_at_end:
            logits[:, self._end] = -torch.inf
        if self._options.temperature == 0:
            return logits.argmax(dim=-1)
        # The largest of p / Exp(1) is distributed as p: one pass, and each row from its own random numbers.
        waiting = torch.stack([torch.empty_like(logits[0]).exponential_(generator=draw) for draw in draws])
        return (logits / self._options.temperature - waiting.log()).argmax(dim=-1)

    def _cut(self, tokens: list[int]) -> list[int]:
        if not self._options.stop_at_end:
            return tokens
        ends = set(self._end.tolist())
        stop = next((index for index, token in enumerate(tokens) if token in ends), len(tokens) - 1)
        return tokens[: stop + 1]


class VllmGenerator:
    """Every request through vLLM's offline engine, which batches them itself."""

    whole = True

    def __init__(self, location: str, end: Sequence[int], options: CollectOptions) -> None:
        vllm = importlib.import_module("vllm")
        self._sampling = vllm.SamplingParams
        self._engine: Any = vllm.LLM(model=location, seed=options.seed)
        self._end, self._options = list(end), options

    def generate(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[list[int]]:
        """See `Generator`; vLLM shows its own progress."""
        options = self._options
        shared = {"max_tokens": options.tokens, "temperature": options.temperature, "detokenize": False}
        # Ids of end-of-text that only the tokenizer or only the configuration knows must end the sequence too.
        ending = (
            {"stop_token_ids": self._end} if options.stop_at_end else {"logit_bias": dict.fromkeys(self._end, -100.0)}
        )
        answers = self._engine.generate(
            [{"prompt_token_ids": list(request.prompt)} for request in requests],
            [
                self._sampling(**shared, **ending, seed=request.seed, ignore_eos=not options.stop_at_end)
                for request in requests
            ],
        )
        return [list(answer.outputs[0].token_ids) for answer in answers]

    def close(self) -> None:
        """End the engine, so that the model of the routing pass fits."""
        self._engine = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def use_vllm(engine: str, ranks: int) -> bool:
    """Whether vLLM makes the sequences: if it is asked for, or installed and there is one process only.

    Raises `InputError` where it is asked for and cannot: absent, or one of several processes (it spreads over GPUs
    itself).
    """
    installed = importlib.util.find_spec("vllm") is not None
    if engine == "vllm" and not installed:
        raise InputError("--engine vllm: vLLM is not installed; pip install vllm, or take --engine transformers")
    if engine == "vllm" and ranks > 1:
        raise InputError(
            "--engine vllm: it uses several GPUs by itself; run one process, or take --engine transformers"
        )
    return engine == "vllm" or (engine == "auto" and installed and ranks == 1)
