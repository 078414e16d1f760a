"""Parquet files of a path, a pattern or a URL: their names, and a state that changes when one of them does."""

from __future__ import annotations

import glob
import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trueodds.bundle.storage.objects import Objects, is_url
from trueodds.files import FileError, sha256


class TableFiles(ABC):
    """Parquet files that DuckDB reads."""

    pattern: str

    @abstractmethod
    def names(self) -> list[str]:
        """Return their names, in order. Signs of a pattern in a name are escaped.

        Raises:
            FileError: There is none.
        """

    @abstractmethod
    def state(self) -> object:
        """Return a value that is equal as long as no file changes, appears or goes."""

    @abstractmethod
    def open_in(self, connection: Any) -> None:
        """Let a connection of DuckDB read the files."""


@dataclass(frozen=True)
class LocalFiles(TableFiles):
    """Files of this machine."""

    pattern: str

    def names(self) -> list[str]:
        files = self._files()
        if not files:
            raise FileError(
                f"{self.pattern} names no file; check the path, and quote a pattern so that the shell keeps it"
            )
        return [glob.escape(str(path)) for path in files]

    def state(self) -> object:
        """Return names, sizes and times of change."""
        return [(str(path), (s := path.stat()).st_size, s.st_mtime_ns, s.st_ino) for path in self._files()]

    def open_in(self, connection: Any) -> None:
        pass

    def _files(self) -> list[Path]:
        path = Path(self.pattern)
        if path.is_file():
            return [path]
        absolute = path.absolute()
        return sorted(Path(absolute.anchor).glob(str(absolute.relative_to(absolute.anchor))))


@dataclass(frozen=True)
class BucketFiles(TableFiles):
    """Objects of a bucket, read in parts by fsspec.

    s3fs reads each part on the condition that the object is still the one that was opened.

    Raises:
        BucketError: In every method: the bucket cannot be reached, denies access or does not exist.
        MissingExtraError: In every method: the package for the URL is not installed.
    """

    pattern: str

    @cached_property
    def _objects(self) -> Objects:
        return Objects(self.pattern)

    def names(self) -> list[str]:
        found = sorted(self._objects.match())
        if not found:
            raise FileError(
                f"{self.pattern} names no object; check the bucket, the prefix and the pattern, and quote it, so that"
                " the shell keeps it"
            )
        return [glob.escape(name) for name in found]

    def state(self) -> object:
        """Return names and entity tags."""
        return sorted((name, entry.etag, entry.size) for name, entry in self._objects.match().items())

    def open_in(self, connection: Any) -> None:
        scheme = self.pattern.partition("://")[0]
        readers: dict[str, Any] = vars(connection).setdefault("trueodds_readers", {})
        is_new = scheme not in readers
        readers[scheme] = self._objects.reader(readers.get(scheme))
        if is_new:
            connection.register_filesystem(readers[scheme])


def files_of(pattern: str) -> TableFiles:
    """Return the files of a path, a pattern or a URL. Nothing is read yet."""
    return BucketFiles(pattern) if is_url(pattern) else LocalFiles(pattern)


def size_and_hash(name: str) -> tuple[int, str]:
    """Return the bytes and the SHA-256 hash of a file or an object. It is read once more for that.

    Raises:
        OSError: It cannot be read.
    """
    if not is_url(name):
        return Path(name).stat().st_size, sha256(Path(name))
    digest, size = hashlib.sha256(), 0
    for block in Objects(name).blocks():
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()
