"""`seqmoe` and `python -m seqmoe`: runs the command line and turns its failures into one line and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
from types import FrameType

import typer

from seqmoe.cli import app
from seqmoe.spec.errors import InputError


def main() -> None:
    """Entry point: wrong input ends in one line and exit code 2, an interrupt in 130."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, _terminated)
    try:
        code = app(standalone_mode=False) or 0
        if code == 130:  # the parser turns an interrupt into its code
            raise KeyboardInterrupt
    except InputError as error:
        print(f"seqmoe: {error}", file=sys.stderr)
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        print("seqmoe: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor shall the flush at exit complain
        code = 1
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"seqmoe: {where}{error.strerror}; check the path, its permissions and the free space", file=sys.stderr)
        code = 2
    except Exception as error:
        message = getattr(error, "format_message", None)  # the parser's own errors
        if message is None:
            raise
        text = " ".join(message().split())  # empty where the help was asked for by giving nothing
        if text:
            print(f"seqmoe: {text}; see --help", file=sys.stderr)
        code = getattr(error, "exit_code", 2)
    sys.exit(code)


def _terminated(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
