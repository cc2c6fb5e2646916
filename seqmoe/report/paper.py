"""What the paper prints, as data frames; see results/paper/README.md for how it was read."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home

FIGURE_6 = ("figure", "panel", "model", "hardware", "axis", "x", "system", "metric", "value", "supported")
CLAIMS = ("id", "figure", "statement", "model", "value", "unit", "source")


def figure6_bars(home: Home) -> pd.DataFrame:
    """Every bar of figure 6: the columns `FIGURE_6`; ``value`` is NaN where the paper draws a cross."""
    bars = _read(home.paper / "fig6.csv", FIGURE_6)
    return bars.assign(x=bars["x"].astype(float), supported=bars["supported"].astype(bool))


def claims(home: Home) -> pd.DataFrame:
    """Every other number that the text states: the columns `CLAIMS`."""
    return _read(home.paper / "claims.csv", CLAIMS)


def shares_of_full_load(bars: pd.DataFrame) -> pd.DataFrame:
    """Figure 6's decode bars with ``value`` as the share of FullLoad at that residency; FullLoad is left out."""
    decode = bars[(bars["metric"] == "decode_tok_s") & (bars["axis"] == "residency")]
    keys = ["panel", "model", "x"]
    full = decode[decode["system"] == "FullLoad"].set_index(keys)["value"].rename("full")
    others = decode[decode["system"] != "FullLoad"].join(full, on=keys)
    return others.assign(value=others["value"] / others["full"], metric="share_of_full").drop(columns="full")


def _read(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; the transcription of the paper comes with the repository") from None
    if tuple(table.columns) != columns:
        raise InputError(f"{path}: columns {', '.join(table.columns)}; expected {', '.join(columns)}")
    return table
