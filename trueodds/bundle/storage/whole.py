"""Folders of versions on this machine.

They are filled under another name and checked, so that each is complete or missing.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueodds.bundle.contents import BundleError, Key
from trueodds.files import naming

if TYPE_CHECKING:
    from trueodds.bundle.stored_bundle import StoredBundle


def keep(target: Path, key: Key, fill: Callable[[Path], None], *, prefix: str, place: str) -> None:
    """Fill a temporary folder, check that it holds the version, and rename it to `target`.

    Several processes may do this at once. An existing folder stays if it holds the version, and is removed otherwise.

    Args:
        target: The folder. Its parent exists.
        key: The version.
        fill: Writes the files to the folder that it is called with.
        prefix: Prefix of the temporary folder's name, beside `target`.
        place: Name of the version's folder in messages.

    Raises:
        BundleError: The written files are not the version.
        OSError: The folder cannot be written.
    """
    aside = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        with naming(target, aside):
            fill(aside)
        content = _content(aside, place)
        if content != key:
            raise BundleError(f"the folder is {'/'.join(key)}, its content is {'/'.join(content)}")
        aside.chmod(0o755)  # mkdtemp's 0700 would hide it from a service that runs as another user
        _put_in_place(aside, target, key)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def copy(source: StoredBundle[Any], aside: Path) -> None:
    """Copy a bundle's files to a folder. The call returns when they are on the disk."""
    for name in source.files:
        shutil.copyfile(source.directory / name, aside / name)
        with (aside / name).open("r+b") as file:
            os.fsync(file.fileno())  # some file systems report only now that they are full


def is_whole(folder: Path, key: Key) -> bool:
    """Return whether a folder holds an undamaged version."""
    try:
        return _content(folder) == key
    except BundleError:
        return False


def _put_in_place(aside: Path, target: Path, key: Key) -> None:
    """Rename the temporary folder to `target`, unless `target` holds the version already."""
    for last in (False, True):
        try:
            if sys.platform == "win32" and target.is_dir() and not any(target.iterdir()):
                target.rmdir()
            aside.rename(target)  # this also replaces an empty folder
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or last:
                raise
            if is_whole(target, key):
                return
            shutil.rmtree(target, ignore_errors=True)
        else:
            return


def _content(folder: Path, place: str | None = None) -> Key:
    from trueodds.bundle.storage.loading import load_bundle

    bundle = load_bundle(folder, place)
    return bundle.card.name, bundle.version
