"""Which class each label of a table names, and whose probability each of its columns is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from trueodds.errors import nearest
from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.inputs.names import Places, form
from trueodds.texts import is_whole_number, listed, short, without_point

NO_LABEL = ("", "nan", "null")
"""Cells of a label, in small letters, of an answer that has none."""
NO_LABEL_CURE = "leave the cell empty (in an array: NaN) where there is no label"
UNCLEAR = ("none", "na", "n/a", "#n/a", "<na>")
"""Cells, in small letters, that some programs write where there is nothing, and that may be names of classes."""
_SIGNS = {"-1": 0, "1": 1}
_SHOWN = 4
"""Classes that a note names, each with its number."""

Scheme = Literal["names", "numbers", "signs"]
"""How labels name their classes: by name, by the number of its column, or as -1 and 1."""


class ClassIndices(NamedTuple):
    """index_N: the column of the class that each text names, -1 where there is none. scheme: how they are read."""

    index_N: npt.NDArray[np.intp]
    scheme: Scheme


class OneColumn(NamedTuple):
    """classes: the other class and the one whose probability the column holds. note: how that is known, if not by the
    column's name.
    """

    classes: tuple[str, ...]
    note: str = ""


def is_none(value: str) -> bool:
    """Whether a cell says that there is no label."""
    return value.lower() in NO_LABEL


def given(labels: Texts, names: Sequence[str] = ()) -> tuple[str, ...]:
    """The different labels, whole numbers without a point; a name is one even if it reads like an empty cell."""
    return tuple(dict.fromkeys(without_point(value) for value in labels.values if value in names or not is_none(value)))


def numbered(source: str, labels: Texts, count: int, first: int | None = None) -> tuple[str, ...]:
    """Names of the classes of an array that has none: their numbers from `first` on, or -1 and 1 where the labels are
    these. None: from 0 on, if the labels say so.

    Raises:
        FileError: labels that may count from 0 or from 1.
    """
    if count == len(_SIGNS) and _are_signs(given(labels)):
        return tuple(_SIGNS)
    if first is None:
        check_first(source, given(labels), count)
    return tuple(map(str, range(first or 0, count + (first or 0))))


def check_first(source: str, cells: Sequence[str], count: int) -> None:
    """Raises FileError for labels that are numbers of classes, all from 1 on: the first class has 0, or it has 1."""
    if cells and {*cells} <= {str(number) for number in range(1, count + 1)}:
        problem = f"{source} has the labels {listed(sorted(cells, key=int))} of {count:,} classes, and none is 0"
        cure = "say which number the first class has: --first-label 0 or --first-label 1"
        raise FileError(f"{problem}; {cure}, or name the classes as the labels do: --classes 1,2,3")


def class_indices(
    source: str,
    what: str,
    texts: Texts,
    classes: Sequence[str],
    *,
    first: int | None = None,
    beside: Texts | None = None,
) -> ClassIndices:
    """The class that each text names, as `Places` finds it.

    Where the names of the classes are whole numbers, or a text is a name, all are names. Else they are the numbers of
    the classes, `first` for the first one; of two classes also -1 and 1, or false and true. `first` None: 0, if these
    texts or those of the column `beside` say so.

    Raises:
        FileError: a text that is no class; numbers that may count from 0 or from 1.
    """
    places = Places(classes)
    cells = given(texts, classes)
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
            check_first(source, (*cells, *(given(beside, classes) if beside else ())), len(classes))
        place |= {"false": 0, "true": 1} if len(classes) == len(_SIGNS) else {}
    folded = place if scheme == "names" else {value: place[value.lower()] for value in cells if value.lower() in place}
    for value in cells:
        if value not in folded:
            allowed = f"{_allowed(classes, whole)}; {NO_LABEL_CURE}.{nearest(value[:100], classes)}"
            raise FileError(f"{source} has the {what} {short(value)}; {allowed}")
    code_V = np.array([folded.get(value, folded.get(without_point(value), -1)) for value in texts.values], np.intp)
    return ClassIndices(code_V[texts.code_N] if len(texts) else np.zeros(0, np.intp), scheme)


def bare_names(columns: Sequence[str], labels: Texts) -> tuple[str, ...]:
    """The names of the classes in those of their columns: p_cat, p_dog or p(cat), p(dog) where the labels are cat, dog.

    What stands before and after the name is the same in all columns, and every label is a name; else the columns are
    the names.
    """
    values = given(labels, columns)
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
    """Whose probability the only column of numbers is, of two classes: of the class that it is named as, else of the
    positive one. An array has no name: beside the labels 0 and 1, -1 and 1, or false and true, it is that of 1 or true.

    `classes`: both, where they are stated; else they are the labels'.

    Raises:
        FileError: more than two classes, a positive class that is none of them, or nothing says whose it is.
    """
    names = tuple(classes) or given(labels, [name for name in (column, positive) if name])
    what = f"the column {column!r}" if column else "one column"
    if len(names) > len(_SIGNS):
        problem = f"{source} has {what} of probabilities for {len(names):,} classes ({listed(names)})"
        raise FileError(f"{problem}; give a column for each class, or labels of two")
    if column is not None and without_point(column) in map(without_point, names):
        return OneColumn(_pair(names, without_point(column), positive))
    if positive is not None:
        if (len(names) == len(_SIGNS) and positive not in names) or not _alike(names, positive):
            problem = f"{source}: --positive {positive!r} is no class of the labels"
            raise FileError(f"{problem}; allowed are {listed(names)}")
        return OneColumn(_pair(names, positive), f"{what.capitalize()} is read as p({positive}), as --positive says.")
    if column is None and (truth := _truth(names)):
        return OneColumn(_pair(names, truth), f"The one column of probabilities is read as p({truth}).")
    cure = " or ".join(f"--positive {name}" for name in names) or "--positive CLASS"
    having = f"the labels {listed(names)}" if names else "no labels"
    raise FileError(f"{source} has {what} of probabilities beside {having}; say whose probability it is: {cure}")


def check_alike(source: str, predicted: Sequence[str], labels: Sequence[str]) -> None:
    """Raises FileError for a label that no answer predicts, where it may be written in another way than these, or be no
    label.
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
        problem = f"the labels {listed(labels)} and predicts {listed(predicted)}: are they the same classes?"
    if problem:
        cure = "write both columns alike, or name all classes in the order of their numbers: --classes a,b"
        raise FileError(f"{source} has {problem} {NO_LABEL_CURE.capitalize()}, {cure}")


