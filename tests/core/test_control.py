"""Protects the layout that device, worker and Python share: word numbers, rings without overlap, clear refusals."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from seqmoe.core import control
from seqmoe.core.control import Control, control_words

HEADER_FILE = Path(control.__file__).parent / "native" / "control.h"


def test_word_numbers_are_those_of_the_header():
    source = HEADER_FILE.read_text()
    names = re.search(r"enum Word : int \{(.*?)\}", source, re.DOTALL).group(1).split(",")
    for number, name in enumerate(name.strip() for name in names):
        upper = re.sub(r"(?<!^)([A-Z])", r"_\1", name[1:]).upper()
        assert getattr(control, upper) == number
    for name, value in re.findall(r"(k\w+) = (-?\d+)[,;]", source):
        upper = re.sub(r"(?<!^)([A-Z])", r"_\1", name[1:]).upper()
        if hasattr(control, upper):
            assert getattr(control, upper) == int(value)
    assert "kHeader = 16" in source and "kTaskWords = 3" in source and "kLandingWords = 3" in source


@pytest.mark.parametrize("capacity", [1, 2, 64])
def test_header_and_rings_share_no_word_and_leave_none(capacity):
    region = Control.of(capacity)
    region.tasks[:] = 1
    region.lent[:] = 2
    region.landings[:] = 3
    rest = region.words[control.HEADER :]
    assert [int((rest == value).sum()) for value in (1, 2, 3)] == [3 * capacity, 2 * capacity, 3 * capacity]
    assert len(rest) == 8 * capacity
    assert region.words[control.CAPACITY] == capacity
    assert region.words[: control.HEADER].sum() == capacity
    assert region.words[control.lent_at(capacity)] == 2
    assert region.words[control.landings_at(capacity)] == 3


def test_a_region_that_was_not_prepared_is_refused():
    with pytest.raises(ValueError, match="prepare"):
        Control(np.zeros(control_words(8), dtype=np.int64))
    with pytest.raises(ValueError, match="int64"):
        Control(np.zeros(control_words(8), dtype=np.int32))
    with pytest.raises(ValueError, match="prepare"):
        Control(np.zeros(4, dtype=np.int64))
    with pytest.raises(ValueError, match="takes"):
        Control.prepare(np.zeros(control_words(8), dtype=np.int64), 16)


@pytest.mark.parametrize("capacity", [0, -8, 12])
def test_a_capacity_that_is_no_power_of_two_is_refused(capacity):
    with pytest.raises(ValueError, match="power of two"):
        control_words(capacity)
