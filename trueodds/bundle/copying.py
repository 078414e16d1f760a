"""Copying a bundle to where it is published: whole or not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from trueodds.bundle import locks
from trueodds.bundle.bundle import CARD, Bundle, BundleError
from trueodds.bundle.contents import DEFAULT
from trueodds.files import naming

PUBLISHING = ".publishing"
"""Lock of those who copy bundles to a model's folder, and the beginning of the names under which they do."""


def loaded(bundle: str | Path) -> Bundle:
    """A bundle that can be published.

    Raises:
        BundleError: it is damaged, or its name is taken.
    """
    source = Bundle.load(bundle)
    if source.card.name == DEFAULT:
        raise BundleError(
            f"{source.directory / CARD}: the name '{DEFAULT}' is taken by the file that names the default"
        )
    return source


def copy_bundle(source: Bundle, target: Path) -> None:
    """Copy a bundle to a folder that is not there, written aside and renamed.

    One publisher of a model at a time, so what else lies aside is left over.
    """
    folder, is_new = target.parent, not target.parent.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locks.lock(folder / PUBLISHING, lambda: None):
            for left_over in folder.glob(f"{PUBLISHING}-*"):
                shutil.rmtree(left_over, ignore_errors=True)
            if not target.exists():  # another publisher of the same content may have been first
                _copy_aside(source, target)
    except OSError:
        if is_new and not any(path.name != PUBLISHING for path in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _copy_aside(source: Bundle, target: Path) -> None:
    aside = Path(tempfile.mkdtemp(prefix=f"{PUBLISHING}-", dir=target.parent))
    try:
        with naming(target, aside):
            for name in source.files:
                shutil.copyfile(source.directory / name, aside / name)
                with (aside / name).open("r+b") as file:
                    os.fsync(file.fileno())  # a file system that allocates late says only now that it is full
        Bundle.load(aside)
        aside.chmod(0o755)  # mkdtemp's 0700 would hide it from a service under another user
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
