"""Checks of a split: duplicates, groups, leaking columns, and classes with too few rows.

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
from pipeline.data.splitting.sampling import groups_of
from trueodds.evaluation.splits import Index
from trueodds.texts import form, quotes

log = logging.getLogger("pipeline.data")

FEWEST_ROWS = 10
"""Number of rows from which an order or a one-to-one relation is hardly due to chance."""
_COLUMNS = {
    "constant": "with one value in every row, from which a net learns nothing: {}",
    "row_number": "that number the rows: {}. What a net learns from them does not hold for later rows; leave them out."
    " The search for duplicates ignored them",
    "ordered": "by which the rows are ordered, as by ids and times: {}. If they are ids or times, leave them out: later"
    " rows have values that no net has learned from",
    "repeats_label": "that repeat the label, one value for each class: {}. If they are known only once the label is,"
    " leave them out: the metrics are too good",
}
NAMED = 10  # classes named in a sentence; the others are counted
FEW = 10
"""Smallest number of validation rows of a class; with fewer, its calibration cannot be estimated."""
_WITHOUT = {
    "train": "No training row is left of {}: the net cannot learn to predict it.",
    "val": "No validation row is left of {}: calibrators are fitted, and epochs compared, without any. Add rows, or"
    " raise data.validation_size.",
    "test": "No test row is left of {}: the metrics on test rows leave it out.",
}


class SplitChecks(NamedTuple):
    """Result of the checks.

    Attributes:
        arrays: Rows and labels of each part, without duplicates if they are left out.
        notes: Sentences for the card.
        table: Counts for checks.json.
        kept: Mask of the rows of each part that are not left out; empty if all are kept.
    """

    arrays: dict[str, tuple[Inputs, Labels]]
    notes: list[str]
    table: dict[str, Any]
    kept: dict[str, npt.NDArray[np.bool_]]


def check_split(
    params: Data,
    raw: Raw,
    parts: dict[str, Part],
    arrays: dict[str, tuple[Inputs, Labels]],
    scratch: Path | None,
) -> SplitChecks:
    """Search for duplicates, shared groups and leaking columns; leave duplicates out if `params` say so.

    Raises:
        DataError: `near_duplicates` is set and the rows are not images, or a part keeps too few rows.
    """
    leaves_out = params.duplicates == "leave_out"
    if params.near_duplicates is not None and raw.kind not in PIXELS:
        problem = f"data.near_duplicates is {params.near_duplicates}, which needs images"
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
    if not leaves_out:
        return SplitChecks(arrays, notes, table, {})
    kept = {part: ~found.left_out(part) for part in arrays if part != "train"}
    return SplitChecks(duplicates.leave_out(arrays, found, params.dataset, scratch), notes, table, kept)


def _words_of(parts: Mapping[str, Part]) -> dict[str, Rows]:
    """Return the texts or trees of each part: the rows of its array, including words that the net does not know."""
    rows = {part: (cast(TextRows | TreeRows, x), index) for part, (x, _, index) in parts.items()}
    return {part: x if index is None else x.take(index) for part, (x, index) in rows.items()}


def _numbers_of(
    arrays: Mapping[str, tuple[Inputs, Labels]], features: Sequence[str], row_numbers: Sequence[str]
) -> dict[str, Rows]:
    """Return the array of each part without columns that number the rows, with which no two rows would be equal."""
    kept = [k for k, name in enumerate(features) if name not in row_numbers]
    return {part: x[:, kept] if row_numbers and kept else x for part, (x, _) in arrays.items()}


def telling_columns(x_ND: Vectors, labels_N: Labels, features: Sequence[str]) -> dict[str, list[str]]:
    """Find columns of a table that carry no information, or information about the label or the order of rows.

    - constant: one value, or no value at all.
    - row_number: distinct whole numbers without a gap, in any order.
    - ordered: never falling or never rising, with at least one value per two rows.
    - repeats_label: one value for each class, which no other class has. NaN is a value.

    Tables of fewer than FEWEST_ROWS rows are checked for constants only.

    Args:
        x_ND: Rows in the order of their file.
        labels_N: Their classes.
        features: Names of the columns.

    Returns:
        Kind -> names of the columns.
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


def column_notes(columns: dict[str, list[str]]) -> list[str]:
    """Return a sentence for each kind of column that was found."""
    return [f"Columns {_COLUMNS[kind].format(quotes(names))}." for kind, names in columns.items() if names]


def _is_ordered(column_N: npt.NDArray[np.float32]) -> bool:
    """Return whether values never fall or never rise."""
    steps = np.diff(column_N)
    return bool((steps >= 0).all() or (steps <= 0).all())


def _repeats(code_N: npt.NDArray[np.intp], labels_N: Labels, values: int) -> bool:
    """Return whether each class has one value of its own."""
    classes = len(np.unique(labels_N))
    return values == classes > 1 and len(np.unique(code_N * (int(labels_N.max()) + 1) + labels_N)) == classes


def thin_classes(classes: Sequence[str], labels: Mapping[str, npt.NDArray[np.int64]]) -> list[str]:
    """Return sentences about classes with one row, without rows in a split, or with few validation rows.

    `labels` has the class of each row for train, val, test and any other splits.
    """
    counts = {split: np.bincount(labels_N, minlength=len(classes)) for split, labels_N in labels.items()}
    notes = []
    if len(single := np.flatnonzero(sum(counts.values()) == 1)):
        notes.append(f"The data has a single row of {_class_names(classes, single)}: only one split has it.")
    for split, words in _WITHOUT.items():
        if len(without := np.flatnonzero(counts[split] == 0)):
            notes.append(words.format(_class_names(classes, without)))
    if len(few := np.flatnonzero((counts["val"] > 0) & (counts["val"] < FEW))):
        said = f"Fewer than {FEW} validation rows are left of {_class_names(classes, few)}"
        notes.append(f"{said}: calibrators and class-wise metrics are unreliable for them. Raise data.validation_size.")
    return notes


def alike_classes(classes: Sequence[str]) -> list[str]:
    """Return a sentence for classes whose names differ only in their spelling, such as Cat and cat.

    Single letters may be classes of their own, as in EMNIST.
    """
    spellings: dict[str, list[str]] = {}
    for name in classes:
        if len(name) > 1:
            spellings.setdefault(form(name), []).append(name)
    alike = [", ".join(map(repr, names)) for names in spellings.values() if len(names) > 1]
    if not alike:
        return []
    more = f"; and {len(alike) - NAMED:,} more" if len(alike) > NAMED else ""
    listed = "; ".join(alike[:NAMED]) + more
    return [f"Classes whose names differ only in case, blanks or dashes: {listed}. If they are one, write them alike."]


def _class_names(classes: Sequence[str], which: Index) -> str:
    """Return the names of classes, at most NAMED."""
    names = ", ".join(classes[k] for k in which[:NAMED])
    more = f" and {len(which) - NAMED:,} more" if len(which) > NAMED else ""
    return f"{'class' if len(which) == 1 else 'classes'} {names}{more}"
