"""Reader of tables of independent labels: arrays in .npz or .npy, columns in CSV or Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.errors import UserError, nearest
from trueodds.files import FileError, read_npz
from trueodds.inputs import columns
from trueodds.inputs.columns import FIRST, Texts
from trueodds.reports.table.classes import is_none
from trueodds.reports.table.multilabel_rows import MultilabelRows
from trueodds.reports.table.reading import Form, Scale
from trueodds.sums.inputs import Array
from trueodds.sums.label_matrix import (
    check_label_logits,
    check_label_matrix,
    check_label_probabilities,
    label_names,
)
from trueodds.sums.rounding import EXACT, check_steps
from trueodds.texts import quotes, short, without_point

PREFIXES: dict[Scale, str] = {"probabilities": "p_", "logits": "z_"}
TRUTH = "y_"
FORMS = (
    "a .csv or .parquet with a column p_NAME (or z_NAME for logits) and a column y_NAME for each label; an .npz with"
    " probabilities (or logits) and labels, both (rows, labels); or an .npy of probabilities together with --labels"
)
"""Allowed forms of a table of independent labels, for messages."""
_TRUTHS = {"1": 1.0, "true": 1.0, "0": 0.0, "false": 0.0}


def read_labels(path: Path, form: Form | None = None) -> MultilabelRows:
    """Read the rows of a table of independent labels.

    Args:
        path: File of the rows.
        form: Facts about the table that the file does not state.

    Raises:
        FileError: The file has another form, a label lacks its probability or its truth, or a value cannot be used.
        FileNotFoundError: There is no such file.
        MissingExtraError: A Parquet file needs pyarrow, which is not installed.
    """
    names, scale, value_NL, truth_NL, form = _read(path, form or Form())
    try:
        p_NL = (
            _check_values(path, scale, value_NL)
            if scale == "probabilities"
            else expit_of(_check_values(path, scale, value_NL))
        )
        truth_NL = check_label_matrix(truth_NL, (p_NL.shape[0], p_NL.shape[1]))
        if form.resolution is not None and scale == "probabilities":
            check_steps(p_NL, form.resolution)
        names = label_names(names, p_NL.shape[1])
    except UserError:
        raise
    except ValueError as error:
        raise FileError(f"{path}: {error}") from None
    return MultilabelRows(p_NL, truth_NL, names, form.resolution or EXACT, path.name)


def read_label_logits(path: Path, form: Form | None = None) -> tuple[tuple[str, ...], Array, Array, bool]:
    """Read names, logits (N, L) and truths (N, L) of a table, and whether the logits come from probabilities.

    Without a scale in `form`, an array of an .npy is one of logits, and logits have priority in other files.

    Raises:
        FileError: As `read_labels`.
    """
    names, scale, value_NL, truth_NL, form = _read(path, form or Form(), prefer="logits")
    try:
        z_NL = _check_values(path, scale, value_NL)
        if scale == "probabilities":
            z_NL = scipy.special.logit(np.clip(z_NL, SMALLEST, 1 - SMALLEST))
        return (
            label_names(names, z_NL.shape[1]),
            z_NL,
            check_label_matrix(truth_NL, (z_NL.shape[0], z_NL.shape[1])),
            scale == "probabilities",
        )
    except UserError:
        raise
    except ValueError as error:
        raise FileError(f"{path}: {error}") from None


SMALLEST = 1e-12
"""Smallest distance of a probability from 0 and 1 before it becomes a logit."""


def expit_of(z_NL: Array) -> Array:
    """Compute the sigmoid of checked logits."""
    p_NL: Array = scipy.special.expit(z_NL)
    return p_NL


def _check_values(path: Path, scale: Scale, values: npt.ArrayLike) -> Array:
    """Check the values of a file. The error says how to declare the other scale in a file of this form."""
    prefix, other = ("z_", "logits") if scale == "probabilities" else ("p_", "probabilities")
    if path.suffix in columns.SUFFIXES:
        cure = f"name their columns {prefix}NAME"
    else:
        option = (
            "give --logits, or leave out --probabilities" if other == "logits" else "give --probabilities, not --logits"
        )
        cure = option if path.suffix == ".npy" else f"name the array {other}"
    if scale == "probabilities":
        return check_label_probabilities(values, cure=cure)
    return check_label_logits(values, cure=f"if they are, {cure}")


def _read(
    path: Path, form: Form, prefer: Scale | None = None
) -> tuple[Sequence[str] | None, Scale, npt.ArrayLike, npt.ArrayLike, Form]:
    """Read names, scale, values and truths, without checks of the values."""
    if not path.is_file():
        raise FileNotFoundError(f"{columns.absence(path)}; expected {FORMS}")
    if path.suffix not in (".npz", ".npy", *columns.SUFFIXES):
        raise FileError(f"{columns.suffix_problem(path)}; expected {FORMS}")
    if form.labels and path.suffix != ".npy":
        raise FileError(f"--labels {form.labels}: {path} holds the labels itself; remove --labels")
    is_table = path.suffix in columns.SUFFIXES
    found = _of_columns(path, form, prefer) if is_table else _of_arrays(path, form, prefer)
    if form.resolution is not None and form.resolution.step is not None and found[1] == "logits":
        raise FileError(
            f"--resolution {form.resolution.step:g} is for probabilities, and these are logits; leave it out"
        )
    return (*found, form)


def _of_arrays(
    path: Path, form: Form, prefer: Scale | None
) -> tuple[Sequence[str] | None, Scale, npt.ArrayLike, npt.ArrayLike]:
    if path.suffix == ".npy":
        if not form.labels:
            raise FileError(f"{path} holds one array; give the file of its labels: --labels labels.npy")
        if not form.labels.is_file():
            raise FileNotFoundError(f"{form.labels} does not exist; expected an .npy of the labels of {path}")
        scale: Scale = form.scale or prefer or "probabilities"
        return form.classes or None, scale, columns.read_npy(path), columns.read_npy(form.labels)
    arrays = read_npz(path)
    present: list[Scale] = [one for one in PREFIXES if one in arrays]
    if (form.scale and form.scale not in present) or not present:
        missing = form.scale or "probabilities"
        raise FileError(f"{path} has the arrays {quotes([*arrays])} and no {missing}; expected {FORMS}")
    if len(present) == 2 and prefer:
        present = [prefer]
    if len(present) == 2 and not form.scale:
        raise FileError(f"{path} holds probabilities and logits; choose one: --probabilities or --logits")
    if "labels" not in arrays:
        raise FileError(f"{path} has the arrays {quotes([*arrays])} and no labels; expected {FORMS}")
    scale = form.scale or present[0]
    values, truths = arrays[scale], arrays["labels"]
    if "class_names" not in arrays:
        return form.classes or None, scale, values, truths
    names = _texts(arrays["class_names"])
    if not form.classes:
        return names, scale, values, truths
    if other := [name for name in form.classes if name not in names]:
        raise FileError(f"{path} has no label {other[0]!r}; its class_names are {quotes(names)}: give some of them")
    if any(array.ndim != 2 or array.shape[1] != len(names) for array in (values, truths)):
        raise FileError(
            f"{path} has {len(names)} class_names, {scale} with the shape {values.shape} and labels with"
            f" {truths.shape}; expected (rows, {len(names)}) for both"
        )
    chosen = [names.index(name) for name in form.classes]
    return form.classes, scale, values[:, chosen], truths[:, chosen]


def _texts(names: npt.NDArray[Any]) -> tuple[str, ...]:
    """Return names as texts. Bytes are UTF-8, as in other tables."""
    return tuple(map(str, np.char.decode(names, "utf-8") if names.dtype.kind == "S" else names))


def _of_columns(path: Path, form: Form, prefer: Scale | None) -> tuple[Sequence[str], Scale, Array, Array]:
    header = columns.names(path)
    scale = _scale(path, header, form, prefer)
    prefix = PREFIXES[scale]
    of_values, of_truths = ([name[2:] for name in header if name.startswith(one)] for one in (prefix, TRUTH))
    names = list(form.classes) or [name for name in of_values if name in of_truths]
    for name in names:
        for one, there in ((prefix, of_values), (TRUTH, of_truths)):
            if name not in there:
                near = nearest(f"{one}{name}", header)
                raise FileError(f"{path} has no column {one}{name}, which --classes {name} needs.{near}")
    if not form.classes:
        for one, there, other, lacking in (
            (prefix, of_values, TRUTH, of_truths),
            (TRUTH, of_truths, prefix, of_values),
        ):
            if alone := [name for name in there if name not in lacking]:
                raise FileError(
                    f"{path} has the column {one}{alone[0]} and no column {other}{alone[0]}; add it, or name the labels"
                    f" to read: --classes {','.join(names) or 'a,b'}"
                )
    table = columns.read(path, [prefix + name for name in names], [TRUTH + name for name in names])
    value_NL = np.stack([table.numbers[prefix + name] for name in names], axis=1)
    if not len(value_NL):
        raise FileError(f"{path} holds no rows; expected {FORMS}")
    if np.isnan(value_NL).any():
        row, label = np.argwhere(np.isnan(value_NL))[0]
        cell = f"{path}, row {row + FIRST:,}, column {prefix + names[label]!r}"
        raise FileError(f"{cell} is empty; only a truth ({TRUTH}{names[label]}) may be unknown: leave out this row")
    truths = [truths_of(path, TRUTH + name, table.texts[TRUTH + name]) for name in names]
    return names, scale, value_NL, np.stack(truths, axis=1)


def _scale(path: Path, header: Sequence[str], form: Form, prefer: Scale | None) -> Scale:
    """Return the scale of the values: the given one, or the one whose prefix the columns have."""
    present: list[Scale] = [one for one, prefix in PREFIXES.items() if any(name.startswith(prefix) for name in header)]
    if form.scale:
        present = [one for one in present if one == form.scale]
    if not present or not any(name.startswith(TRUTH) for name in header):
        raise FileError(f"{path} has the columns {quotes(header)}, and no labels by these names; expected {FORMS}")
    if len(present) == 2 and prefer:
        return prefer
    if len(present) == 2:
        raise FileError(f"{path} has columns p_NAME and z_NAME; choose one: --probabilities or --logits")
    return present[0]


def truths_of(path: Path, column: str, cells: Texts) -> Array:
    """Convert a column of truths to 0, 1, and NaN for an empty cell.

    Raises:
        FileError: A cell is none of these.
    """
    value_V = np.full(len(cells.values), np.nan)
    for code, value in enumerate(cells.values):
        text = without_point(value).lower()
        if text in _TRUTHS:
            value_V[code] = _TRUTHS[text]
        elif not is_none(value):
            row = int((cells.code_N == code).argmax()) + FIRST
            raise FileError(
                f"{path}, row {row:,}, column {column!r} holds {short(value)}; allowed are 0, 1, true, false, and an"
                " empty cell if the truth is not known"
            )
    truth_N: Array = value_V[cells.code_N]
    return truth_N
