"""The pages of the paper's two tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from seqmoe.harness.claims.verdict import Judged
from seqmoe.report.page import fill
from seqmoe.report.site.document import Document
from seqmoe.report.site.figure_page import claims_of
from seqmoe.report.site.navigation import TABLES
from seqmoe.report.site.table import Cell, Row, Table
from seqmoe.simulate.table2 import CANDIDATES, CAPACITIES, CONFIDENCES, DEADLINES, PRINTED, table2
from seqmoe.spec.paths import Home

# `seqmoe table1` writes it: counting takes Transformers' classes, which a report does without.
TABLE1_DATA = "table1.csv"


def table_pages(home: Home, out: Path, judged: Sequence[Judged]) -> list[Document]:
    """Tables 1 and 2; table 1 from the data that `seqmoe table1` wrote to ``out``, or says how to get them."""
    return [_table1(out, judged), _table2(judged)]


def _table1(out: Path, judged: Sequence[Judged]) -> Document:
    path = out / TABLE1_DATA
    table = _models(pd.read_csv(path)) if path.is_file() else None
    body = fill("table1.html.j2", table=table, data=TABLE1_DATA, claims=claims_of("table 1", judged))
    title = "The paper's models, counted"
    return Document("table1.html", title, "Table 1", body, TABLES, "1", table is None)


def _models(data: pd.DataFrame) -> Table:
    rows = [
        Row(
            (
                Cell(str(row["model"])),
                Cell(str(row["format"])),
                _billions(row["routed"], row["printed_moe_parameters"]),
                _billions(row["total"], row["printed_total_parameters"]),
                _pair(row["top_k"], row["printed_active_experts"]),
                _pair(row["experts"], row["printed_experts"]),
                Cell(str(row["layers"]), int(row["layers"])),
                Cell("yes" if row["agrees"] else "no"),
            )
        )
        for _, row in data.iterrows()
    ]
    headings = ("Model", "Format", "MoE parameters", "All parameters", "Active experts", "Experts per layer", "Layers",
                "As printed")  # fmt: skip
    caption = "Counted on Transformers' own classes; below each number is what the paper prints."
    return Table("models", caption, headings, tuple(rows), numbers=(2, 3, 4, 5, 6))


def _billions(counted: int, printed: float) -> Cell:
    return Cell(f"{counted / 1e9:.2f}B", int(counted), below=f"{printed:g}B")


def _pair(counted: int, printed: int) -> Cell:
    return Cell(str(counted), int(counted), below=str(printed))


def _table2(judged: Sequence[Judged]) -> Document:
    given = Table(
        "candidates",
        "The tasks: at each deadline the transfers that fit before it are "
        + ", ".join(f"{fit} by {deadline}" for deadline, fit in enumerate(CAPACITIES, start=1))
        + ".",
        ("Candidate", "Deadline", "Confidence"),
        tuple(
            Row((Cell(name), Cell(str(deadline), deadline), Cell(f"{confidence:.2f}", confidence)))
            for name, deadline, confidence in zip(CANDIDATES, DEADLINES, CONFIDENCES, strict=True)
        ),
        numbers=(1, 2),
    )
    orders = Table(
        "orders",
        "What every order sends of them, computed with the scheduler's own code.",
        ("Order", "Sent", "Confidence", "Printed"),
        tuple(
            Row((Cell(row.title), Cell(row.chosen), Cell(f"{row.confidence:.2f}", row.confidence),
                 Cell(PRINTED.get(row.order, "–"))))
            for row in table2()
        ),
        numbers=(2,),
    )  # fmt: skip
    body = fill("table2.html.j2", given=given, orders=orders, claims=claims_of("table 2", judged))
    return Document("table2.html", "Which prefetches to send when not all fit", "Table 2", body, TABLES, "2")
