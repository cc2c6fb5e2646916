"""SeqMoE: predictive, graph-compatible offloading of Mixture-of-Experts models, and the harness that tests it.

``seqmoe.load(model, residency=0.45, system="seqmoe")`` gives a `seqmoe.runtime.session.Session`; ``seqmoe.offload``
puts a model that Transformers has loaded on offloaded experts (`seqmoe.runtime.attach`). Both import PyTorch when they
are first used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqmoe.runtime.attach import offload
    from seqmoe.runtime.session import load

__all__ = ["__version__", "load", "offload"]

try:
    __version__ = version("seqmoe")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+source"

_LAZY = {"load": "seqmoe.runtime.session", "offload": "seqmoe.runtime.attach"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'seqmoe' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
