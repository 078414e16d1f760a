"""Locks between processes, by lock files. A lock ends with its process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


class BusyError(RuntimeError):
    """Another process holds the lock."""


@contextmanager
def lock(path: Path, wait: Callable[[], object] | None = None) -> Iterator[None]:
    """Hold the lock file `path`. It is created if it does not exist.

    Args:
        path: Lock file.
        wait: Called once before waiting for another process that holds the lock.

    Raises:
        BusyError: Another process holds the lock, and there is no `wait`.
    """
    with path.open("ab") as file:
        if not lock_file(file, block=False):
            if wait is None:
                raise BusyError(f"another process holds {path}")
            wait()
            lock_file(file)
        yield


def lock_file(file: IO[bytes], *, block: bool = True) -> bool:
    """Lock an open file until it is closed. Return False if another process holds the lock and `block` is not set."""
    if sys.platform == "win32":
        return True
    import fcntl

    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | (0 if block else fcntl.LOCK_NB))
        return True
    return False
