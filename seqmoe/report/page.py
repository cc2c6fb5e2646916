"""The page: one HTML file with everything inside it, for a phone as for a wide screen, in light and in dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from seqmoe.harness.record import Record
from seqmoe.report import style
from seqmoe.report.facts import absences, facts, workloads
from seqmoe.report.figure6 import Figure6
from seqmoe.report.panel import Panel
from seqmoe.report.svg import panel_svg
from seqmoe.report.table import ShortTable
from seqmoe.spec.paths import Home
from seqmoe.spec.system import SYSTEMS

_LOAD = "load_average"
# What differs from cell to cell, or from one run to the next; the rest of a fingerprint lasts.
_PASSING = (_LOAD, "device", "weights")
_DIGEST_DIGITS = 12
_MARKS = {"unsupported": "cross", "not_installed": "ring"}


@dataclass(frozen=True, slots=True)
class Environment:
    """One fingerprint as (name, value) lines, and how many records were made in it."""

    host: str
    records: int
    first: str
    last: str
    lines: tuple[tuple[str, str], ...]


def render(figure: Figure6, summary: pd.DataFrame, table: ShortTable, records: list[Record], home: Home) -> str:
    """The page as text; it refers to nothing outside itself."""
    folder = jinja2.FileSystemLoader(Path(__file__).parent)
    templates = jinja2.Environment(loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    templates.filters["commands"] = _commands
    observed, printed = figure.observed(), figure.paper()
    everything = [*observed, *(panel for row in printed for panel in row.panels)]
    with style.theme():
        pictures = [Markup(panel_svg(panel, f"o{index}")) for index, panel in enumerate(observed)]
        grid = []
        for at, row in enumerate(printed):
            small = [panel_svg(panel, f"p{at}-{index}", width=3.5) for index, panel in enumerate(row.panels)]
            grid.append((row.title, [Markup(picture) for picture in small]))
    return templates.get_template("page.html.j2").render(
        facts=facts(summary, home),
        workloads=workloads(summary),
        observed=pictures,
        printed=grid,
        systems=_colours(everything),
        lanes=[lane for lane in style.LANES.values() if lane.name in {panel.lane for panel in everything}],
        marks=sorted({_MARKS.get(status, "triangle") for panel in everything for status in panel.statuses}),
        table=table,
        colour=style.colour,
        absences=absences(summary),
        environments=environments(records),
        specs=[spec for name, spec in SYSTEMS.items() if name in set(summary["system"])],
    )


def environments(records: Iterable[Record]) -> list[Environment]:
    """The distinct fingerprints of the records, the most recent first."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(repr(_lasting(record)), []).append(record)
    found = []
    for group in groups.values():
        started = sorted(record.started[:16].replace("T", " ") for record in group)
        lasting = _lasting(group[0])
        lines = [
            *_lines({key: value for key, value in lasting.items() if key != "host"}),
            *_ran_on(group),
            *_loads(group),
        ]
        host = str(lasting.get("host", "unknown host"))
        found.append(Environment(host, len(group), started[0], started[-1], tuple(lines)))
    return sorted(found, key=lambda environment: environment.last, reverse=True)


def _lasting(record: Record) -> dict[str, Any]:
    """The fingerprint without what differs from one run to the next."""
    return {key: value for key, value in record.environment.items() if key not in _PASSING}


def _ran_on(records: list[Record]) -> list[tuple[str, str]]:
    """The devices and, by their digests, the weights that were used."""
    devices = sorted({str(record.environment["device"]) for record in records if "device" in record.environment})
    lines = [("device", ", ".join(devices))] if devices else []
    for kind in ("model", "predictor"):
        pairs = ((record.cell.model, record.environment.get("weights", {}).get(kind)) for record in records)
        for model, digest in dict.fromkeys(pairs):
            if digest:
                lines.append((f"{'weights' if kind == 'model' else kind} of {model}", str(digest)[:_DIGEST_DIGITS]))
    return lines


def _loads(records: list[Record]) -> list[tuple[str, str]]:
    loads = [float(record.environment[_LOAD]) for record in records if _LOAD in record.environment]
    return [("load average", f"{min(loads):g} to {max(loads):g} while these were recorded")] if loads else []


def _commands(text: str) -> Markup:
    """Escape a text and set what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _colours(panels: list[Panel]) -> list[tuple[str, str]]:
    return [(name, style.colour(name)) for name in style.in_order(name for panel in panels for name in panel.systems)]


def _lines(value: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """A nested fingerprint as flat lines; what is a table inside a table goes by both names."""
    for key, inner in value.items():
        name = f"{above} {key}".strip().replace("_", " ")
        if isinstance(inner, dict):
            yield from _lines(inner, name)
        elif isinstance(inner, list) and inner and all(isinstance(item, dict) for item in inner):
            for index, item in enumerate(inner):
                yield from _lines(item, f"{name} {index}")
        elif isinstance(inner, list):
            yield name, ", ".join(map(str, inner)) or "none"
        elif isinstance(inner, bool):
            yield name, "yes" if inner else "no"
        else:
            yield name, str(inner)
