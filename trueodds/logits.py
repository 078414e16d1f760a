"""The file logits.npz, the interface between training (torch) and everything after it (numpy).

Its arrays are val_logits and test_logits (float, N x C), and val_labels and test_labels (integer, N). val_notes (text)
is optional. Its sentences report that training used the validation rows for more than monitoring, or that classes have
no rows.
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
from trueodds.sums.group_names import GroupNames, from_arrays, to_arrays
from trueodds.sums.inputs import check_labels, check_matrix


class LogitsError(UserError, ValueError):
    """Error for a logits.npz that cannot be used."""


@dataclass(frozen=True)
class Logits:
    """Logits (N, C), labels (N,) and, if there are some, groups (N,) of one split."""

    logits_NC: npt.NDArray[np.floating]
    labels_N: npt.NDArray[np.integer]
    groups_N: GroupNames | None = None
    """Name of each row's group, such as its tag, or None without one. None for the whole: the rows have no groups."""

    def only(self, which_N: npt.NDArray[Any]) -> Logits:
        """Return some of the rows, given by their numbers or by a mask."""
        groups_N = None if self.groups_N is None else self.groups_N[which_N]
        return Logits(self.logits_NC[which_N], self.labels_N[which_N], groups_N)


def write(path: Path, splits: dict[str, Logits], val_notes: Sequence[str] = ()) -> None:
    """Write the arrays <split>_logits and <split>_labels of each split, and the notes, if there are any.

    Groups are written as places in <split>_groups_names, in <split>_groups; -1 is a row without a group.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    for split, pair in splits.items():
        arrays |= {f"{split}_logits": pair.logits_NC, f"{split}_labels": pair.labels_N}
        if pair.groups_N is not None:
            arrays |= to_arrays(f"{split}_groups", pair.groups_N)
    if val_notes:
        arrays["val_notes"] = np.array(val_notes)
    write_npz(path, arrays)


def notes(path: Path) -> list[str]:
    """Read the notes on the rows that a user must know, mainly on the validation rows; empty if there are none.

    Raises:
        LogitsError: The file does not exist.
    """
    return [str(note) for note in _arrays(path).get("val_notes", ())]


def read(path: Path, split: str) -> Logits:
    """Read and check one split's logits and labels, and its groups, if there are some.

    Raises:
        LogitsError: The file or an array does not exist, values are not finite, or labels are outside the classes.
    """
    arrays = _arrays(path)
    try:
        if missing := {f"{split}_logits", f"{split}_labels"} - arrays.keys():
            raise LogitsError(f"{path} has no array {', '.join(sorted(missing))}; it holds {', '.join(arrays)}")
        logits_NC, labels_N = arrays[f"{split}_logits"], arrays[f"{split}_labels"]
        rows, classes = check_matrix(logits_NC, f"{split}_logits").shape
        check_labels(labels_N, rows, classes, f"{split}_labels")
        groups_N = from_arrays(arrays, f"{split}_groups", rows)
    except UserError:
        raise
    except ValueError as error:
        raise LogitsError(f"{path}: {error}") from None
    return Logits(logits_NC, labels_N, groups_N)


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        return read_npz(path)
    except FileNotFoundError:
        raise LogitsError(f"{path} does not exist; run the train stage first: dvc repro train") from None
