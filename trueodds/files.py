"""Files that are whole or not there: written aside, then renamed."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.errors import UserError


def sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class FileError(UserError, ValueError):
    """A file that is there and cannot be read."""


def read_json(path: Path) -> Any:
    """Raises FileError for what is not JSON, FileNotFoundError for what is not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileError(f"{path} is not whole JSON ({error}); write it again, for a stage's file: dvc repro") from None


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an .npz file without Python objects. Raises as `read_json`."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return dict(file)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError) as error:
        cure = "write it with np.savez, for a stage's file: dvc repro"
        raise FileError(f"{path} is not a whole .npz file without Python objects ({error}); {cure}") from None


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """A file beside `path` to write, which takes its place at the end; where the block raises, `path` stays as it was.

    Raises:
        OSError: as `naming`.
    """
    is_device = path.exists() and not path.is_file()  # /dev/stdout, say
    aside = path if is_device else path.with_name(path.name + ".part")
    try:
        with naming(path, aside):
            yield aside
            if not is_device:
                aside.replace(path)
    finally:
        if not is_device:
            aside.unlink(missing_ok=True)


@contextmanager
def naming(path: Path, aside: Path | None = None) -> Iterator[None]:
    """Has an error of writing name `path`, whatever was written aside, or was made of the error since.

    Args:
        path: What the block writes, as the user knows it.
        aside: The file or folder that takes its place later, where the block does nothing but write it.

    Raises:
        OSError: with `path` as its filename: the disk is full, or the error named nothing or a file of `aside`. An
            error that names another file, one that cannot be read, say, stays.
    """
    try:
        yield
    except Exception as error:
        cause = _of_system(error)
        if cause is None or not (is_full(cause) or (aside is not None and _is_of(error, cause, aside))):
            raise
        raise OSError(cause.errno, cause.strerror, str(path)) from None


def is_full(error: OSError) -> bool:
    """Whether it says that a disk, a quota or the largest size of a file is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _is_of(error: Exception, cause: OSError, aside: Path) -> bool:
    """Whether an error, and nobody's words for it, names nothing, or what lies aside."""
    name = cause.filename
    return not isinstance(error, UserError) and (not isinstance(name, str) or Path(name).is_relative_to(aside))


def _of_system(error: BaseException | None) -> OSError | None:
    """The error of the operating system behind an error: torch raises a RuntimeError after it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None and type(error).__module__ == "builtins":
            return error
        error = error.__cause__ or error.__context__
    return None


def write_text(path: Path, text: str) -> None:
    """UTF-8, with the line ends of the text. Raises as `written`."""
    with written(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="")


def write_bytes(path: Path, data: bytes) -> None:
    """Raises as `written`."""
    with written(path) as aside:
        aside.write_bytes(data)


def copy(source: Path, target: Path) -> None:
    """The bytes of a file. Raises as `written`, and OSError for a source that cannot be read."""
    with written(target) as aside:
        shutil.copyfile(source, aside)


def write_json(path: Path, tree: Any) -> None:
    """Indented, key order kept; NaN and infinity are refused, because JSON has no such numbers. Raises as `written`."""
    write_text(path, json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_npz(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Uncompressed .npz without Python objects; equal arrays give equal bytes. Raises as `written`."""
    with written(path) as aside, aside.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
