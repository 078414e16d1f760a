"""Models in a folder, changed under locks and by renaming; and a folder with one bundle."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueodds.bundle.audit_log import log_of, repair
from trueodds.bundle.contents import BundleError, Key, Listing, VersionSummary
from trueodds.bundle.storage.locks import lock, lock_file
from trueodds.bundle.storage.storage import Storage, T, Verb
from trueodds.bundle.storage.whole import copy, keep
from trueodds.files import naming
from trueodds.processes.choices import DEFAULT, ROLES
from trueodds.texts import NAME

if TYPE_CHECKING:
    from trueodds.bundle.stored_bundle import StoredBundle

PUBLISHING = ".publishing"
"""Lock of the processes that copy bundles to a model's folder, and prefix of their unfinished folders."""


class Folder(Storage):
    """MODELS/<name>/<version>/ and the small files beside them. Several processes may change it at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, str(path), str(path.resolve()))

    def list(self) -> Listing:
        """List each model's folder. It takes 0.1 ms for ten versions."""

        def read(name: str) -> bytes | None:
            try:
                return (self.path / name).read_bytes()
            except FileNotFoundError:
                return None

        def modified_at(name: str) -> float:
            return (self.path / name).stat().st_mtime

        models = {name: _names(self.path / name) for name in _names(self.path)}
        return Listing(self.given_place, models, read, modified_at, exists=self.path.is_dir())

    def summary(self, key: Key) -> VersionSummary:
        return VersionSummary.of_files(self.folder(key), key[1]) or super().summary(key)

    def write(self, model: str | None, verb: Verb[T]) -> T:
        with ExitStack() as stack:
            logs: dict[str, FileIO] = {}
            # Lock a model's log before the log of the default model: a fixed order avoids deadlocks.
            for name in (model, None) if model is not None and re.fullmatch(NAME, model) else (None,):
                if (file := self.path / log_of(name)).parent.is_dir():
                    logs[log_of(name)] = stack.enter_context(file.open("a+b", buffering=0))
                    lock_file(logs[log_of(name)])
            answer, steps = verb(self.list())
            # Include all roles, so that files left by a killed process are removed for each of them.
            roles = [(self.path / log).with_name(role) for log in logs for role in ROLES]
            with _cutting_back(logs.values()), _restoring(roles):
                for name, data in steps:
                    if name in logs:
                        _append(logs[name], data or b"", self.path / name)
                    elif data is None:
                        (self.path / name).unlink(missing_ok=True)
                    else:
                        _replace(self.path / name, data)
        return answer

    def upload(self, source: StoredBundle[Any]) -> Path:
        """Copy a bundle.

        One publisher of a model copies at a time, so other unfinished folders are left over from killed ones.
        """
        from trueodds.bundle.storage.loading import load_bundle

        key = source.card.name, source.version
        target, is_new = self.folder(key), not self.folder(key).parent.exists()
        if target.exists():
            try:
                load_bundle(target)
            except BundleError as error:
                raise BundleError(f"{error}. Remove {target} and publish again") from None
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with lock(target.parent / PUBLISHING, lambda: None):
                for left_over in target.parent.glob(f"{PUBLISHING}-*"):
                    shutil.rmtree(left_over, ignore_errors=True)
                if not target.exists():  # another publisher may have copied the same content meanwhile
                    keep(target, key, lambda aside: copy(source, aside), prefix=f"{PUBLISHING}-", place=str(target))
        except OSError:
            if is_new and not any(path.name != PUBLISHING for path in target.parent.iterdir()):
                shutil.rmtree(target.parent, ignore_errors=True)
            raise
        return target

    def check_writable(self) -> None:
        with tempfile.TemporaryFile(dir=self.path):
            pass


class Single(Storage):
    """One bundle's folder, served as the only published version, such as a read-only Kubernetes mount.

    Its model has the name in its card and is the default.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, str(path), str(path.resolve()))
        self._listing: Listing | None = None

    def list(self) -> Listing:
        """Return the one model and version, once the folder holds a complete bundle."""
        if self._listing is None:
            from trueodds.bundle.storage.loading import load_bundle

            bundle = load_bundle(self.path)
            name, version = bundle.card.name, bundle.version
            texts: dict[str, bytes] = {DEFAULT: f"{name}/{version}\n".encode()}
            self._listing = Listing(self.given_place, {name: frozenset({version})}, texts.get, lambda _: 0.0)
        elif not self.path.is_dir():
            raise OSError(f"{self.path} is gone")
        return self._listing

    def folder(self, key: Key) -> Path:
        return self.path


def _names(folder: Path) -> frozenset[str]:
    """Return the names of models or versions. Unfinished folders begin with a dot and do not count."""
    try:
        with os.scandir(folder) as entries:
            return frozenset(e.name for e in entries if re.fullmatch(NAME, e.name) and e.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


# Role files are complete or missing. They are restored if a change fails.


def _replace(path: Path, data: bytes) -> None:
    """Replace a file's content. If this raises OSError, the file is unchanged."""
    _write_aside(path, aside := _aside(path, "new"), data)
    aside.replace(path)


@contextmanager
def _restoring(paths: Collection[Path]) -> Iterator[None]:
    """Restore the files if the block raises an error.

    The copies are written before the block begins, so that a full file system cannot prevent the restoration.
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
        for path in paths:
            for kind in ("new", "before"):  # of this change, or of a killed process
                _aside(path, kind).unlink(missing_ok=True)


def _aside(path: Path, kind: str) -> Path:
    """Return the path of a temporary copy. It is always the same, so that files of killed processes are overwritten."""
    return path.with_name(f".{path.name}.{kind}")


def _write_aside(path: Path, aside: Path, data: bytes) -> None:
    try:
        with naming(path, aside), aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # some file systems report only now that they are full
    except OSError:
        aside.unlink(missing_ok=True)
        raise


# Logs stay open while their lock is held.


@contextmanager
def _cutting_back(logs: Collection[FileIO]) -> Iterator[None]:
    """Truncate the logs to their old content if the block raises an error, without an incomplete last line."""
    sizes: dict[FileIO, int] = {}
    for log in logs:
        log.seek(0)
        text = log.readall()
        sizes[log] = min(len(text), len(repair(text)))
        log.truncate(sizes[log])
    try:
        yield
    except BaseException:
        for log, size in sizes.items():
            log.truncate(size)
        raise


def _append(log: FileIO, data: bytes, path: Path) -> None:
    """Extend the log to `data`, which begins with its current content. The call returns when it is on the disk."""
    try:
        rest = data[os.fstat(log.fileno()).st_size :]
        while rest:  # a nearly full disk writes only a part
            rest = rest[log.write(rest) :]
        os.fsync(log.fileno())
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
