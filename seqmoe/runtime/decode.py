"""Decoding: prompts in, tokens out of each, a timestamp for each step; greedy unless it is told otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from seqmoe.runtime.cache import Batch, new_cache
from seqmoe.runtime.offload import Router
from seqmoe.runtime.sampling import Sampler, Sampling

OnToken = Callable[[int, int], None]


@dataclass(slots=True)
class Generation:
    """Tokens of one prompt with the nanosecond clock of each, and the logits they were chosen from if kept."""

    request_ns: int
    tokens: list[int] = field(default_factory=list)
    token_ns: list[int] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)

    @property
    def ttft_seconds(self) -> float:
        """Time to first token."""
        return (self.token_ns[0] - self.request_ns) / 1e9

    @property
    def decode_seconds(self) -> float:
        """Time from the first token to the last."""
        return (self.token_ns[-1] - self.token_ns[0]) / 1e9

    @property
    def decode_tok_s(self) -> float:
        """Decode throughput: (tokens - 1) / (last - first); 0 for a single token."""
        return (len(self.tokens) - 1) / self.decode_seconds if len(self.tokens) > 1 else 0.0


class Decoder:
    """Greedy decode loop over one model; every batch gets a key-value cache of its size.

    Where the family allows ``static_cache`` it lies at fixed addresses. Others keep a context that summarises blocks of
    a row, which padding would shift: only prompts of one length run together there, the others after them.
    """

    def __init__(self, model: Any, static_cache: bool, router: Router) -> None:
        self._model = model
        self._static_cache = static_cache
        self._router = router
        end = model.config.eos_token_id
        self._end = torch.tensor([] if end is None else [end] if isinstance(end, int) else list(end), dtype=torch.long)

    def prepare(self, batch: int) -> Any:
        """Make ready for steps of so many requests; where they are interpreted there is nothing to do."""

    def batches(self, prompts: list[list[int]]) -> Iterator[list[int]]:
        """Which prompts run together, by their places."""
        if self._static_cache or len({len(prompt) for prompt in prompts}) == 1:
            yield list(range(len(prompts)))
            return
        for length in sorted({len(prompt) for prompt in prompts}):
            yield [place for place, prompt in enumerate(prompts) if len(prompt) == length]

    def generate(
        self, prompts: list[list[int]], tokens: int, keep_logits: bool = False, on_token: OnToken | None = None
    ) -> list[Generation]:
        """`stream` to its end. ``on_token(index, token)`` is called after each step with the first prompt's token."""
        results: list[Generation] = []
        for index, results in enumerate(self.stream(prompts, tokens, keep_logits)):
            if on_token is not None:
                on_token(index, results[0].tokens[-1])
        return results

    def stream(
        self, prompts: list[list[int]], tokens: int, keep_logits: bool = False, sampler: Sampler | None = None
    ) -> Iterator[list[Generation]]:
        """Emit exactly ``tokens`` tokens after each prompt, all together; gives the same results after each step.

        End-of-text is never chosen, as when engines ignore it. A ``sampler`` chooses for the first prompt, which is
        then the only one, and may end it: the end of text is not among the tokens.
        """
        request_ns = time.perf_counter_ns()
        results = [Generation(request_ns) for _ in prompts]
        batch = Batch(prompts, tokens)
        cache = self.new_cache(batch.length)
        ids = batch.ids
        self._router.begin_prompt(batch.real)
        for index in range(tokens):
            began = time.perf_counter_ns()
            if index:
                self._router.begin_step()
            before = self._counters()
            logits, ids = self.step(ids, batch, cache, index)
            if sampler is not None:
                ids = torch.tensor([[sampler.choose(logits[0])]])
                if sampler.ends(int(ids)):
                    if not index:
                        results[0].token_ns.append(time.perf_counter_ns())
                        yield results
                    return
            found = ids[:, 0].tolist()
            now = time.perf_counter_ns()
            after = self._counters()
            for row, result in enumerate(results):
                result.tokens.append(found[row])
                result.token_ns.append(now)
                if keep_logits:
                    result.logits.append(logits[row])
            if index:
                placing, predictor, stall = (new - old for new, old in zip(after, before, strict=True))
                whole = time.perf_counter_ns() - began
                self._router.timers.step(whole, now - began, int(placing), int(predictor), stall)
            yield results

    @torch.inference_mode()
    def step(self, ids: torch.Tensor, batch: Batch, cache: Any, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One forward: logits [batch, vocabulary] and the chosen tokens [batch, 1], without a look at either."""
        logits = self._model(
            input_ids=ids,
            attention_mask=batch.mask(index),
            position_ids=batch.positions(index),
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        return self.choose(logits)

    def sampler(self, sampling: Sampling) -> Sampler:
        """What chooses the tokens of one request, by the model's end of text."""
        return Sampler(sampling, self._end.tolist())

    def new_cache(self, length: int) -> Any:
        """A cache for sequences of up to ``length`` tokens."""
        return new_cache(self._model.config, self._static_cache, length)

    def choose(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``logits`` themselves, and the greedy choice that is no end of text."""
        allowed = logits.index_fill(1, self._end, -torch.inf)
        return logits, allowed.argmax(-1, keepdim=True)

    def _counters(self) -> tuple[float, float, float]:
        placement = self._router.placement
        stall = 0.0 if placement.pipeline is None else float(placement.pipeline.statistics()["stall_seconds"])
        return self._router.timers.placing_ns, placement.predictor_ns, stall
