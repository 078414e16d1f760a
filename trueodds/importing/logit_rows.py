"""Logits with their labels as people keep them: an .npz, or a CSV or Parquet table with a column for each class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.errors import UserError, unknown
from trueodds.files import read_npz
from trueodds.importing import tables
from trueodds.importing.errors import LabelledRowsError
from trueodds.inputs.columns import read_npy
from trueodds.inputs.names import Places
from trueodds.logits import Logits
from trueodds.sums.inputs import both_classes, check_labels, check_logits, logits_of

FORMS = (
    "an .npz with logits and labels, or with val_logits, val_labels, test_logits and test_labels; an .npy of logits"
    " beside --labels; or a .csv or .parquet table with a column of logits for each class, named as it, and one of the"
    " labels"
)
PAIRS = (("logits", "labels"), ("val_logits", "val_labels"))
TEST = ("test_logits", "test_labels")


@dataclass(frozen=True)
class LogitRows:
    """Rows to fit on, and rows to measure on where the file has some."""

    rows: Logits
    test: Logits | None = None


def read(
    path: Path, label: str, *, labels: Path | None = None, probabilities: bool = False, first: int | None = None
) -> LogitRows:
    """Rows of a file; of `probabilities`, their logarithms. `labels`: the file of those of an .npy.

    `first`: the number of the first class in arrays of labels; None: 0, if one of them holds a 0.

    Raises:
        LabelledRowsError: no such file, another form, logits or labels that cannot be used: it says what is missing.
        MissingExtraError: a Parquet file without pyarrow.
    """
    try:
        if path.suffix in (".csv", ".parquet"):
            return LogitRows(_of_table(path, label, probabilities))
        if path.suffix not in (".npz", ".npy"):
            raise LabelledRowsError(f"{path} has the suffix {path.suffix!r}; expected {FORMS}")
        arrays = read_npz(path) if path.suffix == ".npz" else _pair(path, labels)
        pair = next((pair for pair in PAIRS if pair[0] in arrays), PAIRS[0])
        if first is None:
            _check_first(path, arrays, pair)
        rows = _of_arrays(path, arrays, pair, probabilities, first or 0)
        test = _of_arrays(path, arrays, TEST, probabilities, first or 0) if TEST[0] in arrays else None
    except FileNotFoundError as error:
        raise LabelledRowsError(f"{error.filename} does not exist; expected {FORMS}") from None
    except UserError:
        raise
    except ValueError as error:
        raise LabelledRowsError(f"{path}: {_cure(str(error))}") from None
    if test and test.logits_NC.shape[1] != rows.logits_NC.shape[1]:
        sizes = f"{pair[0]} has {rows.logits_NC.shape[1]} classes and test_logits {test.logits_NC.shape[1]}"
        raise LabelledRowsError(f"{path}: {sizes}; give both those of one model")
    return LogitRows(rows, test)


def _pair(path: Path, labels: Path | None) -> dict[str, npt.NDArray[Any]]:
    if labels is None:
        raise LabelledRowsError(f"{path} holds one array; name the file of its labels: --labels labels.npy")
    return dict(zip(PAIRS[0], map(read_npy, (path, labels)), strict=True))


def _check_first(path: Path, arrays: dict[str, npt.NDArray[Any]], pair: tuple[str, str]) -> None:
    """Raises LabelledRowsError for labels that may count from 0 or from 1."""
    labels = [arrays[name] for name in (pair[1], TEST[1]) if name in arrays and arrays[name].dtype.kind in "iu"]
    numbers = np.unique(np.concatenate([array.ravel() for array in labels])) if labels else np.zeros(0, int)
    classes = arrays[pair[0]].shape[-1] if pair[0] in arrays and arrays[pair[0]].ndim == 2 else 0
    if len(numbers) and numbers[0] >= 1 and numbers[-1] <= classes:
        problem = f"{path} has labels from {numbers[0]} to {numbers[-1]} of {classes:,} classes, and none is 0"
        cure = "say which number the first class has: --first-label 0 or --first-label 1"
        raise LabelledRowsError(f"{problem}; {cure}")


def _of_arrays(
    path: Path, arrays: dict[str, npt.NDArray[Any]], names: tuple[str, str], probabilities: bool, first: int
) -> Logits:
    if missing := [name for name in names if name not in arrays]:
        held = ", ".join(arrays)
        raise LabelledRowsError(f"{path} has no array {', '.join(missing)}; it holds {held}. Expected {FORMS}")
    logits_NC = _logits(arrays[names[0]], probabilities)
    rows, classes = logits_NC.shape
    labels_N = arrays[names[1]]
    labels_N = labels_N.astype(np.int64) - first if first and labels_N.dtype.kind in "iu" else labels_N
    return Logits(logits_NC, check_labels(labels_N, rows, classes, names[1]))


def _of_table(path: Path, label: str, probabilities: bool) -> Logits:
    classes, values_NC, names = tables.read(path, label)
    if len(classes) == 1:
        cure = "give one for each class, such as 1 - p for the other of two"
        raise LabelledRowsError(f"{path} has one column, {classes[0]!r}, beside the labels; {cure}")
    places = Places(classes)
    place = {name: places.get(name) for name in sorted({*names.tolist()})}
    if (strange := next((name for name, k in place.items() if k is None), None)) is not None:
        raise LabelledRowsError(f"{path}: {unknown('label', strange, classes)} The columns of logits are the classes")
    return Logits(_logits(values_NC, probabilities), np.array([place[name] for name in names.tolist()], dtype=np.intp))


def _logits(values: npt.NDArray[Any], probabilities: bool) -> npt.NDArray[np.floating]:
    return logits_of(both_classes(values)) if probabilities else check_logits(values)


def _cure(message: str) -> str:
    """What a caller of `trueodds.fit` would do, for the command line."""
    return f"{message.partition(': every row')[0]}: give --probabilities" if "logits_of" in message else message
