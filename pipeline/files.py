"""Files that are whole or not there: written aside, then renamed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


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
