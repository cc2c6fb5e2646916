"""The `seqmoe` command: parses, calls, prints. No logic. One module per command, listed in the order of the help."""

from seqmoe.cli import (
    baselines,
    bench,
    compare,
    generate,
    hardware,
    plan,
    predictor,
    reference,
    replay,
    report,
    simulate,
    table1,
    table2,
    trace,
    trace_collect,
    trace_synth,
    verdict,
)
from seqmoe.cli.base import app

__all__ = [
    "app",
    "baselines",
    "bench",
    "compare",
    "generate",
    "hardware",
    "plan",
    "predictor",
    "reference",
    "replay",
    "report",
    "simulate",
    "table1",
    "table2",
    "trace",
    "trace_collect",
    "trace_synth",
    "verdict",
]
