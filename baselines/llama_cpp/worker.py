"""llama.cpp: a GGUF model decoded by token ids, through xllamacpp (quick profile) or llama-cpp-python (full)."""

from __future__ import annotations

import importlib.util
import re
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from baselines._shared import checks
from baselines._shared.capture import captured_stderr
from baselines._shared.clock import run_prompts
from baselines._shared.protocol import Events, Refusal, Request, serve
from baselines.llama_cpp.gguf_header import Header, read_header
from baselines.llama_cpp.placement import Placement, place

if TYPE_CHECKING:
    from baselines.llama_cpp.bound_library import BoundLibrary
    from baselines.llama_cpp.in_process_server import InProcessServer

_CACHE_LINE = r"llama_moe_cache: ubatch <= 8: hits = (\d+), misses = (\d+), .* uploaded = ([\d.]+) MiB"
_DEVICE_LINE = r"(\S+) model buffer size = +([\d.]+) MiB"
_MIB = 2**20


def handle(request: Request, events: Events) -> None:
    """Place, load, decode and report one request."""
    request.only_options("expert_cache")
    if request.model_format != "gguf":
        raise Refusal("invalid", f"model_format = {request.model_format!r}: llama.cpp loads gguf")
    header = read_header(Path(request.model_path))
    placement = place(request, header)
    if request.device == "cuda":
        checks.require_cuda(request, "llama.cpp")
    if request.longest > header.context:
        raise Refusal("invalid", f"{request.longest} tokens exceed the model's context of {header.context}")
    backend = _backend()
    with captured_stderr() as log, _open(backend, request, placement) as engine:
        events.ready()
        run_prompts(request, events, engine.generate)
    # llama.cpp logs from a thread of its own, and its expert cache when it stops: the log is whole only now.
    if request.device == "cuda":
        _check_device(log(), placement)
    _report(events, request, placement, header, backend, log())


def _backend() -> str:
    for module in ("xllamacpp", "llama_cpp"):
        if importlib.util.find_spec(module) is not None:
            return module
    raise Refusal(
        "not_installed", "neither 'xllamacpp' nor 'llama_cpp' is in this environment", "nox -s baseline-llama-cpp"
    )


def _open(
    backend: str, request: Request, placement: Placement
) -> AbstractContextManager[InProcessServer | BoundLibrary]:
    if backend == "xllamacpp":
        from baselines.llama_cpp.in_process_server import InProcessServer

        return InProcessServer(request, placement)
    from baselines.llama_cpp.bound_library import BoundLibrary

    return BoundLibrary(request, placement)


def _check_device(log: str, placement: Placement) -> None:
    """A build without CUDA, or a placement that did not take, runs on the CPU in silence: refuse such a result."""
    sizes = re.findall(_DEVICE_LINE, log)
    on_device = sum(float(size) * _MIB for name, size in sizes if name.startswith("CUDA") and "Host" not in name)
    expected = 0 if placement.cache_bytes else placement.resident_bytes
    if not sizes or on_device <= expected:
        raise Refusal(
            "invalid",
            f"silent fall-back: {on_device:.0f} bytes of weights on the GPU, the placement "
            f"asked for more than {expected}",
            "install a CUDA build of llama.cpp (see baseline.toml, needs)",
        )


def _report(events: Events, request: Request, placement: Placement, header: Header, backend: str, log: str) -> None:
    events.stat("version", checks.version("xllamacpp" if backend == "xllamacpp" else "llama-cpp-python"))
    events.stat("resident_bytes", placement.resident_bytes)
    events.stat("expert_bytes", header.total_expert_bytes)
    events.stat("end_of_text", "masked")
    counters = re.findall(_CACHE_LINE, log)
    if counters:
        hits, misses, uploaded = (float(value) for value in counters[-1])
        events.stat("hit_rate", hits / (hits + misses))
        events.stat("hits", int(hits))
        events.stat("misses", int(misses))
        events.stat("needed", int(hits + misses))
        events.stat("bytes_on_demand", int(uploaded * _MIB))
        events.stat("hit_rate_scope", "all small batches since the model was loaded, warm-up included")
    else:
        events.missing("hit_rate", "without expert_cache llama.cpp computes where an expert lies: no cache, no hits")


if __name__ == "__main__":
    sys.exit(serve(handle))
