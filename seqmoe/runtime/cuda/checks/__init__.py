"""What only a GPU can show, one check after another: ``python -m seqmoe.runtime.cuda.checks NAME``.

Each is a function of a `seqmoe.runtime.cuda.device.Device` that returns what it found as plain values and raises
`CheckFailed` with a sentence. They run on a CPU too, where they show less.
"""

from __future__ import annotations


class CheckFailed(AssertionError):
    """What was found is not what must be."""
