"""Ctrl-C and termination as one exception, raised once, so that what cleans up is not interrupted itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, the first SIGINT, SIGTERM or SIGHUP raises ``KeyboardInterrupt``; later ones are ignored until the end.

    Signals belong to the main thread; called from another one, this changes nothing. A SIGHUP that the caller ignores
    (``nohup``) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    chosen = [n for n in _SIGNALS if not (n == signal.SIGHUP and before[n] == signal.SIG_IGN)]

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in chosen:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in chosen:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in chosen:
            signal.signal(number, before[number])
