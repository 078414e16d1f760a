"""Classes of a table: the class of each label, and the class of each column of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.errors import nearest
from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.texts import Places, form, is_whole_number, quotes, short, without_point

NO_LABEL = ("", "nan", "null")
"""Cells, in lower case, that mean no label."""
NO_LABEL_CURE = "leave the cell empty (in an array: NaN) if there is no label"
UNCLEAR = ("none", "na", "n/a", "#n/a", "<na>")
"""Cells, in lower case, that some programs write for a missing value and that may also be names of classes."""
_SIGNS = {"-1": 0, "1": 1}
_TELLING, _ROWS_A_CLASS = 100, 10
"""Smallest number of labelled rows, in all and for each class, that may show another order of the classes.

With fewer rows, some order fits by chance: of 600 rows of 1,000 classes most are the only one with their two classes.
"""
_ASSIGNED = 1000
"""Largest number of classes whose orders are compared, because the time grows with its cube."""
_SHOWN = 4
"""Largest number of classes that a note lists with their numbers."""
_NAMED = 10
"""Largest number of columns that a note lists as an option."""
_ENOUGH = 20
"""Number of labelled rows from which a column that no label names, and that is mostly the highest, is refused."""

Scheme = Literal["names", "numbers", "signs"]
"""Ways in which labels identify their classes: by name, by the number of the column, or as -1 and 1."""


class ClassIndices(NamedTuple):
    """Classes of texts.

    Attributes:
        index_N: Column of the class that each text means, -1 for none.
        scheme: How the texts were read.
    """

    index_N: npt.NDArray[np.intp]
    scheme: Scheme


class OneColumn(NamedTuple):
    """Classes of a table with a single column of probabilities.

    Attributes:
        classes: The other class, and the class whose probability the column holds.
        note: How the class was determined, if not by the column's name.
    """

    classes: tuple[str, ...]
    note: str = ""


def is_none(value: str) -> bool:
    """Return whether a cell means that there is no label."""
    return value.lower() in NO_LABEL


def label_values(labels: Texts, names: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the different labels, with whole numbers without a point.

    A name in `names` is a label even if it looks empty.
    """
    return tuple(dict.fromkeys(without_point(value) for value in labels.values if value in names or not is_none(value)))


def numeric_names(source: str, labels: Texts, count: int, first: int | None = None) -> tuple[str, ...]:
    """Return names for the classes of an array without names: their numbers, or -1 and 1 if the labels are these.

    Numbers count from `first`. If `first` is None, they count from 0, provided that the labels show it.

    Raises:
        FileError: The labels may count from 0 or from 1, or a label is a name.
    """
    names = [value for value in label_values(labels) if not is_whole_number(value)]
    if names and not (count == len(_SIGNS) and {name.lower() for name in names} <= {"true", "false"}):
        raise FileError(
            f"{source} does not name its {count:,} classes, and the label {short(names[0])} is a name; give the names"
            " in the order of the numbers: --classes a,b,c"
        )
    if count == len(_SIGNS) and _are_signs(label_values(labels)):
        return tuple(_SIGNS)
    if first is None:
        check_first(source, label_values(labels), count)
    return tuple(map(str, range(first or 0, count + (first or 0))))


def check_first(source: str, cells: Sequence[str], count: int) -> None:
    """Check that numeric labels show whether the first class has the number 0 or 1.

    Raises:
        FileError: No label is 0.
    """
    if cells and {*cells} <= {str(number) for number in range(1, count + 1)}:
        problem = f"{source} has the labels {quotes(sorted(cells, key=int))} of {count:,} classes, and none is 0"
        cure = "give the number of the first class: --first-label 0 or --first-label 1"
        raise FileError(f"{problem}; {cure}, or name the classes as the labels do: --classes 1,2,3")


