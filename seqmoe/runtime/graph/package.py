"""From a traced step to machine code on disk, and back into a process."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from seqmoe.adapters.base import ExpertsModule
from seqmoe.runtime.graph.experts_op import compiler, load_operator
from seqmoe.runtime.graph.store import Store, source_digest
from seqmoe.runtime.graph.trace import export_step

Progress = Callable[[str], None]
Runner = Callable[[list[torch.Tensor]], list[torch.Tensor]]

# What the machine code depends on; it is compiled anew when one of them changes.
_SOURCES = [
    Path(__file__).parent / name for name in ("caches.py", "experts_op.cpp", "experts_op.py", "package.py", "trace.py")
]
_CONFIG = {"aot_inductor.package_constants_in_so": False}  # the weights stay where the model has them


def to_stderr(line: str) -> None:
    """The default progress."""
    print(line, file=sys.stderr, flush=True)


def compiled_step(
    model: Any, experts: Sequence[ExpertsModule], batch: int, store: Store, progress: Progress = to_stderr
) -> Runner:
    """The machine code of `export_step`, compiled if the store has none for this configuration, batch and machine.

    It takes the flat inputs and reads the model's own weights. Raises `InputError` without a compiler, and for a model
    that cannot be traced.
    """
    compiler()
    load_operator(store)
    name = "step-" + source_digest(_SOURCES, _identity(model, batch))
    package = store.file(f"{name}.pt2", lambda path: _compile(model, experts, batch, path, store, name, progress))
    loaded = torch._inductor.aoti_load_package(str(package), run_single_threaded=True)
    own = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    constants = {f"model.{key}": tensor.detach() for key, tensor in own.items()}
    constants |= load_file(str(store.folder / f"{name}.safetensors"))
    wanted = {key: constants[key] for key in loaded.get_constant_fqns()}
    loaded.load_constants(wanted, check_full_update=True, user_managed=True)
    run: Runner = loaded.loader.boxed_run
    return _Kept(run, wanted)


class _Kept:
    """The compiled function together with the weights that it reads by address."""

    def __init__(self, run: Runner, weights: dict[str, torch.Tensor]) -> None:
        self._run = run
        self._weights = weights

    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return self._run(inputs)


def _identity(model: Any, batch: int) -> str:
    config = model.config.to_dict()
    for key in ("_name_or_path", "transformers_version", "architectures"):
        config.pop(key, None)
    return json.dumps([config, str(model.dtype), batch], sort_keys=True, default=str)


def _compile(
    model: Any,
    experts: Sequence[ExpertsModule],
    batch: int,
    path: Path,
    store: Store,
    name: str,
    progress: Progress,
) -> None:
    start = time.perf_counter()
    layers = model.config.num_hidden_layers
    progress(f"compiling the decode step ({layers} layers, batch {batch}); once per model shape, about a minute ...")
    program = export_step(model, experts, batch)
    progress(f"traced after {time.perf_counter() - start:.0f} s; compiling ...")
    known = {f"model.{key}" for key, _ in model.named_parameters(remove_duplicate=False)}
    known |= {f"model.{key}" for key, _ in model.named_buffers(remove_duplicate=False)}
    lifted = {key: value for key, value in program.constants.items() if key not in known}
    store.file(f"{name}.safetensors", lambda file: save_file(lifted, str(file)))
    # What it prints is about its own internals.
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=_CONFIG)
    progress(f"compiled in {time.perf_counter() - start:.0f} s")
