"""From records to files: figures, their data, and one page with a section for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqmoe.harness.claims.verdict import judge
from seqmoe.harness.record import Record
from seqmoe.harness.studies.record import StudyRecord
from seqmoe.report import style
from seqmoe.report.environments import AnyRecord
from seqmoe.report.page import Section, render
from seqmoe.report.parts import Part, part1, part2, part3, part4, part6, part7, part8, part9, part_fullload
from seqmoe.report.table import ShortTable
from seqmoe.report.verdict_section import section_verdict, verdicts_data
from seqmoe.spec.declared import read_toml
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.files import replacing
from seqmoe.spec.paths import Home

# The suites that a page is made of, by the figure of each, in the paper's order; then what the paper does not have.
SUITES = {
    "1": "fig1", "2": "fig2", "3": "fig3", "4": "fig4", "6": "fig6", "7": "fig7", "8": "fig8", "9": "fig9",
    "fullload": "fullload",
}  # fmt: skip
# Suites whose records stand in another's section.
_BESIDE = {"emulated": "fig6"}
_STUDIES = {"2": part2, "3": part3, "7": part7, "8": part8}
_SYSTEMS = {"1": part1, "4": part4, "6": part6, "9": part9, "fullload": part_fullload}
_DPI = 160
_VERDICTS = "verdicts.csv"


@dataclass(frozen=True, slots=True)
class FigureFiles:
    """What was written of one figure."""

    png: Path
    svg: Path
    csv: Path


@dataclass(frozen=True, slots=True)
class Report:
    """The page, the files of every figure that was drawn (by its number), and the tables for a terminal."""

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


def write_report(records: Iterable[AnyRecord], home: Home, out: Path, suite: str | None = None) -> Report:
    """Write index.html and, for every figure, figure<n>.png, .svg and .csv to the folder ``out``.

    ``suite`` restricts the report to one suite. Without it every figure of the paper that can be drawn has its section,
    and where nothing was run that says how to; before them are the verdicts on all claims, whose data are verdicts.csv.
    Each file is replaced as a whole, so that a reader, or an interruption, never meets half of one. A ``suite`` that is
    neither declared nor recorded is an `InputError`.
    """
    recorded = list(records)
    asked = list(SUITES.items()) if suite is None else [(_figure_of(suite, recorded, home), suite)]
    parts = [_part(figure, _records_of(name, recorded, suite), home) for figure, name in asked]
    drawn = [part for part in parts if part.drawn or (part.figure == "6") or suite is not None]
    names = [f"{part.section.name}.csv" for part in drawn]
    used = [record for part in parts for record in part.records]
    sections = [part.section for part in parts]
    judged = judge(home, recorded) if suite is None else []
    if judged:
        sections.insert(0, section_verdict(judged))
        names.insert(0, _VERDICTS)
    page = render(sections, used, names)
    out.mkdir(parents=True, exist_ok=True)
    files = {part.figure: _write(part, out) for part in drawn}
    if judged:
        with replacing(out / _VERDICTS) as partial:
            verdicts_data(judged).to_csv(partial, index=False)
    path = out / "index.html"
    with replacing(path) as partial:
        partial.write_text(page, encoding="utf-8")
    return Report(path, files, tuple(parts))


def _records_of(name: str, records: Sequence[AnyRecord], asked: str | None) -> list[AnyRecord]:
    """The records of a suite, and of those that stand beside it unless one suite alone is asked for."""
    beside = {suite for suite, other in _BESIDE.items() if other == name and asked is None}
    return [record for record in records if record.cell.suite in {name, *beside}]


def _part(figure: str, records: Sequence[AnyRecord], home: Home) -> Part:
    if figure in _STUDIES:
        return _STUDIES[figure]([record for record in records if isinstance(record, StudyRecord)], home)
    return _SYSTEMS[figure]([record for record in records if isinstance(record, Record)], home)


def _figure_of(suite: str, records: Sequence[AnyRecord], home: Home) -> str:
    """The figure that a suite is drawn as: the one that it declares, else the one that its records are of."""
    declared = home.suites / f"{suite}.toml"
    own = [record for record in records if record.cell.suite == suite]
    known = {*SUITES.values(), *(path.stem for path in home.suites.glob("*.toml")), *(r.cell.suite for r in records)}
    if suite not in known:
        raise InputError(
            f"--suite {suite}: no record is of it, and suites/ does not declare it; {nearest(suite, known)}"
        )
    table = read_toml(declared) if declared.is_file() else {}
    study = "study" in table or any(isinstance(record, StudyRecord) for record in own)
    figure = str(table.get("figure", "8" if study else "6"))
    if study and figure not in _STUDIES:
        raise InputError(f"--suite {suite}: figure {figure} cannot be drawn; {nearest(figure, _STUDIES)}")
    return figure if study or figure in _SYSTEMS else "6"


def _write(part: Part, out: Path) -> FigureFiles:
    name = out / part.section.name
    files = FigureFiles(name.with_suffix(".png"), name.with_suffix(".svg"), name.with_suffix(".csv"))
    with style.theme():
        sheet = part.sheet()
        with replacing(files.png) as partial:
            sheet.savefig(partial, format="png", dpi=_DPI)
        with replacing(files.svg) as partial:
            sheet.savefig(partial, format="svg", metadata={"Date": None})
    with replacing(files.csv) as partial:
        part.data().to_csv(partial, index=False)
    return files


__all__ = ["SUITES", "FigureFiles", "Part", "Report", "Section", "write_report"]
