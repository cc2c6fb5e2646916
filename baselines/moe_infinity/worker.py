"""MoE-Infinity: its OpenAI-compatible server, with experts in host memory and an activation-aware cache on the GPU."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from baselines._shared import checks
from baselines._shared.clock import Token, run_prompts
from baselines._shared.protocol import Events, Refusal, Request, serve
from baselines._shared.server import Server, free_port
from baselines._shared.text_stream import text_tokens

# model_type -> the name under which the package registers the family.
FAMILIES = {
    "qwen3_moe": "qwen3",
    "qwen3_5_moe": "qwen3_5",
    "gpt_oss": "gptoss",
    "mixtral": "mixtral",
    "olmoe": "olmoe",
    "deepseek_v2": "deepseek",
    "deepseek_v3": "deepseek_v3",
}


def handle(request: Request, events: Events) -> None:
    """Serve one request through a server that is started for it."""
    request.only_options()
    checks.require_cuda(request, "MoE-Infinity")
    family = checks.require_family(request, tuple(FAMILIES), "MoE-Infinity")
    module = server_module(FAMILIES[family])
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="seqmoe-moe-infinity-") as offload,
        Server(command(request, module, port, offload)) as server,
    ):
        server.wait_ready(port, "/health")
        events.ready()
        run_prompts(request, events, lambda prompt, tokens: generate(port, request, prompt, tokens))
    events.stat("version", checks.version("moe-infinity"))
    events.stat("resident_bytes", int(request.residency * checks.expert_bytes(Path(request.model_path))))
    events.missing("hit_rate", "the server prints no hit rate, and its binding for one is not reachable from outside")


def server_module(registered: str) -> str:
    """The server of the installed version, whose sources are read without importing them, since that needs CUDA.

    The package of that name on the index is an empty placeholder, and older versions know fewer families.
    """
    checks.require_installed("moe_infinity", "moe_infinity")
    found = importlib.util.find_spec("moe_infinity")
    for root in map(Path, (found.submodule_search_locations or []) if found else []):
        families = root / "common" / "constants.py"
        if families.is_file() and f'"{registered}"' not in families.read_text(encoding="utf-8"):
            raise Refusal("unsupported", f"the installed MoE-Infinity does not register {registered!r}")
        for name in ("api_server_v2", "api_server"):
            if (root / "entrypoints" / "openai" / f"{name}.py").is_file():
                return f"moe_infinity.entrypoints.openai.{name}"
    placeholder = "the installed moe-infinity has no server: it is the empty placeholder of the package index"
    raise Refusal("not_installed", placeholder, "nox -s baseline-moe-infinity")


def command(request: Request, module: str, port: int, offload: str) -> list[str]:
    """The documented server command; --device-memory-ratio is the share of GPU memory that holds ``residency``."""
    experts = request.residency * checks.expert_bytes(Path(request.model_path))
    ratio = experts / checks.device_memory()
    if ratio >= 1.0:
        raise Refusal("oom", f"device: {experts:.0f} bytes of experts do not fit the GPU", "choose a lower residency")
    options = {
        "--host": "127.0.0.1",
        "--port": port,
        "--model": request.model_path,
        "--offload-dir": offload,
        "--device-memory-ratio": f"{ratio:.4f}",
    }
    if module.endswith("_v2"):
        options["--max-batch-size"] = request.batch
    return [sys.executable, "-m", module, *(str(part) for pair in options.items() for part in pair)]


def generate(port: int, request: Request, prompt: Sequence[int], tokens: int) -> Iterator[Token]:
    """Token times from the completion endpoint. It stops at end-of-text, which then ends the cell as invalid."""
    body = {"model": request.model_path, "prompt": list(prompt), "max_tokens": tokens, "temperature": 0.0}
    return text_tokens(port, body)


if __name__ == "__main__":
    sys.exit(serve(handle))
