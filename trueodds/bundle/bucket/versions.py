"""Versions fetched from a bucket to this machine, each checked and whole before it has its name."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

from trueodds.bundle.bucket.objects import Bucket, BucketError
from trueodds.bundle.bucket.snapshot import Snapshot
from trueodds.bundle.bundle import CARD, Bundle, BundleError
from trueodds.bundle.contents import Key
from trueodds.files import naming

VARIABLE = "TRUEODDS_MODELS_CACHE"
_ASIDE = ".fetching-"
_ABANDONED_SECONDS = 24 * 3600.0


def cache_of(url: str, cache: Path | None = None) -> Path:
    """The folder of one bucket's models in `cache`: TRUEODDS_MODELS_CACHE, or trueodds in the user's cache folder."""
    if cache is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = Path(os.environ.get(VARIABLE) or Path(home) / "trueodds")
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", url.partition("://")[2]).strip("-.")[:60]
    return cache / f"{readable}-{sha256(url.rstrip('/').encode()).hexdigest()[:8]}"


def fetch(bucket: Bucket, snapshot: Snapshot, key: Key, folder: Path) -> Path:
    """The folder of a version, fetched now if it is not there, or no longer what it was. Several may do so at once.

    Raises:
        BundleError: what lies in the bucket is not the version that it says.
        BucketError: it is not here, and the bucket cannot be read.
        OSError: it cannot be written here.
    """
    target = folder.joinpath(*key)
    if (target / CARD).exists() and _is(target, key):
        return target
    if key not in snapshot.versions:
        raise BucketError(f"{'/'.join(key)} was not fetched before, and {bucket.url} cannot be read now")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=target.parent))
    try:
        with naming(target):
            for name in snapshot.files(key):
                bucket.download("/".join((*key, name)), aside / name)
        content = _content(aside)
        if content != key:
            raise BundleError(f"the folder is {'/'.join(key)}, its content is {'/'.join(content)}")
        aside.chmod(0o755)
        os.utime(aside, (snapshot.versions[key],) * 2)
        put_in_place(aside, target, key)
    except (BundleError, FileNotFoundError) as error:
        place = "/".join((bucket.url.rstrip("/"), *key))
        words = str(error).replace(str(aside), place)
        cure = "publish it again; if that does not help, delete it there and publish it once more"
        raise BundleError(f"{words}: half-uploaded or altered; {cure}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def put_in_place(aside: Path, target: Path, key: Key) -> None:
    """Give a whole bundle its name, unless another process was first. What was there and is no such bundle goes."""
    for last in (False, True):
        try:
            if sys.platform == "win32" and target.is_dir() and not any(target.iterdir()):
                target.rmdir()
            aside.rename(target)  # in place of an empty folder, too
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or last:
                raise
            if _is(target, key):
                return
            shutil.rmtree(target, ignore_errors=True)
        else:
            return


def clear_abandoned(folder: Path) -> None:
    """Remove what processes that were killed had begun to fetch a day ago or earlier."""
    for aside in folder.glob(f"*/{_ASIDE}*"):
        if time.time() - aside.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(aside, ignore_errors=True)


def _content(folder: Path) -> Key:
    bundle = Bundle.load(folder)
    return bundle.card.name, bundle.version


def _is(folder: Path, key: Key) -> bool:
    try:
        return _content(folder) == key
    except BundleError:
        return False
