"""FreeToken: `ft serve`, with experts in host memory and an LRU cache of expert slots on the GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from baselines._shared import checks
from baselines._shared.clock import Token, run_prompts
from baselines._shared.protocol import Events, Refusal, Request, serve
from baselines._shared.server import Server, free_port
from baselines._shared.text_stream import text_tokens

FAMILIES = ("qwen3_moe", "qwen3_5_moe", "gpt_oss", "deepseek_v4", "glm4_moe", "minimax_m2", "gemma4")
STRATEGIES = ("offload", "cpu", "hybrid")
_HIT_LINE = r"MoE decode, pinned [^:]*: hit ([\d.]+)%"
_WINDOW = 8


def handle(request: Request, events: Events) -> None:
    """Serve one request through a server that is started for it."""
    request.only_options("strategy")
    checks.require_cuda(request, "FreeToken")
    checks.require_family(request, FAMILIES, "FreeToken")
    checks.require_installed("freetoken", "freetoken")
    port = free_port()
    with Server(command(request, port)) as server:
        server.wait_ready(port, "/health", '"ok"')
        events.ready()
        text = Texts(request)
        run_prompts(request, events, lambda prompt, tokens: generate(port, text, prompt, tokens))
        windows = [float(match.group(1)) / 100 for match in server.matches(_HIT_LINE)]
    events.stat("version", checks.version("freetoken"))
    events.stat("resident_bytes", int(request.residency * checks.expert_bytes(Path(request.model_path))))
    events.stat("end_of_text", "emitted like any token")
    if windows:
        events.stat("hit_rate", sum(windows) / len(windows))
        events.stat("hit_rate_scope", f"mean over windows of {_WINDOW} decode steps, warm-up included")
    else:
        events.missing("hit_rate", "the server's log has no 'MoE decode' line: all experts are on the GPU")


def command(request: Request, port: int) -> list[str]:
    """The documented server command; residency is --moe-cache-rate, and full load the strategy fused."""
    strategy = request.options.get("strategy", "offload")
    if strategy not in STRATEGIES:
        raise Refusal("invalid", f"option strategy = {strategy!r}", f"valid: {', '.join(STRATEGIES)}")
    options: dict[str, Any] = {
        "--model": request.model_path,
        "--served-model-name": "model",
        "--port": port,
        "--max-running-requests": request.batch,
        "--max-seq-len-override": request.longest + 1,
        # A prefix cache would answer the measured prompt from the warm-up's.
        "--cache-type": "naive",
        "--sampling-defaults": "none",
        "--decode-log-interval": _WINDOW,
    }
    if request.residency < 1.0:
        options |= {"--moe-strategy": strategy, "--moe-cache-rate": request.residency}
    else:
        options["--moe-strategy"] = "fused"
    flags = [str(part) for pair in options.items() for part in pair]
    return [str(Path(sys.executable).with_name("ft")), "serve", *flags, "--moe-collect-stats"]


class Texts:
    """Prompts as text: FreeToken refuses token ids, so each prompt must survive decoding and encoding unchanged."""

    def __init__(self, request: Request) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(Path(request.model_path) / "tokenizer.json"))

    def of(self, prompt: Sequence[int]) -> str:
        """The text of ``prompt``; refused as invalid where it would be cut into other tokens."""
        text: str = self._tokenizer.decode(list(prompt), skip_special_tokens=False)
        if self._tokenizer.encode(text, add_special_tokens=False).ids != list(prompt):
            raise Refusal(
                "invalid", f"FreeToken takes text only, and {text[:40]!r} is cut into other tokens than asked for"
            )
        return text


def generate(port: int, texts: Texts, prompt: Sequence[int], tokens: int) -> Iterator[Token]:
    """Token times from the completion endpoint, which ignores end-of-text but hides token ids."""
    body = {"model": "model", "prompt": texts.of(prompt), "max_tokens": tokens, "temperature": 0.0, "ignore_eos": True}
    return text_tokens(port, body | {"add_special_tokens": False, "stream_options": {"include_usage": True}})


if __name__ == "__main__":
    sys.exit(serve(handle))