def class_indices(
    source: str,
    kind: str,
    texts: Texts,
    classes: Sequence[str],
    *,
    first: int | None = None,
    beside: Texts | None = None,
) -> ClassIndices:
    """Return the class that each text means, as `Places` finds it.

    If the classes' names are whole numbers, or some text is a name, all texts are read as names. Otherwise they are
    numbers of classes, counted from `first`. With two classes they can also be -1 and 1, or false and true. If `first`
    is None, they count from 0, provided that these texts or those of the column `beside` show it.

    Raises:
        FileError: A text is not a class, or the numbers may count from 0 or from 1.
    """
    places = Places(classes)
    cells = label_values(texts, classes)
    by_name = {value: k for value in cells if (k := places.get(value)) is not None}
    whole = all(map(is_whole_number, classes))
    place = {str(k + (first or 0)): k for k in range(len(classes))}
    scheme: Scheme = "numbers"
    if whole or by_name:
        place, scheme = by_name, "names"
    elif len(classes) == len(_SIGNS) and _are_signs(cells):
        place, scheme = _SIGNS, "signs"
    else:
        if first is None:
            check_first(source, (*cells, *(label_values(beside, classes) if beside else ())), len(classes))
        place |= {"false": 0, "true": 1} if len(classes) == len(_SIGNS) else {}
    folded = place if scheme == "names" else {value: place[value.lower()] for value in cells if value.lower() in place}
    for value in cells:
        if value not in folded:
            allowed = f"{_allowed_labels(classes, whole)}; {NO_LABEL_CURE}.{nearest(value[:100], classes)}"
            raise FileError(f"{source} has the {kind} {short(value)}; {allowed}")
    code_V = np.array([folded.get(value, folded.get(without_point(value), -1)) for value in texts.values], np.intp)
    return ClassIndices(code_V[texts.code_N] if len(texts) else np.zeros(0, np.intp), scheme)


def bare_names(columns: Sequence[str], labels: Texts) -> tuple[str, ...]:
    """Return the names of the classes that the columns' names contain, such as cat, dog in p_cat, p_dog.

    This requires the same text before and after the name in all columns, as in p(cat), p(dog), and that every label is
    a name. Otherwise the columns' names are the classes' names.
    """
    values = label_values(labels, columns)
    if not values or any(value in columns for value in values):
        return tuple(columns)
    for column in columns:
        before, found, after = column.rpartition(values[0])
        if not found or before[-1:].isdigit() or after[:1].isalnum():
            continue
        around = [name for name in columns if name.startswith(before) and name.endswith(after)]
        names = tuple(name[len(before) : len(name) - len(after)] for name in around)
        if len(names) == len(columns) and {*values} <= {*names}:
            return names
    return tuple(columns)


def one_column(
    source: str, column: str | None, labels: Texts, *, classes: Sequence[str] = (), positive: str | None = None
) -> OneColumn:
    """Determine whose probability a single column holds, for two classes.

    It is that of the class that the column is named after, else that of `positive`. An array has no name. With the
    labels 0 and 1, -1 and 1, or false and true, it holds the probability of 1 or true.

    Args:
        source: Name of the table's file.
        column: Name of the column; None for an array.
        labels: True classes.
        classes: Both classes, if they were given. Otherwise they are those of the labels.
        positive: The positive class.

    Raises:
        FileError: There are more than two classes, the positive class is not one of them, or the class is not known.
    """
    names = tuple(classes) or label_values(labels, [name for name in (column, positive) if name])
    numbers = f"the column {column!r}" if column else "one column"
    if len(names) > len(_SIGNS):
        problem = f"{source} has {numbers} of probabilities for {len(names):,} classes ({quotes(names)})"
        raise FileError(f"{problem}; give a column for each class, or labels of two")
    if column is not None and without_point(column) in map(without_point, names):
        return OneColumn(_pair(names, without_point(column), positive))
    if positive is not None:
        if (len(names) == len(_SIGNS) and positive not in names) or not _alike(names, positive):
            problem = f"{source}: --positive {positive!r} is not a class of the labels"
            raise FileError(f"{problem}; allowed are {quotes(names)}")
        return OneColumn(
            _pair(names, positive), f"{numbers.capitalize()} is read as p({positive}), as --positive says."
        )
    if column is None and (truth := _truth(names)):
        return OneColumn(_pair(names, truth), f"The one column of probabilities is read as p({truth}).")
    cure = " or ".join(f"--positive {name}" for name in names) or "--positive CLASS"
    having = f"the labels {quotes(names)}" if names else "no labels"
    raise FileError(f"{source} has {numbers} of probabilities beside {having}; say whose probability it is: {cure}")


