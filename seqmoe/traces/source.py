"""Where traces come from: one function for every path or name that a person may give."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from seqmoe.spec.errors import InputError
from seqmoe.spec.hub import quiet_attempts
from seqmoe.spec.trace import TraceSet
from seqmoe.traces import store
from seqmoe.traces.importers import import_traces
from seqmoe.traces.summary import column, set_digest

HUB = "hf://datasets/"


def load_traces(source: str | Path) -> TraceSet:
    """Traces of a store's folder, a foreign file of any known format, or ``hf://datasets/OWNER/NAME[@REVISION][/PATH]``.

    Of the hub, a store or a single file is fetched into the hub's cache, once. Raises `InputError` for anything else.
    """
    text = str(source)
    if not text:
        raise InputError("the name of the traces is empty; give a file, a store's folder or an address")
    if text.startswith(HUB):
        return load_traces(_fetch(text))
    if "://" in text or text.startswith("hf:"):
        raise InputError(f"{text}: only {HUB}OWNER/NAME[/PATH] is known of addresses; else give a path")
    path = Path(source)
    if path.is_dir():
        return store.open_store(path)
    return import_traces(path)


def digest(traces: TraceSet) -> str:
    """12 hex digits of what the set holds: geometry, router and every request in order, wherever they are kept.

    The same for a foreign file, for the store it was imported into and for a copy of that store; different for a part.
    """
    about = (traces.model, traces.layers, traces.experts, traces.top_k, traces.router)
    return set_digest(about, column(traces.requests, "digest"))


def _fetch(address: str) -> Path:
    """Download what a hub address names; a local path to it."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    parts = PurePosixPath(address.removeprefix(HUB)).parts
    if len(parts) < 2 or ".." in parts:
        raise InputError(f"{address}: expected {HUB}OWNER/NAME[@REVISION][/PATH]")
    name, _, revision = parts[1].partition("@")
    inner = "/".join(parts[2:])
    pattern = f"{inner}/*" if inner else "*"
    try:
        with quiet_attempts():
            folder = huggingface_hub.snapshot_download(
                f"{parts[0]}/{name}",
                repo_type="dataset",
                revision=revision or None,
                allow_patterns=[inner, pattern] if inner else [store.MANIFEST, "*.arrow"],
            )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{address}: cannot be fetched from the hub: {reason}") from None
    found = Path(folder, inner)
    if not found.exists():
        raise InputError(f"{address}: the data set has no {inner!r}")
    return found
