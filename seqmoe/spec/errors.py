"""The exceptions for wrong input; the command line turns them into one line on stderr and exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something a person gave is wrong. The message names where, which key, which value, and what to do."""


class OutOfMemoryError(InputError, MemoryError):
    """What was asked for does not fit into memory. The message has the sum and what is available."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """A hint that names the nearest valid name, or all of them where none is near."""
    options = sorted(valid)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"valid: {', '.join(options)}"