def check_alike(source: str, predicted: Sequence[str], labels: Sequence[str]) -> None:
    """Check that labels which no answer predicts are neither another spelling of a predicted class nor a missing value.

    Raises:
        FileError: Such a label may be one.
    """
    others = [name for name in labels if name not in predicted]
    folded = {form(name): name for name in predicted}
    kinds = [set(map(_kind, names)) for names in (predicted, labels)]
    problem = ""
    if unclear := [name for name in others if name.lower() in UNCLEAR]:
        problem = f"the label {unclear[0]!r}, which no answer predicts: is it a class, or no label?"
    elif "-1" in others and all(map(is_whole_number, predicted)):
        problem = "the label '-1', which no answer predicts: is it a class, or no label?"
    elif twice := [name for name in others if form(name) in folded]:
        problem = f"the label {twice[0]!r} and predicts {folded[form(twice[0])]!r}: are they one class?"
    elif labels and len(others) == len(labels) and kinds[0] != kinds[1]:
        problem = f"the labels {quotes(labels)} and predicts {quotes(predicted)}: are they the same classes?"
    if problem:
        cure = "use the same spelling in both columns, or name all classes in the order of their numbers: --classes a,b"
        raise FileError(f"{source} has {problem} {NO_LABEL_CURE.capitalize()}, {cure}")


def check_order(
    source: str, top_N: npt.NDArray[np.intp], label_N: npt.NDArray[np.intp], classes: Sequence[str]
) -> None:
    """Check that numeric labels do not fit the answers better with the classes in another order.

    Raises:
        FileError: Another order fits better.
    """
    known_N = label_N >= 0
    counts_CC = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(counts_CC, (top_N[known_N], label_N[known_N]), 1)
    check_order_of_counts(source, counts_CC, classes)


def check_order_of_counts(source: str, counts_CC: npt.NDArray[np.int64], classes: Sequence[str]) -> None:
    """Check counts of labelled answers by predicted class and label, as `check_order` does.

    Raises:
        FileError: Another order fits better.
    """
    columns, numbers = scipy.optimize.linear_sum_assignment(counts_CC, maximize=True)
    right, most, n = int(counts_CC.trace()), int(counts_CC[columns, numbers].sum()), int(counts_CC.sum())
    if most > right:
        problem = f"{source}: the labels are numbers, and {right:,} of {n:,} answers are right if the classes are"
        other = quotes([classes[int(k)] for k in np.argsort(numbers)])
        cure = "give the true order with --classes a,b, beginning with the class of the lowest number"
        raise FileError(f"{problem} {quotes(classes)}, {most:,} if they are {other}; {cure}")


def order_doubt(top_N: npt.NDArray[np.integer], label_N: npt.NDArray[np.integer], classes: Sequence[str]) -> str:
    """Return a sentence on columns of classes that are in another order than the labels, by all appearances.

    Args:
        top_N: Column of the highest probability in each row.
        label_N: Column of the true class, -1 without a label.
        classes: Names of the columns.

    Returns:
        The sentence; "" if half of the rows are right, or no other order makes half of them right and twice as many.
    """
    known_N, count = label_N >= 0, len(classes)
    right, n = int((top_N == label_N).sum()), int(known_N.sum())
    if n < max(_TELLING, _ROWS_A_CLASS * count) or 2 * right > n or count > _ASSIGNED:
        return ""
    cell_N = top_N[known_N].astype(np.intp) * count + label_N[known_N]
    counts_CC = np.bincount(cell_N, minlength=count**2).reshape(count, count)
    columns, numbers = scipy.optimize.linear_sum_assignment(counts_CC, maximize=True)
    most = int(counts_CC[columns, numbers].sum())
    if 2 * most < n or most < 2 * right:
        return ""
    order = quotes([classes[int(k)] for k in numbers]) if count <= _SHOWN else "another one"
    would = f"{right:,} of {n:,} rows are right, and {most:,} would be if the order of the classes were {order}"
    return f"{would}. Check the order of the classes."


