"""How many columns a legend on top of a sheet has room for."""

from __future__ import annotations

from collections.abc import Sequence

_IN_A_LINE = 6
# Inches of a letter of a legend, and of what stands around its text.
_LETTER, _AROUND = 0.066, 0.5


def columns_of(labels: Sequence[str], width: float) -> int:
    """As many columns, six at most, as a legend of these labels has room for; it is filled column by column."""
    for columns in range(min(_IN_A_LINE, len(labels)), 1, -1):
        rows = -(-len(labels) // columns)
        longest = [max(map(len, labels[start : start + rows])) for start in range(0, len(labels), rows)]
        if sum(_LETTER * letters + _AROUND for letters in longest) <= width:
            return columns
    return 1
