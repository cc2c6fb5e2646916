"""How many columns a legend on top of a sheet has room for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_IN_A_LINE = 6
# Inches of a letter of a legend, and of what stands around its text: a patch, or the longer sample of a line.
_LETTER = 0.066
PATCH, LINE = 0.5, 0.65


def columns_of(labels: Sequence[str], width: float, around: float) -> int:
    """As many columns, six at most, as a legend of these labels has room for; it is filled column by column.

    ``width`` is the sheet's in inches, ``around`` is `PATCH` or `LINE`.
    """
    for columns in range(min(_IN_A_LINE, len(labels)), 1, -1):
        # The first columns take one label more where they are not equally long.
        rows, longer = divmod(len(labels), columns)
        starts = [rows * column + min(column, longer) for column in range(columns + 1)]
        longest = [max(map(len, labels[start:end])) for start, end in pairwise(starts)]
        if sum(_LETTER * letters + around for letters in longest) <= width:
            return columns
    return 1
