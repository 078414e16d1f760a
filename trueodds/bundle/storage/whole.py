"""Folders of versions on this machine: filled aside and checked, so that each is whole or not there."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from trueodds.bundle.bundle import Bundle, BundleError
from trueodds.bundle.contents import Key
from trueodds.files import naming


def keep(target: Path, key: Key, fill: Callable[[Path], None], *, prefix: str, place: str) -> None:
    """Fill a folder aside, check that it is a version, and rename it to `target`.

    Several processes may do so at once: what is there already stays if it is the version, and goes if it is not.

    Args:
        target: The folder, below one that is there.
        key: The version.
        fill: Writes the files to the folder that it is called with.
        prefix: The beginning of that folder's name, beside `target`.
        place: The name of the version's folder in messages.

    Raises:
        BundleError: what was written is not the version.
        OSError: it cannot be written.
    """
    aside = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        with naming(target, aside):
            fill(aside)
        content = _content(aside, place)
        if content != key:
            raise BundleError(f"the folder is {'/'.join(key)}, its content is {'/'.join(content)}")
        aside.chmod(0o755)  # mkdtemp's 0700 would hide it from a service under another user
        _put_in_place(aside, target, key)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def copy(source: Bundle, aside: Path) -> None:
    """Copy a bundle's files to a folder; they are on the disk when the call returns."""
    for name in source.files:
        shutil.copyfile(source.directory / name, aside / name)
        with (aside / name).open("r+b") as file:
            os.fsync(file.fileno())  # a file system that allocates late says only now that it is full


def is_whole(folder: Path, key: Key) -> bool:
    """Say whether a folder holds a version, undamaged."""
    try:
        return _content(folder) == key
    except BundleError:
        return False


def _put_in_place(aside: Path, target: Path, key: Key) -> None:
    for last in (False, True):
        try:
            if sys.platform == "win32" and target.is_dir() and not any(target.iterdir()):
                target.rmdir()
            aside.rename(target)  # in place of an empty folder, too
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or last:
                raise
            if is_whole(target, key):
                return
            shutil.rmtree(target, ignore_errors=True)
        else:
            return


def _content(folder: Path, place: str | None = None) -> Key:
    bundle = Bundle.load(folder, place)
    return bundle.card.name, bundle.version
