"""Where the temporary files of a run of the tests lie: in memory, if there is room."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
"""Linux' file system in memory."""
NEEDED = 6 << 30
"""Bytes that must be free: the files of the fast tests take 0.8 GB, their processes 4."""


def has_room(folder: Path = MEMORY, needed: int = NEEDED) -> bool:
    """Return whether temporary files may lie in this folder: programs run from it, and memory has room."""
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        return False
    about = os.statvfs(folder)
    runs_programs = not about.f_flag & os.ST_NOEXEC
    return runs_programs and min(about.f_bavail * about.f_frsize, psutil.virtual_memory().available) >= needed


def hold_temporary_files(folder: Path = MEMORY, needed: int = NEEDED) -> None:
    """Let this process and those that it starts put temporary files into the folder, unless TMPDIR is set.

    On a disk, a processor makes and deletes a file in ten times the time, and each fsync waits for milliseconds.
    """
    if not os.environ.get("TMPDIR") and has_room(folder, needed):
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None  # asked for anew
