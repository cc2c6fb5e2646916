"""Where a study's traces are: the reference model's own, which are made once, or those that a person names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home
from seqmoe.spec.study import REFERENCE
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.collect.progress import CollectionProgress
from seqmoe.traces.collect.progress import describe as in_words
from seqmoe.traces.source import digest, load_traces
from seqmoe.traces.summary import column

_SAY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Source:
    """Traces that were found: ``location`` for `load_traces`, ``about`` for the record (``digest`` among it)."""

    location: str
    about: dict[str, object]

    @property
    def digest(self) -> str:
        """Twelve hex digits of the content."""
        return str(self.about["digest"])


def find_sources(
    home: Home,
    names: Iterable[str],
    locations: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
    collect: bool = True,
) -> dict[str, Source]:
    """Every set of traces that cells name, opened once to see that it can be read; ``locations`` says where they are.

    Raises `InputError` for what is not there. ``say`` is told what takes a while. Without ``collect`` the reference
    model's traces, which take minutes the first time, are left out if they are not there yet.
    """
    wanted = [name for name in dict.fromkeys(names) if collect or name != REFERENCE or _collected(home)]
    return {name: _find(home, name, locations[name], say) for name in wanted}


def _collected(home: Home) -> bool:
    from seqmoe.reference.traces import collected_traces

    return collected_traces(_reference_folder(home)) is not None


def _reference_folder(home: Home) -> Path:
    return home.work / ".traces"


def describe(traces: TraceSet, name: str) -> dict[str, object]:
    """What a record says of the traces that it was computed from."""
    return {
        "digest": digest(traces),
        "name": name,
        "model": traces.model,
        "requests": len(traces.requests),
        "tokens": sum(column(traces.requests, "steps")),
        "layers": traces.layers,
        "experts": traces.experts,
        "top_k": traces.top_k,
        "router": traces.router,
        "licence": traces.licence,
    }


def _now_and_then(say: Callable[[str], None]) -> Callable[[CollectionProgress], None]:
    """Tell of a collection at its beginning and then at intervals."""
    last = -_SAY_SECONDS

    def report(now: CollectionProgress) -> None:
        nonlocal last
        if now.seconds - last >= _SAY_SECONDS:
            last = now.seconds
            say(f"collecting the reference model's traces, once: {in_words(now)}")

    return report


def _find(home: Home, name: str, source: str, say: Callable[[str], None]) -> Source:
    if source == REFERENCE:
        from seqmoe.reference.traces import reference_traces

        location = str(reference_traces(_reference_folder(home), _now_and_then(say)))
    elif "://" in source or source.startswith("hf:"):
        location = source
    else:
        location = str(Path(source).resolve())
        if not source or not Path(location).exists():
            raise InputError(f"traces {source!r}: no such file or folder; give what `seqmoe trace import` reads")
    return Source(location, describe(load_traces(location), name))