def check_order(
    source: str, top_N: npt.NDArray[np.intp], label_N: npt.NDArray[np.intp], classes: Sequence[str]
) -> None:
    """Raises FileError where the answers fit labels that are numbers better with the classes in another order."""
    known_N = label_N >= 0
    counts_CC = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(counts_CC, (top_N[known_N], label_N[known_N]), 1)
    columns, numbers = linear_sum_assignment(counts_CC, maximize=True)
    right, most, n = int(counts_CC.trace()), int(counts_CC[columns, numbers].sum()), int(known_N.sum())
    if most > right:
        problem = f"{source}: the labels are numbers, and {right:,} of {n:,} answers are right if the classes are"
        other = listed([classes[int(k)] for k in np.argsort(numbers)])
        cure = "say which order is true: --classes a,b names them, first the one with the lowest number"
        raise FileError(f"{problem} {listed(classes)}, {most:,} if they are {other}; {cure}")


def order_note(scheme: Scheme, classes: Sequence[str], first: int = 0) -> str:
    """How labels that are no names are read; empty where there is nothing to say."""
    if scheme == "names":
        return "The label -1 is a class; an empty cell is no label." if "-1" in classes else ""
    numbers = _SIGNS if scheme == "signs" else range(first, first + len(classes))
    pairs = [f"{number} is {name!r}" for number, name in zip(numbers, classes, strict=True)]
    more = f" and {len(pairs) - _SHOWN:,} more" if len(pairs) > _SHOWN else ""
    return f"The labels are numbers, in the order of the classes: {', '.join(pairs[:_SHOWN])}{more}."


def unlabelled_note(classes: Sequence[str], labels: Texts) -> str:
    """Which columns of logits may be no classes: those that no label names, where labels are names. Else empty."""
    values = given(labels, classes)
    absent = [name for name in classes if without_point(name) not in values]
    if not values or not {*values} <= {*map(without_point, classes)} or not absent:
        return ""
    return f"No label is {listed(absent)}: if that is no class, name the columns that are: --classes a,b."


def _kind(name: str) -> str:
    if is_whole_number(name):
        return "number"
    return "truth value" if name.lower() in ("true", "false") else "name"


def _are_signs(values: Sequence[str]) -> bool:
    return "-1" in values and {*values} <= {*_SIGNS}


def _pair(names: Sequence[str], owner: str, positive: str | None = None) -> tuple[str, ...]:
    """The other class, and the one whose probability is known; `positive` is one of them."""
    numbers = {"0": "1", "1": "0", "-1": "1"}
    known = (*map(without_point, names), positive, numbers.get(owner), f"not {owner}")
    return next(name for name in known if name and name != owner), owner


def _alike(names: Sequence[str], positive: str) -> bool:
    """Whether labels of one class at most may go with the positive one: both are numbers, or both words."""
    return all(is_whole_number(name) == is_whole_number(positive) for name in names)


def _truth(names: Sequence[str]) -> str | None:
    """The one of two labels that means yes, where they are numbers or truth values."""
    for pair in (("0", "1"), tuple(_SIGNS), ("False", "True"), ("false", "true")):
        if {*names} <= {*pair}:
            return pair[1]
    return None


def _allowed(classes: Sequence[str], whole: bool) -> str:
    if tuple(classes) == tuple(map(str, range(len(classes)))):
        return f"allowed are 0..{len(classes) - 1}"
    signs = ", or as -1 and 1" if len(classes) == len(_SIGNS) else ""
    return f"allowed are {listed(classes)}" + ("" if whole else f", or all as numbers 0..{len(classes) - 1}{signs}")
