"""Rows with truths of independent labels, as given: an .npz with x and y (rows, labels), or a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trueodds.errors import UserError, nearest
from trueodds.files import FileError, read_npz
from trueodds.importing.errors import LabelledRowsError
from trueodds.importing.forms import LABEL_ROWS
from trueodds.importing.labelled_rows import ImportRows
from trueodds.inputs import columns
from trueodds.inputs.text import labelled_texts
from trueodds.inputs.text.kind import COLUMN
from trueodds.reports.table.multilabel_reading import TRUTH, truths_of
from trueodds.sums.inputs import Array
from trueodds.sums.label_matrix import check_label_matrix, label_names
from trueodds.texts import column_quotes, quotes


def read(path: Path, labels: Sequence[str] = (), *, texts: bool = False) -> ImportRows:
    """Read the rows of a file. Their `y` are truths (N, L): 0, 1, and NaN if not known.

    Args:
        path: The file.
        labels: Names of the labels in the order of the model's outputs; empty if the file has them in this order.
        texts: The rows are texts.

    Raises:
        LabelledRowsError: The path has another form, an array or a label is missing, or there are no rows.
        FileError: A table cannot be read, or a value cannot be used.
        FileNotFoundError: There is no such path.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; --labelled takes {LABEL_ROWS}")
    if not path.is_file() or path.suffix not in (".npz", *columns.SUFFIXES):
        problem = f"ends in {path.suffix or 'nothing'}" if path.is_file() else "is a folder, which has one class a row"
        raise LabelledRowsError(f"{path} {problem}; allowed with --multi-label are {LABEL_ROWS}")
    rows = _of_table(path, labels, texts=texts) if path.suffix != ".npz" else _of_arrays(path, labels, texts=texts)
    if not len(rows):
        raise LabelledRowsError(f"{path} holds no rows")
    return rows


def _of_arrays(path: Path, labels: Sequence[str], *, texts: bool) -> ImportRows:
    if texts:
        raise LabelledRowsError(f"{path} holds no texts; allowed is a table with the columns {COLUMN} and {TRUTH}NAME")
    arrays = read_npz(path)
    if missing := {"x", "y"} - arrays.keys():
        problem = f"{path}: no array {', '.join(sorted(missing))}; it holds {', '.join(arrays) or 'nothing'}"
        raise LabelledRowsError(f"{problem}. Needed are x, the rows, and y, the truths (rows, labels)")
    x, y = arrays["x"], arrays["y"]
    if x.dtype.kind not in "fiub" or y.ndim != 2 or len(x) != len(y):
        wanted = "numbers (rows, ...) and truths (rows, labels)"
        raise LabelledRowsError(f"{path}: x is {x.dtype} of shape {x.shape}, y has shape {y.shape}; expected {wanted}")
    own, features = (tuple(map(str, arrays.get(key, ()))) for key in ("class_names", "feature_names"))
    if features and (x.ndim != 2 or len(features) != x.shape[1]):
        raise LabelledRowsError(f"{path}: feature_names has {len(features)} names; x has the shape {x.shape}")
    if own and len(own) != y.shape[1]:
        raise LabelledRowsError(f"{path}: class_names has {len(own)} names; y has the shape {y.shape}")
    truth_NL = _check_truths(path, y, (y.shape[0], y.shape[1]))
    if labels and own:
        truth_NL = truth_NL[:, _places(path, labels, own)]
    elif labels and len(labels) != y.shape[1]:
        raise LabelledRowsError(f"{path}: y has {y.shape[1]} columns for {len(labels)} labels: {quotes(labels)}")
    return ImportRows(str(path), x, truth_NL, tuple(labels) or own, features)


def _of_table(path: Path, labels: Sequence[str], *, texts: bool) -> ImportRows:
    header = columns.names(path)
    own = [name.removeprefix(TRUTH) for name in header if name.startswith(TRUTH)]
    if not own:
        raise FileError(f"{path} has no column of truths; it has {column_quotes(header)}; give {LABEL_ROWS}")
    if not labels:
        cure = f"name them in the order of the model's outputs: --classes {','.join(own)}"
        raise LabelledRowsError(f"{path} names the labels {quotes(own)}, but not which output is whose; {cure}")
    _places(path, labels, own)
    truths = [TRUTH + name for name in labels]
    features = [] if texts else [name for name in header if not name.startswith(TRUTH)]
    if texts and COLUMN not in header:
        raise FileError(f"{path} has no column {COLUMN!r}; it has {column_quotes(header)}")
    if not texts and not features:
        raise FileError(f"{path} has truths and no other column; expected one for each feature of the model")
    found = columns.read(path, features, [*truths, *([COLUMN] if texts else [])])
    y_NL = np.stack([truths_of(path, name, found.texts[name]) for name in truths], axis=1)
    truth_NL = _check_truths(path, y_NL, (y_NL.shape[0], y_NL.shape[1]))
    if not texts:
        x = np.stack([found.numbers[name] for name in features], axis=1)
        return ImportRows(str(path), x, truth_NL, tuple(labels), tuple(features))
    words = found.texts[COLUMN].as_list()
    for row, text in enumerate(words, columns.FIRST):
        labelled_texts.check(text, f"{path}, row {row}")
    cells = np.empty(len(words), object)  # NumPy's text type would take the longest text's memory for each
    cells[:] = words
    return ImportRows(str(path), cells, truth_NL, tuple(labels))


def _places(path: Path, labels: Sequence[str], own: Sequence[str]) -> list[int]:
    """Return the place of each label among those of the file, which must have no others."""
    label_names(labels, len(labels))
    if missing := [name for name in labels if name not in own]:
        near = nearest(missing[0], own)
        raise LabelledRowsError(
            f"{path} has no label {missing[0]!r}, which --classes names; it has {quotes(own)}.{near}"
        )
    if more := [name for name in own if name not in labels]:
        raise LabelledRowsError(
            f"{path} has the label {more[0]!r}, which --classes does not name; name every label, or remove its column"
        )
    return [own.index(name) for name in labels]


def _check_truths(path: Path, values: Array, shape: tuple[int, int]) -> Array:
    try:
        return check_label_matrix(values, shape, "y")
    except UserError:
        raise
    except ValueError as error:
        raise LabelledRowsError(f"{path}: {error}") from None
