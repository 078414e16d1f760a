"""Folder with the metrics of several workers, and the removal of folders that killed services left behind.

Each user of a folder holds a shared lock on it, which the kernel releases however the process ends. Each worker has a
file with its process id there, so that any worker can report the resource use of all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "trueodds-metrics-"
WORKER = "worker-"


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """Make a folder and remove it after the block. First remove this user's folders that no process holds."""
    remove_abandoned_folders()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        with contextlib.suppress(FileNotFoundError):
            lock = hold(folder)
            if folder.exists():
                break
            os.close(lock)  # another process's `remove_abandoned_folders` was faster than the lock
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def hold(folder: Path) -> int:
    """Keep others from removing the folder until the returned descriptor is closed, or the process ends."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    with contextlib.suppress(OSError):  # the file system has no locks, so nobody removes the folder either
        fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def sign_in(folder: Path) -> None:
    """Register this process as a worker."""
    (folder / f"{WORKER}{os.getpid()}").touch()


def processes(folder: Path, proc: Path = Path("/proc")) -> list[int]:
    """Return the ids of the supervisor and its workers, called by one of these. Ended processes are left out."""
    supervisor = os.getppid()
    pids = sorted(int(path.name.removeprefix(WORKER)) for path in folder.glob(f"{WORKER}*"))
    return [supervisor, *(pid for pid in pids if _parent(proc / str(pid)) == supervisor)]


def _parent(process: Path) -> int | None:
    try:
        status = (process / "status").read_text()
    except OSError:
        return None
    found = re.search(r"^PPid:\s*(\d+)$", status, re.MULTILINE)
    return int(found[1]) if found else None


def remove_abandoned_folders() -> None:
    """Remove the folders of this user that no process holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, another user's, or removed meanwhile
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(folder)
            finally:
                os.close(lock)
