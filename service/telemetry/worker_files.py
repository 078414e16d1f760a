"""The folder in which several workers count together, and those that killed services have left behind.

Whoever uses a folder holds a shared lock on it, which the kernel lets go of however the process ends. A worker leaves a
file with its process id there, so that each can say of all what they take from the machine.
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


def sign_in(folder: Path) -> None:
    """Name this process among the workers, for as long as it lives."""
    (folder / f"{WORKER}{os.getpid()}").touch()


def processes(folder: Path, proc: Path = Path("/proc")) -> list[int]:
    """The supervisor and its workers, as one of these sees them; who has ended is left out, whoever has its id now."""
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
