"""Files that are whole or not there: written aside, then renamed."""

from __future__ import annotations

import hashlib
import json
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
        OSError: the file cannot be written, with `path` as its filename, whatever library has lost that.
    """
    is_device = path.exists() and not path.is_file()  # /dev/stdout, say
    aside = path if is_device else path.with_name(path.name + ".part")
    try:
        yield aside
        if not is_device:
            aside.replace(path)
    except Exception as error:
        if (cause := _of_system(error)) is None:
            raise
        raise OSError(cause.errno, cause.strerror, str(path)) from None
    finally:
        if not is_device:
            aside.unlink(missing_ok=True)


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


def write_json(path: Path, tree: Any) -> None:
    """Indented, key order kept; NaN and infinity are refused, because JSON has no such numbers. Raises as `written`."""
    write_text(path, json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_npz(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Uncompressed .npz without Python objects; equal arrays give equal bytes. Raises as `written`."""
    with written(path) as aside, aside.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
