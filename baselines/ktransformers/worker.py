"""KTransformers: sglang's server with kt-kernel, which computes the experts that are not on the GPU on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from baselines._shared import checks
from baselines._shared.clock import Token, run_prompts
from baselines._shared.protocol import Events, Refusal, Request, serve
from baselines._shared.server import Server, free_port
from baselines._shared.sse import post_stream

FAMILIES = ("qwen3_moe", "qwen3_5_moe", "deepseek_v3", "deepseek_v4", "glm4_moe", "minimax_m2")
METHODS = {"bf16": "BF16", "fp8": "FP8", "mxfp4": "MXFP4"}


def handle(request: Request, events: Events) -> None:
    """Serve one request through a server that is started for it."""
    request.only_options()
    checks.require_cuda(request, "KTransformers")
    checks.require_family(request, FAMILIES, "KTransformers")
    for module in ("kt_kernel", "sglang"):
        checks.require_installed("ktransformers", module)
    port = free_port()
    with Server(command(request, port)) as server:
        server.wait_ready(port, "/health_generate")
        events.ready()
        run_prompts(request, events, lambda prompt, tokens: generate(port, prompt, tokens))
    events.stat("version", checks.version("sglang-kt", "ktransformers"))
    events.stat("resident_bytes", int(request.residency * checks.expert_bytes(Path(request.model_path))))
    events.stat("end_of_text", "masked")
    events.missing("hit_rate", "KTransformers places experts once and prints no hit rate")


def command(request: Request, port: int) -> list[str]:
    """The documented server command; residency is --kt-gpu-experts-ratio, and full load runs without kt-kernel."""
    options = {
        "--model-path": request.model_path,
        "--host": "127.0.0.1",
        "--port": port,
        "--max-running-requests": request.batch,
        "--context-length": request.longest + 1,
    }
    if request.residency < 1.0:
        weights = checks.weight_format(Path(request.model_path))
        if weights not in METHODS:
            raise Refusal("unsupported", f"kt-kernel has no native method for {weights} experts")
        options |= {
            "--kt-weight-path": request.model_path,
            "--kt-method": METHODS[weights],
            "--kt-cpuinfer": request.threads,
            "--kt-threadpool-count": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1,
            "--kt-gpu-experts-ratio": request.residency,
        }
    flags = [str(part) for pair in options.items() for part in pair]
    # A prefix cache would answer the measured prompt from the warm-up's.
    return [sys.executable, "-m", "sglang.launch_server", *flags, "--disable-radix-cache"]


def generate(port: int, prompt: Sequence[int], tokens: int) -> Iterator[Token]:
    """Greedy tokens with their ids from sglang's native endpoint, which streams the ids so far with every chunk."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "min_new_tokens": tokens}
    body = {"input_ids": list(prompt), "sampling_params": sampling, "stream": True}
    seen = 0
    for arrival, payload in post_stream(port, "/generate", body):
        for identifier in payload["output_ids"][seen:]:
            yield Token(identifier, arrival)
        seen = len(payload["output_ids"])


if __name__ == "__main__":
    sys.exit(serve(handle))
