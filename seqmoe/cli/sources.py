"""What a person may name as traces, wherever a command takes ``--traces`` or SRC."""

from __future__ import annotations

from seqmoe.spec.trace import TraceSet

SOURCE_HELP = (
    "Traces: a file of a known format, a store's folder, hf://datasets/OWNER/NAME, or the word reference "
    "(the packaged model's own routing)."
)


def traces_of(source: str) -> TraceSet:
    """The traces that ``source`` names, or `InputError`."""
    from seqmoe.traces.source import load_traces

    if source != "reference":
        return load_traces(source)
    from seqmoe.reference.traces import reference_traces
    from seqmoe.traces.collect.progress import console_progress

    with console_progress("reference traces") as report:
        return load_traces(reference_traces(progress=report))
