"""Output of a process whose reader ends early, as `head -1` does.

SIGPIPE stays ignored, which is Python's default. Otherwise any broken connection would also kill the process.
https://docs.python.org/3/library/signal.html#note-on-sigpipe
"""

from __future__ import annotations

import os
import select
import sys
from typing import TextIO

UNREAD = 141
"""Exit status of a command whose output nobody reads any more: 128 + 13, as a shell reports after SIGPIPE."""


def flush() -> None:
    """Write the rest of the standard output now. At Python's exit nobody could catch the error.

    Raises:
        OSError: It cannot be written. The rest is dropped, so that the exit does not fail on it again.
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
    """Return whether the reader of this process's output or errors has ended.

    The pipe that raised a BrokenPipeError may be a different one.
    """
    return any(_is_unread(stream) for stream in (sys.stdout, sys.stderr))


def drop() -> None:
    """Discard output and errors from now on if their readers have ended."""
    for stream in (sys.stdout, sys.stderr):
        if _is_unread(stream):
            _drop(stream)


def _is_unread(stream: TextIO | None) -> bool:
    if stream is None or not hasattr(select, "poll"):  # not on Windows, where a broken pipe is no BrokenPipeError
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
