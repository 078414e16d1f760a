"""The checks of a split: duplicates, groups, columns that tell too much, classes with too few rows.

Their findings are sentences for the card, and a table.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pipeline.config import Data
from pipeline.data.image_files import Part
from pipeline.data.raw import PIXELS, WORDS, DataError, Inputs, Labels, Raw, Rows, TextRows, TreeRows, Vectors
from pipeline.data.splitting import duplicates, groups
from pipeline.data.splitting.parts import groups_of
from trueodds.evaluation.splits import Index
from trueodds.texts import listed

log = logging.getLogger("pipeline.data")

FEWEST_ROWS = 10
"""Rows from which on an order or a pairing is no chance."""
_COLUMNS = {
    "constant": "of one value in every row, which tell a net nothing: {}",
    "row_number": "that number the rows: {}. What a net learns of them does not hold for later rows; leave them out."
    " Duplicates were looked for without them",
    "ordered": "in whose order the rows stand, as ids and times: {}. If they are such, leave them out: later rows have"
    " values that no net has learned from",
    "repeats_label": "that repeat the label, one value for each class: {}. If they are known only once the label is,"
    " leave them out: the metrics are too good",
}
NAMED = 10  # classes in a sentence; of the others the number
FEW = 10
"""Validation rows of a class; fewer say next to nothing of its calibration."""
_WITHOUT = {
    "train": "No training row is left of {}: the net does not learn to answer so.",
    "val": "No validation row is left of {}: calibrators are fitted, and epochs compared, without any. Add rows, or"
    " raise data.validation_size.",
    "test": "No test row is left of {}: the metrics on test rows leave it out.",
}


class Checked(NamedTuple):
    """arrays: of each part, without duplicates where they are left out. table: the counts, for checks.json."""

    arrays: dict[str, tuple[Inputs, Labels]]
    notes: list[str]
    table: dict[str, Any]


def checked_split(
    params: Data,
    raw: Raw,
    parts: dict[str, Part],
    arrays: dict[str, tuple[Inputs, Labels]],
    scratch: Path | None,
) -> Checked:
    """Looks for duplicates, shared groups and telling columns; leaves duplicates out where `params` say so.

    Raises:
        DataError: near duplicates of rows that are no images; a part that keeps too few rows.
    """
    leaves_out = params.duplicates == "leave_out"
    if params.near_duplicates is not None and raw.kind not in PIXELS:
        problem = f"data.near_duplicates is {params.near_duplicates}, which is for images"
        raise DataError(f"{problem}, and {params.dataset} holds {raw.kind}s; set it to null")
    telling: dict[str, list[str]] = {}
    if raw.features:
        telling = telling_columns(cast(Vectors, raw.x_train), raw.y_train, raw.features)
    rows = _words_of(parts) if raw.kind in WORDS else _numbers_of(arrays, raw.features, telling.get("row_number", []))
    found = duplicates.find(rows, {part: y for part, (_, y) in arrays.items()}, params.near_duplicates)
    log.info("%s: %s", params.dataset, found.summary())
    table: dict[str, Any] = {"duplicates": found.to_json(leaves_out)}
    notes = found.notes(leaves_out)
    if params.group_column is not None:
        of_parts = groups_of(raw, parts)
        table["groups"] = groups.counts(of_parts)
        notes += groups.notes(params.group_column, of_parts)
    if telling:
        table["columns"] = telling
        notes += column_notes(telling)
    if leaves_out:
        arrays = duplicates.leave_out(arrays, found, params.dataset, scratch)
    return Checked(arrays, notes, table)


def _words_of(parts: Mapping[str, Part]) -> dict[str, Rows]:
    """The texts or trees of each part: the same rows as its array, with the words that the net does not know."""
    rows = {part: (cast(TextRows | TreeRows, x), index) for part, (x, _, index) in parts.items()}
    return {part: x if index is None else x.take(index) for part, (x, index) in rows.items()}


def _numbers_of(
    arrays: Mapping[str, tuple[Inputs, Labels]], features: Sequence[str], row_numbers: Sequence[str]
) -> dict[str, Rows]:
    """The array of each part, without columns that number the rows: with them no row would equal another."""
    kept = [k for k, name in enumerate(features) if name not in row_numbers]
    return {part: x[:, kept] if row_numbers and kept else x for part, (x, _) in arrays.items()}


def telling_columns(x_ND: Vectors, labels_N: Labels, features: Sequence[str]) -> dict[str, list[str]]:
    """Finds columns of a table that tell nothing or too much; the rows are in the order of their file.

    Returns the columns' names by kind.

    constant: one value, or none at all. row_number: different whole numbers without a gap, in any order. ordered: never
    falling or never rising, with a value for every second row at least. repeats_label: a value for each class that no
    other class has; NaN is a value. Tables of fewer than FEWEST_ROWS rows are only looked through for constants.
    """
    found: dict[str, list[str]] = {kind: [] for kind in _COLUMNS}
    for name, column_N in zip(features, x_ND.T, strict=True):
        values, code_N = np.unique(column_N, return_inverse=True)  # NaN is one value
        if len(values) == 1:
            found["constant"].append(name)
        elif len(labels_N) < FEWEST_ROWS:
            continue
        elif _repeats(code_N, labels_N, len(values)):
            found["repeats_label"].append(name)
        elif len(values) == len(labels_N) and (np.diff(values) == 1).all() and values[0] == np.rint(values[0]):
            found["row_number"].append(name)
        elif 2 * len(values) >= len(labels_N) and _is_ordered(column_N):
            found["ordered"].append(name)
    return found


def column_notes(found: dict[str, list[str]]) -> list[str]:
    """Words a sentence for each kind of column that was found."""
    return [f"Columns {_COLUMNS[kind].format(listed(names))}." for kind, names in found.items() if names]


def _is_ordered(column_N: npt.NDArray[np.float32]) -> bool:
    steps = np.diff(column_N)
    return bool((steps >= 0).all() or (steps <= 0).all())


def _repeats(code_N: npt.NDArray[np.intp], labels_N: Labels, values: int) -> bool:
    classes = len(np.unique(labels_N))
    return values == classes > 1 and len(np.unique(code_N * (int(labels_N.max()) + 1) + labels_N)) == classes


def thin_classes(classes: Sequence[str], labels: Mapping[str, npt.NDArray[np.int64]]) -> list[str]:
    """Words what classes lack: a second row, any row of train, val or test, or FEW validation rows.

    labels: the class of each row, per split; those three and any others.
    """
    counts = {split: np.bincount(labels_N, minlength=len(classes)) for split, labels_N in labels.items()}
    notes = []
    if len(single := np.flatnonzero(sum(counts.values()) == 1)):
        notes.append(f"A single row is all there is of {_named(classes, single)}: one split alone has it.")
    for split, words in _WITHOUT.items():
        if len(without := np.flatnonzero(counts[split] == 0)):
            notes.append(words.format(_named(classes, without)))
    if len(few := np.flatnonzero((counts["val"] > 0) & (counts["val"] < FEW))):
        said = f"Fewer than {FEW} validation rows are left of {_named(classes, few)}"
        notes.append(f"{said}: on these, calibrators and class-wise metrics follow chance. Raise data.validation_size.")
    return notes


def _named(classes: Sequence[str], which: Index) -> str:
    names = ", ".join(classes[k] for k in which[:NAMED])
    more = f" and {len(which) - NAMED:,} more" if len(which) > NAMED else ""
    return f"{'class' if len(which) == 1 else 'classes'} {names}{more}"
