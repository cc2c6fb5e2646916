"""SeqMoE: predictive, graph-compatible offloading of Mixture-of-Experts models, and the harness that tests it."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("seqmoe")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+source"
