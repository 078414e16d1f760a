"""A process's output whose reader goes away before the end, as `head -1` does.

SIGPIPE stays ignored, as Python leaves it: a process that it kills would also die of any connection that breaks.
https://docs.python.org/3/library/signal.html#note-on-sigpipe
"""

from __future__ import annotations

import os
import select
import sys
from typing import TextIO

UNREAD = 141
"""Exit status of a command whose output nobody reads any more: what a shell shows where SIGPIPE ended it, 128 + 13."""


def flush() -> None:
    """Writes what is left of the standard output now, for at Python's exit nobody could catch the error.

    Raises:
        OSError: it cannot be written; the rest is dropped, so that the exit does not fail on it again.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # `drop` is to follow: `is_unread` could not tell afterwards
        raise
    except OSError:
        _drop(sys.stdout)
        raise


def is_unread() -> bool:
    """Tells whether the reader of this process's output or errors is gone, whatever pipe a BrokenPipeError is of."""
    return any(_is_unread(stream) for stream in (sys.stdout, sys.stderr))


def drop() -> None:
    """Leads output and errors nowhere from now on where their readers are gone."""
    for stream in (sys.stdout, sys.stderr):
        if _is_unread(stream):
            _drop(stream)


def _is_unread(stream: TextIO | None) -> bool:
    if stream is None or not hasattr(select, "poll"):  # Windows has none; a broken pipe is no BrokenPipeError there
        return False
    try:
        look = select.poll()
        look.register(stream.fileno(), 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in look.poll(0))
    except (OSError, ValueError):  # no file behind it, or a closed one
        return False


def _drop(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
