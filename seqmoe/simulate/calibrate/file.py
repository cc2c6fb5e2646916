"""Writes fitted constants into the calibration's file, and leaves all else in it as it is."""

from __future__ import annotations

import re
from pathlib import Path

from seqmoe.spec.calibration import Calibration
from seqmoe.spec.errors import InputError


def write_constants(path: Path, calibration: Calibration) -> None:
    """Replace the value of every constant in the file; one that the file lacks is an `InputError`."""
    text = path.read_text(encoding="utf-8")
    for constant in calibration.constant:
        place = re.compile(rf'(name = "{re.escape(constant.name)}"\nvalue = )[^\n]*')
        text, found = place.subn(rf"\g<1>{constant.value!r}", text)
        if found != 1:
            raise InputError(f"{path}: constant {constant.name!r}: expected its name and then its value, once")
    path.write_text(text, encoding="utf-8")
