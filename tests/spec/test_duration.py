"""Protects spans of time in words."""

from __future__ import annotations

import pytest

from seqmoe.spec.duration import duration


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "unknown time"), (12.4, "12 s"), (150, "2 min"), (7300, "2 h 2 min")]
)
def test_durations_read_as_people_say_them(seconds, text) -> None:
    assert duration(seconds) == text