def order_note(scheme: Scheme, classes: Sequence[str], first: int = 0) -> str:
    """Describe how labels that are not names are read; "" if there is nothing to say."""
    if scheme == "names":
        return "The label -1 is a class; an empty cell is no label." if "-1" in classes else ""
    numbers = _SIGNS if scheme == "signs" else range(first, first + len(classes))
    pairs = [f"{number} is {name!r}" for number, name in zip(numbers, classes, strict=True)]
    more = f" and {len(pairs) - _SHOWN:,} more" if len(pairs) > _SHOWN else ""
    return f"The labels are numbers, in the order of the classes: {', '.join(pairs[:_SHOWN])}{more}."


def unlabelled_note(
    path: Path, columns: Sequence[str], classes: Sequence[str], logits_NC: npt.NDArray[np.floating], labels: Texts
) -> str:
    """Describe columns of logits that may not be classes, because no label names them; "" if there are none.

    Args:
        path: The table, for messages.
        columns: Names of the columns.
        classes: Names of the classes, one for each column.
        logits_NC: The columns' values.
        labels: True classes.

    Raises:
        FileError: Such a column has the highest logit in most of many labelled rows, so it is hardly a class.
    """
    values = label_values(labels, classes)
    absent = [k for k, name in enumerate(classes) if without_point(name) not in values]
    if not values or not {*values} <= {*map(without_point, classes)} or not absent:
        return ""
    others = [name for k, name in enumerate(columns) if k not in absent]
    cure = f"name the columns that are classes: --classes {','.join(others) if len(others) <= _NAMED else 'a,b'}"
    names = quotes([columns[k] for k in absent])
    known_V = np.array([not is_none(value) for value in labels.values])
    top_N = logits_NC[known_V[labels.code_N]].argmax(axis=1)
    highest = int(np.isin(top_N, absent).sum())
    if len(top_N) >= _ENOUGH and 2 * highest > len(top_N):
        raise FileError(
            f"{path}: no label is {names}, and these columns have the highest logit in {highest:,} of"
            f" {len(top_N):,} labelled rows; if they are not classes, {cure}; otherwise name them there too"
        )
    return f"No label is {names}: if that is not a class, {cure}."


def _kind(name: str) -> str:
    if is_whole_number(name):
        return "number"
    return "truth value" if name.lower() in ("true", "false") else "name"


def _are_signs(values: Sequence[str]) -> bool:
    return "-1" in values and {*values} <= {*_SIGNS}


def _pair(names: Sequence[str], owner: str, positive: str | None = None) -> tuple[str, ...]:
    """Return the other class, and the one whose probability is known. `positive` is one of them."""
    numbers = {"0": "1", "1": "0", "-1": "1"}
    known = (*map(without_point, names), positive, numbers.get(owner), f"not {owner}")
    return next(name for name in known if name and name != owner), owner


def _alike(names: Sequence[str], positive: str) -> bool:
    """Return whether the labels can belong with the positive class: both are numbers, or both are words."""
    return all(is_whole_number(name) == is_whole_number(positive) for name in names)


def _truth(names: Sequence[str]) -> str | None:
    """Return the one of two labels that means yes, if they are numbers or truth values."""
    for pair in (("0", "1"), tuple(_SIGNS), ("False", "True"), ("false", "true")):
        if {*names} <= {*pair}:
            return pair[1]
    return None


def _allowed_labels(classes: Sequence[str], whole: bool) -> str:
    """Describe the allowed labels."""
    if tuple(classes) == tuple(map(str, range(len(classes)))):
        return f"allowed are 0..{len(classes) - 1}"
    signs = ", or as -1 and 1" if len(classes) == len(_SIGNS) else ""
    return f"allowed are {quotes(classes)}" + ("" if whole else f", or all as numbers 0..{len(classes) - 1}{signs}")
