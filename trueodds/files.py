"""Files that are whole or not there: written aside, then renamed."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
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


def write_json(path: Path, tree: Any) -> None:
    """Indented, key order kept; NaN and infinity are refused, because JSON has no such numbers."""
    text = json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    aside = path.with_name(path.name + ".part")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def write_npz(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Uncompressed .npz without Python objects; equal arrays give equal bytes."""
    aside = path.with_name(path.name + ".part")
    with aside.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    aside.replace(path)
