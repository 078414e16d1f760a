"""The folder in which several workers count together, and those that killed services have left behind.

Whoever uses a folder holds a shared lock on it, which the kernel lets go of however the process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "trueodds-metrics-"


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """A new folder, removed with the block; those of this user that nobody holds are removed first."""
    remove_abandoned()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        with contextlib.suppress(FileNotFoundError):
            lock = hold(folder)
            if folder.exists():
                break
            os.close(lock)  # somebody else's `remove_abandoned` was faster than the lock
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def hold(folder: Path) -> int:
    """Keep others from removing the folder until the descriptor that is returned is closed, or the process ends."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    with contextlib.suppress(OSError):  # a file system without locks: there nobody can remove it either
        fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def remove_abandoned() -> None:
    """Remove the folders of this user that no process holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # held, another user's, or gone by now
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(folder)
            finally:
                os.close(lock)
