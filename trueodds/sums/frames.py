"""Checks of what data frames know and arrays do not: the names of their columns and the index of their rows.

Columns and rows are matched by their place. These checks refuse frames whose names or index contradict that. They know
pandas, polars and Arrow by their attributes and import none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.errors import ConfigError
from trueodds.texts import quotes, short

_NUMBERED = re.compile(r"(.*\D|)(\d{1,9})(\D*)", re.DOTALL)
"""A name with a number, such as p_10 or 3."""
SHOWN = 10
"""Largest number of columns that a message arranges."""


def check_index(**named: object) -> None:
    """Check that no two arguments have one pandas index in different orders.

    An index with other entries says nothing: probabilities of a test split often count from 0, and its labels keep the
    index of the whole table.

    Args:
        named: Arguments by their names. Those without an index do not count.

    Raises:
        ConfigError: Two of them have the same entries in their index, in different orders.
    """
    indexed = [(name, index) for name, value in named.items() if (index := _index_of(value)) is not None]
    for (one, index), (other, another) in combinations(indexed, 2):
        if len(index) == len(another) and not index.equals(another) and _have_same_entries(index, another):
            by_index = f"{other}.loc[{one}.index] to pair them by index, " if index.is_unique else ""
            raise ConfigError(
                f"the index of {other} has the entries of that of {one} in another order; rows are paired by their"
                f" place: pass {by_index}{'or ' * bool(by_index)}{other}.to_numpy() if the places are right"
            )


def check_order(**named: object) -> None:
    """Check that data frames and lists of names which name the same columns have them in the same order.

    Args:
        named: Arguments by their names: data frames, tuples of names, and anything else, which has no names. The
            prefixes `p_`, `z_` and `y_` of tables do not count.

    Raises:
        ConfigError: Two of them have the same names in different orders.
    """
    with_names = [(name, texts) for name, value in named.items() if (texts := _names_of(value))]
    for (one, texts), (other, others) in combinations(with_names, 2):
        if texts != others and sorted(texts) == sorted(others):
            raise ConfigError(
                f"{other} has the order {quotes(others)}, and {one} has {quotes(texts)}; allowed is one order, because"
                f" columns are matched by their place: arrange {other} like {one}"
            )


def check_columns(
    values: object, labels: npt.ArrayLike, classes: Sequence[object] | None = None, name: str = "probabilities"
) -> None:
    """Check that the names of a frame's columns do not contradict the order of the classes.

    Args:
        values: Probabilities or logits of exclusive classes, or p(positive) alone. Only a frame or a series has names.
        labels: True classes.
        classes: Names of the columns in their order, if they were given.
        name: Name of `values` in messages.

    Raises:
        ConfigError: The columns have the names of the classes in another order. Or there are no `classes`, the columns'
            names are numbers other than 0, 1, 2, .., and all labels are among them, so labels may be names or places.
            Or a series has the name of the first of two classes, whose second is the positive one.
    """
    own = getattr(values, "name", None)
    if classes is not None and len(classes) == 2 and isinstance(own, str) and np.ndim(values) == 1:  # type: ignore[arg-type]
        first, positive = map(str, classes)
        if _is_named(own, first) and not _is_named(own, positive):
            raise ConfigError(
                f"{name} is the column {own!r}, and classes is {quotes([first, positive])}; one column is the"
                f" probability of the second class, {positive!r}: pass classes=[{positive!r}, {first!r}]"
            )
    texts = [*map(str, columns_of(values))]
    if not texts:
        return
    if classes is not None:
        wanted = _alike(texts, [*map(str, classes)])
        if wanted and wanted != texts:
            cure = f"pass {name}[{wanted}]" if len(wanted) <= SHOWN else "arrange the columns like classes"
            raise ConfigError(
                f"{name} has the columns {quotes(texts)}, and classes is {quotes([*map(str, classes)])}; allowed is one"
                f" order, because columns are matched by their place: {cure}"
            )
        return
    numbers = _numbers(texts)
    if numbers in ([], [*range(len(texts))]):
        return
    label_N = np.asarray(labels)
    if label_N.ndim == 1 and label_N.size and label_N.dtype.kind in "iuf" and np.isin(label_N, numbers).all():
        names = "classes=..., or the place" if name == "probabilities" else "the place"
        raise ConfigError(
            f"{name} has the columns {quotes(texts)}, and every label is one of these numbers; a label is read as the"
            f" place of a column, counted from 0. If labels are names, pass {names} of each label's column; if they are"
            f" places, pass {name}.to_numpy()"
        )


def check_has_order(classes: object) -> None:
    """Check that the names of classes are a sequence. A set has no order, and the order of a mapping's keys may be any.

    Raises:
        ConfigError: They are a set or a mapping.
    """
    if isinstance(classes, Set | Mapping):
        raise ConfigError(f"classes is {short(classes)}; give a list of names, in the order of the columns")


def columns_of(values: object) -> list[Any]:
    """Return the names of the columns of a pandas or polars data frame or an Arrow table; empty for anything else."""
    if hasattr(values, "collect"):  # a lazy frame has no values, and its names may cost a query
        return []
    columns = getattr(values, "column_names", None) or getattr(values, "columns", ())
    return [*columns] if isinstance(columns, Iterable) and not isinstance(columns, str) else []


def has_texts_as_index(values: object) -> bool:
    """Return whether this is a pandas series whose index holds texts, such as ids."""
    index = _index_of(values)
    return index is not None and hasattr(values, "items") and len(index) > 0 and isinstance(index[0], str)


def _index_of(value: object) -> Any:
    """Return the index of a pandas object, or None. The `index` of a list is a method."""
    index = getattr(value, "index", None)
    return index if hasattr(index, "equals") and hasattr(index, "is_unique") else None


def _have_same_entries(index: Any, another: Any) -> bool:
    if not bool(index.isin(another).all()):
        return False
    try:
        return bool(index.sort_values().equals(another.sort_values()))
    except TypeError:  # entries of several types have no order; isin has found all of them
        return bool(another.isin(index).all())


def _names_of(value: object) -> list[str]:
    """Return the names of a data frame's columns, or those of a tuple; empty if there are none."""
    texts = [*value] if isinstance(value, tuple) else columns_of(value)
    if not all(isinstance(text, str) for text in texts):
        return []
    has_prefix = bool(texts) and all(text[:2] == texts[0][:2] and text[:2] in ("p_", "z_", "y_") for text in texts)
    return [text[2:] for text in texts] if has_prefix else texts


def _alike(columns: list[str], classes: list[str]) -> list[str]:
    """Return the columns in the order of the classes that they name, also as p_cat or p(cat); empty if they do not."""
    for column in columns:
        before, name, after = column.rpartition(classes[0])
        wanted = [f"{before}{one}{after}" for one in classes]
        if name and sorted(wanted) == sorted(columns):
            return wanted
    return []


def _is_named(column: str, one: str) -> bool:
    return column in (one, f"p_{one}", f"p({one})")


def _numbers(columns: list[str]) -> list[int]:
    """Return the numbers in the columns' names, such as 1, 2 in p_1, p_2; empty if they differ in more than that."""
    parts = [match.groups() for column in columns if (match := _NUMBERED.fullmatch(column))]
    around = {(before, after) for before, _, after in parts}
    return [int(number) for _, number, _ in parts] if len(parts) == len(columns) and len(around) == 1 else []
