"""Files of a line each that say who has a role: whole or not there, and put back where a change comes to nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trueodds.files import naming


def write_line(path: Path, line: str) -> None:
    """Replace a file's content by a line; whoever calls holds the audit log of its folder.

    Raises:
        OSError: it cannot be written; the file is what it was.
    """
    _write_aside(path, aside := _aside(path, "new"), f"{line}\n".encode())
    aside.replace(path)


@contextmanager
def restoring(*paths: Path) -> Iterator[None]:
    """On an error in the block the files become again what they were.

    What that takes is written before the block begins, so a full file system cannot stand in its way.
    """
    before = {path: _aside(path, "before") for path in paths if path.exists()}
    try:
        for path, aside in before.items():
            _write_aside(path, aside, path.read_bytes())
        try:
            yield
        except BaseException:
            for path in paths:
                if path in before:
                    before[path].replace(path)
                else:
                    path.unlink(missing_ok=True)
            raise
    finally:
        for aside in before.values():
            aside.unlink(missing_ok=True)


def _aside(path: Path, what: str) -> Path:
    """Always the same name: what a killed process leaves is overwritten, and never becomes more."""
    return path.with_name(f".{path.name}.{what}")


def _write_aside(path: Path, aside: Path, data: bytes) -> None:
    try:
        with naming(path, aside), aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # a file system that allocates late says only now that it is full
    except OSError:
        aside.unlink(missing_ok=True)
        raise
