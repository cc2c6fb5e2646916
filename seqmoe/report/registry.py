"""Every figure of the report: from which suites its records come, of which kind they are, and what makes its part.

A new figure is one module with a function that returns a `Part`, and one entry here: the site, its navigation, its
files and `--suite` then know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from seqmoe.harness.record import Record
from seqmoe.harness.studies.record import StudyRecord
from seqmoe.report import parts
from seqmoe.report.environments import AnyRecord
from seqmoe.report.parts import Part
from seqmoe.report.sweep_section import part_sweep
from seqmoe.spec.paths import Home


@dataclass(frozen=True, slots=True)
class Entry:
    """One figure: its number or name, its ``suite`` and suites whose records stand ``beside`` it.

    ``build`` gets the records of these suites that are of ``kind``. ``suite`` is empty for a figure that needs none.
    """

    figure: str
    suite: str
    kind: type[Record] | type[StudyRecord]
    build: Callable[[Sequence[Any], Home], Part]
    beside: tuple[str, ...] = ()

    def part(self, records: Iterable[AnyRecord], home: Home, suite: str | None = None) -> Part:
        """The figure from those records that it is made of, or from those of ``suite`` in place of its own."""
        names = {self.suite, *self.beside} if suite is None else {suite}
        return self.build([one for one in records if one.cell.suite in names and isinstance(one, self.kind)], home)


# In the paper's order; then what the paper does not have.
FIGURES: tuple[Entry, ...] = (
    Entry("1", "fig1", Record, parts.part1),
    Entry("2", "fig2", StudyRecord, parts.part2),
    Entry("3", "fig3", StudyRecord, parts.part3),
    Entry("4", "fig4", Record, parts.part4),
    Entry("6", "fig6", Record, parts.part6, beside=("emulated",)),
    Entry("6-simulated", "fig6", Record, parts.part6_simulated, beside=("emulated",)),
    Entry("7", "fig7", StudyRecord, parts.part7),
    Entry("8", "fig8", StudyRecord, parts.part8),
    Entry("9", "fig9", Record, parts.part9),
    Entry("fullload", "fullload", Record, parts.part_fullload),
    Entry("sweep", "sweep", Record, part_sweep, beside=("misses",)),
)


def entries_of(figure: str) -> list[Entry]:
    """The entries of a figure, "6" with "6-simulated"; empty for a figure that is none."""
    return [entry for entry in FIGURES if entry.figure.partition("-")[0] == figure]


def figures_of(kind: type) -> list[str]:
    """The figures that records of one kind are drawn as."""
    return list(dict.fromkeys(entry.figure.partition("-")[0] for entry in FIGURES if entry.kind is kind))
