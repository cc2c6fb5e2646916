"""The `seqmoe` command: parses, calls, prints. No logic. One module per command, listed in the order of the help."""

from seqmoe.cli import baselines, bench, generate, predictor, reference, replay, report, table2, trace, trace_collect
from seqmoe.cli.base import app

__all__ = [
    "app",
    "baselines",
    "bench",
    "generate",
    "predictor",
    "reference",
    "replay",
    "report",
    "table2",
    "trace",
    "trace_collect",
]
