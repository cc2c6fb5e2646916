"""Text as it is generated, and how fast, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from seqmoe.cli.base import err, out

if TYPE_CHECKING:
    from seqmoe.runtime.stream import Stream

# Live text is redrawn from the top; what no longer fits is not shown until the end.
_LINES = 12


@contextmanager
def live_text(quiet: bool) -> Iterator[Callable[[str, Stream], None]]:
    """Gives what to call with each piece of text.

    Text goes to stdout as it comes, unless ``quiet``. On a terminal stderr shows the rate and the hit rate meanwhile;
    where stdout is the same terminal, the text is drawn above them and left on stdout at the end.
    """
    same = err.is_terminal and out.is_terminal and not quiet
    text = ""

    def plain(piece: str) -> None:
        if not quiet and not same:
            out.file.write(piece)
            out.file.flush()

    if not err.is_terminal:
        yield lambda piece, stream: plain(piece)
    else:
        with Live(console=err, transient=True, refresh_per_second=8) as live:

            def show(piece: str, stream: Stream) -> None:
                nonlocal text
                text += piece
                plain(piece)
                shown = "\n".join(text.split("\n")[-_LINES:]) + "\n" if same else ""
                live.update(Text(shown + status(stream)))

            yield show
    if same:
        out.print(text, markup=False, highlight=False)
    elif not quiet:
        out.file.write("\n")


def status(stream: Stream) -> str:
    """One line: tokens so far, decode throughput and hit rate."""
    rate = "" if stream.hit_rate is None else f", hit rate {stream.hit_rate:.1%}"
    return f"{len(stream.tokens)} tokens, {stream.tok_s:.1f} tok/s{rate}"
