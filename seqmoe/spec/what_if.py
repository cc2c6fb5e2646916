"""What a simulated cell changes of its machine or its predictor, as a suite declares it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from seqmoe.spec.errors import nearest
from seqmoe.spec.hardware import HardwareProfile

_KINDS = ("link", "recall")


@dataclass(frozen=True, slots=True)
class WhatIf:
    """``link`` are GB/s in the place of the profile's sustained rate, ``recall`` that of the top k + 3 one step ahead.

    None leaves the machine's or the model's own.
    """

    link: float | None = None
    recall: float | None = None

    def of(self, hardware: HardwareProfile) -> HardwareProfile:
        """The profile with that link; what other traffic leaves of it keeps its share."""
        if self.link is None:
            return hardware
        share = None if hardware.link_contended is None else hardware.link_contended / hardware.link_sustained
        return replace(
            hardware,
            link_sustained=self.link,
            link_peak=max(self.link, hardware.link_peak),
            link_contended=None if share is None else share * self.link,
        )


def what_if(text: str) -> WhatIf:
    """Read ``link=GB/s`` or ``recall=SHARE``, or nothing; ``ValueError`` for anything else."""
    if not text:
        return WhatIf()
    kind, _, number = text.partition("=")
    if kind not in _KINDS:
        raise ValueError(f"what_if = {text!r}: {nearest(kind, _KINDS)}, for example 'link=50'")
    try:
        value = float(number)
    except ValueError:
        raise ValueError(f"what_if = {text!r}: {number!r} is not a number, for example '{kind}=0.9'") from None
    most = 1.0 if kind == "recall" else math.inf
    if not 0 < value <= most or math.isinf(value):
        raise ValueError(f"what_if = {text!r}: must be positive" + (", at most 1" if kind == "recall" else ""))
    return WhatIf(link=value) if kind == "link" else WhatIf(recall=value)
