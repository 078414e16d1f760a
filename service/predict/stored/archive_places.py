"""Places for the files of an archive: a folder, or a bucket."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from trueodds.bundle.storage.objects import Objects, is_url
from trueodds.files import naming

_UNFINISHED = ".part"
_ABANDONED_SECONDS = 3600.0
"""Age from which a temporary file belongs to a process that was killed."""


class ArchivePlace(ABC):
    """A place for files that are never overwritten.

    Raises:
        OSError: In every method: the place cannot be read or written. For buckets it is a BucketError.
    """

    @abstractmethod
    def check(self, name: str, data: bytes) -> None:
        """Check that the place can be written and read, by a small file. Every process gives the same name and data."""

    @abstractmethod
    def create(self, name: str, source: Path) -> bool:
        """Write a file completely or not at all, unless one with this name exists. Return whether it was written."""

    @abstractmethod
    def fetch(self, name: str, target: Path) -> bool:
        """Copy a file from the place. Return whether it exists."""


class ArchiveFolder(ArchivePlace):
    """A folder. A file appears under its name when it is complete and on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self, name: str, data: bytes) -> None:
        path = self._folder / name
        with self._aside(path, io.BytesIO(data)) as aside:
            aside.replace(path)
        if path.read_bytes() != data:
            raise OSError(f"{path} does not hold what was just written")

    def create(self, name: str, source: Path) -> bool:
        path = self._folder / name
        if path.exists():
            self._sync_folders(path)  # another process may have been killed before it did so
            return False
        with source.open("rb") as content, self._aside(path, content) as aside:
            try:
                os.link(aside, path)  # unlike a rename, this keeps a file that exists
            except FileExistsError:
                self._sync_folders(path)
                return False
            except OSError:  # the file system has no hard links; equal names have equal contents
                aside.replace(path)
            self._sync_folders(path)
        return True

    def _sync_folders(self, path: Path) -> None:
        """Make a file's name durable, and those of its folders, which may be new."""
        for folder in path.parents:
            _sync(folder)
            if folder == self._folder:
                _sync(folder.parent)
                break

    @contextlib.contextmanager
    def _aside(self, path: Path, content: IO[bytes]) -> Iterator[Path]:
        """Write content to a temporary file beside `path`, durably. Remove the file after the block.

        A process that is killed leaves it. Its name ends otherwise, so no pattern of Parquet files finds it. The next
        attempt at the same name removes it, if it is too old to be written now.
        """
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            for old in path.parent.glob(f".{glob.escape(path.name)}-*{_UNFINISHED}"):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - old.stat().st_mtime > _ABANDONED_SECONDS:
                        old.unlink()
            handle, name = tempfile.mkstemp(suffix=_UNFINISHED, prefix=f".{path.name}-", dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    shutil.copyfileobj(content, file)
                    file.flush()
                    os.fsync(file.fileno())  # some file systems report only now that they are full
                Path(name).chmod(0o644)
                yield Path(name)
            finally:
                Path(name).unlink(missing_ok=True)

    def fetch(self, name: str, target: Path) -> bool:
        try:
            shutil.copyfile(self._folder / name, target)
        except FileNotFoundError:
            return False
        return True


def _sync(folder: Path) -> None:
    """Make the names in a folder durable, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class ArchiveBucket(ArchivePlace):
    """Objects under a URL such as `s3://bucket/prefix`."""

    def __init__(self, url: str) -> None:
        self._objects = Objects(url)

    def check(self, name: str, data: bytes) -> None:
        self._objects.replace(name, data)
        if self._objects.read([name]).get(name) != data:
            place = f"{self._objects.url}/{name}"
            raise OSError(f"{place} does not hold what was just written; check the bucket's settings")

    def create(self, name: str, source: Path) -> bool:
        return self._objects.create(name, source.read_bytes())

    def fetch(self, name: str, target: Path) -> bool:
        try:
            self._objects.download(name, target)
        except FileNotFoundError:
            return False
        return True


def place_of(address: str) -> ArchivePlace:
    """Return the place of an address: a URL or the path of a folder."""
    return ArchiveBucket(address.rstrip("/")) if is_url(address) else ArchiveFolder(Path(address))
