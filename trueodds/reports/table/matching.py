"""Common rows of several tables of answers, matched by their ids or by their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError, read_npz
from trueodds.inputs import columns
from trueodds.inputs.columns import Texts
from trueodds.reports.table.table_content import Answers
from trueodds.texts import plural, short

ID, IDS = "id", "ids"
"""Name of the column of a table, and of the array of an .npz."""
MOST_BYTES = 2**25
"""Size up to which a table's ids are looked through for repeated ones: a quarter of the time of reading it."""
Rows = npt.NDArray[np.intp]


def ids_of(path: Path) -> list[str] | None:
    """Return the ids of a table's rows; None if it has none.

    Raises:
        FileError: An id is empty, or occurs twice.
    """
    if path.suffix in columns.SUFFIXES:
        column = columns.read(path, [], [ID]).texts[ID] if ID in columns.names(path) else None
    elif path.suffix == ".npz":
        array = read_npz(path).get(IDS)
        column = None if array is None else Texts.of_array(array)
    else:
        column = None
    if column is None:
        return None
    ids = column.as_list()
    if not column.is_known_N.all():
        raise FileError(
            f"{path}: row {int(column.is_known_N.argmin()) + 1} has no id; give every row an id, or remove the ids"
        )
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(name for name in ids if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise FileError(f"{path} has the id {short(twice)} twice; give each row an id of its own")
    return ids


def repeats_note(path: Path, header: Sequence[str], classes: Sequence[str] = ()) -> str:
    """Return a sentence on rows with the id of an earlier row; "" if there are none, or the file is large.

    Questions of one answer, and versions that answer the same input, share an id. They are no repeated rows.

    Args:
        path: Table in CSV or Parquet.
        header: Its columns.
        classes: The columns that are classes; one of them may be called `id`.
    """
    names = [name for name in (ID, "question", "version") if name in header and name not in classes]
    if ID not in names or path.stat().st_size > MOST_BYTES:
        return ""
    try:
        read = columns.read(path, (), names).texts
    except FileError:  # ids that are no text, such as records of a Parquet file
        return ""
    return repeats_words(read.values())


def repeats_words(keys: Iterable[Texts]) -> str:
    """Return the sentence of `repeats_note` on rows whose keys, first their ids, are all those of an earlier row."""
    first, *others = keys
    known_N = first.is_known_N
    key_NK = np.stack([key.code_N for key in (first, *others)], axis=1)[known_N]
    repeated = len(key_NK) - (len(np.unique(key_NK, axis=0)) if others else len(np.unique(key_NK[:, 0])))
    if not repeated:
        return ""
    have = "row has" if repeated == 1 else "rows have"
    return (
        f"{repeated:,} {have} the id of an earlier row. Each counts as an answer of its own. If they are copies, remove"
        " them: intervals and tests assume independent rows."
    )


def common_rows(
    tables: Mapping[str, Answers], ids: Mapping[str, Sequence[str] | None]
) -> tuple[dict[str, Rows], list[str]]:
    """Return the positions of the rows that have a label in every table, in one order, and sentences about others.

    Args:
        tables: Answers by the name of their model.
        ids: The ids of each table's rows, or None.

    Raises:
        FileError: Only some tables have ids, the numbers of rows differ without ids, no row is common, or labels of the
            same row differ.
    """
    rows, notes = _common(tables, ids)
    labelled_N = np.logical_and.reduce([answers.labelled_N[rows[name]] for name, answers in tables.items()])
    if not labelled_N.any():
        raise FileError(f"{' and '.join(tables)} have no row with a label in each; give the labels of the same rows")
    if not labelled_N.all():
        notes.append(f"{plural(int((~labelled_N).sum()), 'row')} without a label in every table left out.")
    rows = {name: row_N[labelled_N] for name, row_N in rows.items()}
    _check_labels(tables, rows, ids)
    return rows, notes


def _common(
    tables: Mapping[str, Answers], ids: Mapping[str, Sequence[str] | None]
) -> tuple[dict[str, Rows], list[str]]:
    """Return the positions of the rows that all tables have, in the order of the first table."""
    without = [name for name in tables if ids[name] is None]
    if without and len(without) < len(tables):
        other = next(name for name in tables if name not in without)
        raise FileError(
            f"{other} has ids and {without[0]} has none; give both a column {ID} (.npz: {IDS}), or remove it"
        )
    if without:
        lengths = {name: len(answers) for name, answers in tables.items()}
        first, *others = lengths
        for name in others:
            if lengths[name] != lengths[first]:
                problem = f"{first} has {lengths[first]:,} rows and {name} {lengths[name]:,}"
                raise FileError(
                    f"{problem}; give the same rows in the same order, or a column {ID} (.npz: {IDS}) in each"
                )
        return {name: np.arange(lengths[first]) for name in tables}, []
    places = {name: {key: row for row, key in enumerate(ids[name] or ())} for name in tables}
    first, *others = places
    shared = [key for key in places[first] if all(key in places[name] for name in others)]
    if not shared:
        begin = " and ".join(short(next(iter(place))) for place in places.values())
        raise FileError(
            f"{' and '.join(tables)} share no id (the first ones are {begin}); give tables of the same rows, with ids"
            " that are written alike"
        )
    rows = {name: np.array([place[key] for key in shared], np.intp) for name, place in places.items()}
    left = {name: len(place) - len(shared) for name, place in places.items() if len(place) > len(shared)}
    notes = [f"{plural(more, 'row')} of {name} left out: not in every table." for name, more in left.items()]
    return rows, notes


def _check_labels(
    tables: Mapping[str, Answers], rows: Mapping[str, Rows], ids: Mapping[str, Sequence[str] | None]
) -> None:
    """Check that no row has different labels in two tables."""
    (first, theirs), *others = ((name, _labels(answers, rows[name])) for name, answers in tables.items())
    for name, ours in others:
        for a, b, row in zip(theirs, ours, rows[first].tolist(), strict=True):
            if a and b and a != b:
                cure, named = "give the same rows with the same labels", ids[first]
                which = f"row {row + 1} of {first}" if named is None else f"{short(named[row])} of {first}"
                if named is None:
                    cure += f"; a column {ID} (.npz: {IDS}) matches them"
                raise FileError(f"{which} has the label {a!r}, and {b!r} in {name}; {cure}")


def _labels(answers: Answers, row_N: Rows) -> list[str]:
    """Return the labels' names; "" if a table does not have the label."""
    if answers.predicted is None:
        return [""] * len(row_N)
    names = answers.predicted.values
    if answers.label_N is not None:
        return [names[k] for k in answers.label_N[row_N].tolist()]
    codes, right = answers.predicted.code_N[row_N].tolist(), answers.correct_N[row_N].tolist()
    return [names[code] if correct else "" for code, correct in zip(codes, right, strict=True)]
