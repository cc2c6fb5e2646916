"""A span of time in words, for progress and logs."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours, as people say it; None is not known."""
    if seconds is None:
        return "unknown time"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
