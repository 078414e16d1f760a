"""logits.npz: the waist between training (torch) and everything after it (numpy).

Arrays val_logits, test_logits (float, N x C) and val_labels, test_labels (integer, N); and, where training used the
validation rows for more than watching, or classes have none, val_notes (text): sentences that say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.errors import UserError
from trueodds.files import read_npz, write_npz
from trueodds.sums.inputs import check_labels, check_matrix


class LogitsError(UserError, ValueError):
    """A logits.npz that cannot be used."""


@dataclass(frozen=True)
class Logits:
    """Logits (N, C) and labels (N,) of one split."""

    logits_NC: npt.NDArray[np.floating]
    labels_N: npt.NDArray[np.integer]


def write(path: Path, splits: dict[str, Logits], val_notes: Sequence[str] = ()) -> None:
    """One pair of arrays per split: <split>_logits and <split>_labels; and the notes, if there are any."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for split, pair in splits.items():
        arrays |= {f"{split}_logits": pair.logits_NC, f"{split}_labels": pair.labels_N}
    write_npz(path, arrays | ({"val_notes": np.array(val_notes)} if val_notes else {}))


def notes(path: Path) -> list[str]:
    """Notes on the rows, those of validation above all, that a user must know; empty where there are none.

    Raises:
        LogitsError: no such file.
    """
    return [str(note) for note in _arrays(path).get("val_notes", ())]


def read(path: Path, split: str) -> Logits:
    """One split's logits and labels, checked.

    Raises:
        LogitsError: no such file or array, values that are not finite, labels outside the classes.
    """
    arrays = _arrays(path)
    try:
        if missing := {f"{split}_logits", f"{split}_labels"} - arrays.keys():
            raise LogitsError(f"{path} has no array {', '.join(sorted(missing))}; it holds {', '.join(arrays)}")
        logits_NC, labels_N = arrays[f"{split}_logits"], arrays[f"{split}_labels"]
        rows, classes = check_matrix(logits_NC, f"{split}_logits").shape
        check_labels(labels_N, rows, classes, f"{split}_labels")
    except UserError:
        raise
    except ValueError as error:
        raise LogitsError(f"{path}: {error}") from None
    return Logits(logits_NC, labels_N)


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        return read_npz(path)
    except FileNotFoundError:
        raise LogitsError(f"{path} does not exist; run the train stage first: dvc repro train") from None
