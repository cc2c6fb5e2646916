"""From records to files: the pages of the site, and the pictures and data that they lead to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqmoe.harness.against.history import Point
from seqmoe.harness.claims.verdict import judge
from seqmoe.harness.record import Record
from seqmoe.harness.studies.record import StudyRecord
from seqmoe.report import style
from seqmoe.report.environments import AnyRecord
from seqmoe.report.layout import save_svg
from seqmoe.report.parts import Part
from seqmoe.report.registry import FIGURES, entries_of, figures_of
from seqmoe.report.site.build import Site, build_site
from seqmoe.report.table import ShortTable
from seqmoe.spec.declared import read_toml
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.files import replacing
from seqmoe.spec.paths import Home

_DPI = 160


@dataclass(frozen=True, slots=True)
class FigureFiles:
    """What was written of one figure; no ``png`` where none was asked for."""

    page: Path
    svg: Path
    csv: Path
    png: Path | None


@dataclass(frozen=True, slots=True)
class Report:
    """The first page, the files of every figure that was drawn (by its number), and the tables for a terminal."""

    page: Path
    figures: dict[str, FigureFiles]
    parts: tuple[Part, ...]

    @property
    def table(self) -> ShortTable:
        """Figure 6's short table; ``KeyError`` where it was not asked for."""
        for part in self.parts:
            if part.short is not None:
                return part.short
        raise KeyError("figure 6 is not in this report")

    def page_of(self, figure: str) -> Path:
        """The page of a figure, drawn or not; ``StopIteration`` for one that is not in this report."""
        return self.page.with_name(next(f"{p.section.name}.html" for p in self.parts if p.figure == figure))


def write_report(
    records: Iterable[AnyRecord],
    home: Home,
    out: Path,
    suite: str | None = None,
    png: Sequence[str] | None = None,
    history: Sequence[Point] = (),
) -> Report:
    """Write the site to the folder ``out``: index.html, a page for every figure, its picture (.svg, .png), its .csv.

    ``suite`` restricts the site to one suite. Without it every figure of the paper has its page, and where nothing was
    run that says how to; with them come the verdicts on all claims, whose data are verdicts.csv. ``png`` names the
    figures that are written as PNG too, all if not given; ``history`` is what benchmarks took. Each file is replaced as
    a whole, so that a reader, or an interruption, never meets half of one. A ``suite`` that is neither declared nor
    recorded is an `InputError`, and so is a name in ``png`` that no figure has.
    """
    recorded = list(records)
    parts = _parts(recorded, home, suite)
    drawn = [part for part in parts if part.drawn or part.always or suite is not None]
    pictured = _pictured(png, drawn)
    judged = judge(home, recorded) if suite is None else []
    site = build_site(home, out, parts, [part.section.name for part in drawn], pictured, recorded, judged, history)
    out.mkdir(parents=True, exist_ok=True)
    files = {part.figure: _write(part, out, part.section.name in pictured) for part in drawn}
    _write_site(site, out)
    return Report(out / "index.html", files, tuple(parts))


def _parts(records: Sequence[AnyRecord], home: Home, suite: str | None) -> list[Part]:
    if suite is None:
        return [entry.part(records, home) for entry in FIGURES]
    return [entry.part(records, home, suite) for entry in entries_of(_figure_of(suite, records, home))]


def _figure_of(suite: str, records: Sequence[AnyRecord], home: Home) -> str:
    """The figure that a suite is drawn as: the one that it declares, else the one that its records are of."""
    declared = home.suites / f"{suite}.toml"
    own = [record for record in records if record.cell.suite == suite]
    known = {
        *(entry.suite for entry in FIGURES), *(path.stem for path in home.suites.glob("*.toml")),
        *(record.cell.suite for record in records),
    } - {""}  # fmt: skip
    if suite not in known:
        raise InputError(
            f"--suite {suite}: no record is of it, and suites/ does not declare it; {nearest(suite, known)}"
        )
    table = read_toml(declared) if declared.is_file() else {}
    study = "study" in table or any(isinstance(record, StudyRecord) for record in own)
    drawable = figures_of(StudyRecord if study else Record)
    figure = str(table.get("figure", "8" if study else "6"))
    if study and figure not in drawable:
        raise InputError(f"--suite {suite}: figure {figure} cannot be drawn; {nearest(figure, drawable)}")
    return figure if figure in drawable else "6"


def _pictured(png: Sequence[str] | None, drawn: Sequence[Part]) -> set[str]:
    names = [part.section.name for part in drawn]
    if png is None:
        return set(names)
    for name in png:
        if name not in names:
            raise InputError(f"--png {name}: no figure of this report; {nearest(name, names)}")
    return set(png)


def _write(part: Part, out: Path, picture: bool) -> FigureFiles:
    name = out / part.section.name
    csv, svg, png = (name.with_suffix(suffix) for suffix in (".csv", ".svg", ".png"))
    with style.theme():
        sheet = part.sheet()
        if picture:
            with replacing(png) as partial:
                sheet.savefig(partial, format="png", dpi=_DPI)
        with replacing(svg) as partial:
            save_svg(sheet, partial)
    with replacing(csv) as partial:
        part.data().to_csv(partial, index=False)
    return FigureFiles(name.with_suffix(".html"), svg, csv, png if picture else None)


def _write_site(site: Site, out: Path) -> None:
    for name, data in site.data.items():
        with replacing(out / name) as partial:
            data.to_csv(partial, index=False)
    for name, text in site.pages.items():
        with replacing(out / name) as partial:
            partial.write_text(text, encoding="utf-8")


__all__ = ["FigureFiles", "Report", "write_report"]
