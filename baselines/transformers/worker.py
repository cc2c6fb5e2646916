"""Transformers: the checkpoint's own model class and `generate`, what people run before they run an engine."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from baselines._shared import checks
from baselines._shared.clock import Token, run_prompts
from baselines._shared.protocol import Events, Refusal, Request, serve


def handle(request: Request, events: Events) -> None:
    """Load and decode one request."""
    request.only_options("dtype", "experts")
    if request.batch != 1:
        raise Refusal("unsupported", f"batch = {request.batch}: generate streams one request at a time")
    if request.residency != 1.0:
        raise Refusal("unsupported", "Transformers holds whole models: only full load (residency 1.0) means anything")
    if request.device == "cuda":
        checks.require_cuda(request, "Transformers")
    checks.require_installed("transformers", "transformers")
    engine = Engine(request)
    events.ready()
    run_prompts(request, events, engine.generate)
    size = checks.expert_bytes(Path(request.model_path))
    events.stat("version", checks.version("transformers"))
    events.stat("resident_bytes", size)
    events.stat("dtype", engine.dtype)
    events.stat("experts", engine.experts)
    events.stat("end_of_text", "masked")
    events.missing("hit_rate", "there is no expert cache")


class Engine:
    """One model, and `generate` in a thread that hands every token out as it is made."""

    def __init__(self, request: Request) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(request.threads)
        self._torch = torch
        # float32 on a CPU, so that greedy tokens can be compared; on a GPU what the checkpoint stores.
        self.dtype = request.options.get("dtype", "float32" if request.device == "cpu" else "auto")
        self.experts = request.options.get("experts", "default")
        chosen = {} if self.experts == "default" else {"experts_implementation": self.experts}
        self._model = AutoModelForCausalLM.from_pretrained(request.model_path, dtype=self.dtype, **chosen)
        self._model = self._model.to(request.device).eval()
        self._ends = checks.end_of_text(Path(request.model_path))

    def generate(self, prompt: Sequence[int], tokens: int) -> Iterator[Token]:
        """Greedy tokens, end-of-text masked."""
        arrived = Tokens(len(prompt))
        ids = self._torch.tensor([list(prompt)], device=self._model.device)
        thread = threading.Thread(target=self._run, args=(ids, tokens, arrived))
        thread.start()
        yield from arrived
        thread.join()

    def _run(self, ids: Any, tokens: int, arrived: Tokens) -> None:
        try:
            self._model.generate(
                ids, attention_mask=self._torch.ones_like(ids), do_sample=False, max_new_tokens=tokens,
                min_new_tokens=tokens, suppress_tokens=self._ends or None, eos_token_id=None, streamer=arrived,
            )  # fmt: skip
        except BaseException as error:
            arrived.fail(error)
        arrived.end()


class Tokens:
    """What `generate` takes as a streamer: its calls, made in the generating thread, become an iterator of tokens."""

    def __init__(self, prompt: int) -> None:
        self._prompt = prompt
        self._queue: queue.Queue[Token | BaseException | None] = queue.Queue()

    def put(self, value: Any) -> None:
        """The prompt's ids first, then one new id at a time."""
        now = time.perf_counter_ns()
        ids = value.reshape(-1).tolist()
        if self._prompt:
            self._prompt = 0
            return
        for identifier in ids:
            self._queue.put(Token(int(identifier), now))

    def fail(self, error: BaseException) -> None:
        """Generation ended with an error, which the reader of the tokens gets."""
        self._queue.put(error)

    def end(self) -> None:
        """No more tokens."""
        self._queue.put(None)

    def __iter__(self) -> Iterator[Token]:
        while (item := self._queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item


if __name__ == "__main__":
    sys.exit(serve(handle))
