"""Places for the files of an archive: a folder, or a bucket."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

from trueodds.bundle.storage.objects import Objects, is_url
from trueodds.files import naming

_UNFINISHED = ".part"


class Place(ABC):
    """A place for files that are never overwritten.

    Raises:
        OSError: In every method: the place cannot be read or written. For buckets it is a BucketError.
    """

    @abstractmethod
    def check(self, name: str, data: bytes) -> None:
        """Check that the place can be written and read, by a small file with this name."""

    @abstractmethod
    def create(self, name: str, source: Path) -> bool:
        """Write a file completely or not at all, unless one with this name exists. Return whether it was written."""

    @abstractmethod
    def fetch(self, name: str, target: Path) -> bool:
        """Copy a file from the place. Return whether it exists."""


class FolderPlace(Place):
    """A folder. A file appears under its name when it is complete and on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self, name: str, data: bytes) -> None:
        path = self._folder / name
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            if path.read_bytes() != data:
                raise OSError(f"{path} does not hold what was just written")

    def create(self, name: str, source: Path) -> bool:
        path = self._folder / name
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                return False
            # A process that was killed leaves such a file. Its name ends otherwise, so no pattern of Parquet finds it.
            handle, aside = tempfile.mkstemp(suffix=_UNFINISHED, prefix=f".{path.name}-", dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file, source.open("rb") as content:
                    shutil.copyfileobj(content, file)
                    file.flush()
                    os.fsync(file.fileno())  # some file systems report only now that they are full
                Path(aside).chmod(0o644)
                try:
                    os.link(aside, path)  # unlike a rename, this keeps a file that exists
                except FileExistsError:
                    return False
                except OSError:  # the file system has no hard links; equal names have equal contents
                    Path(aside).replace(path)
                _sync(path.parent)
            finally:
                Path(aside).unlink(missing_ok=True)
        return True

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


class BucketPlace(Place):
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


def place_of(address: str) -> Place:
    """Return the place of an address: a URL or the path of a folder."""
    return BucketPlace(address.rstrip("/")) if is_url(address) else FolderPlace(Path(address))
