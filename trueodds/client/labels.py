"""Converts labels of any form to the rows of /feedback: mappings, pairs, sequences, arrays, one id with its label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, Literal, TypeAlias

import numpy as np

from trueodds.client.observations import CLASS, plain_class
from trueodds.errors import ConfigError
from trueodds.sums.frames import check_index, columns_of, has_texts_as_index
from trueodds.texts import plural, quotes, short

Key: TypeAlias = Literal["label", "index"]
"""Field that identifies a class: its name, or its position among the model's classes."""


def label_rows(
    ids: Any, labels: Any, index: Any, *, booleans: bool = False
) -> tuple[Iterator[tuple[str, str | int]], Key]:
    """Return pairs of id and class, each checked when it is reached, and the field that identifies the class.

    `booleans` allows True and False as labels, for the classes `true` and `false`.

    Raises:
        ConfigError: The labels have another form, the lengths differ, or both labels and indices are given.
    """
    if labels is not None and index is not None:
        raise ConfigError(
            "labels and index are both given; give one of them: the names of the classes or their indices"
        )
    key: Key = "label" if index is None else "index"
    pairs = _pairs(ids, labels if index is None else index, "labels" if index is None else key)
    return _check_rows(pairs, key, booleans=booleans and key == "label"), key


def _pairs(ids: Any, classes: Any, name: str) -> Iterable[tuple[Any, Any]]:
    """Return pairs of id and class."""
    if isinstance(ids, str):
        return [(ids, classes)]
    if columns := columns_of(ids):
        problem = f"the ids are a data frame with the columns {quotes([*map(str, columns)])}"
        raise ConfigError(f"{problem}; give the columns of ids and of labels: feedback(frame['id'], frame['label'])")
    check_index(ids=ids, **{name: classes})
    if classes is None and has_texts_as_index(ids):
        return ids.items()  # type: ignore[no-any-return]
    if isinstance(ids, Mapping) and classes is None:
        return ids.items()
    if classes is None:
        return ids  # type: ignore[no-any-return]
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise ConfigError(f"{name} is {short(classes)}, for several ids; expected one for each id")
    if isinstance(ids, Sized) and isinstance(classes, Sized) and len(ids) != len(classes):
        raise ConfigError(
            f"there are {plural(len(ids), 'id')} and {len(classes):,} of {name}; expected the same number"
        )
    return zip(ids, classes, strict=True)


def _check_rows(rows: Iterable[tuple[Any, Any]], key: Key, *, booleans: bool) -> Iterator[tuple[str, str | int]]:
    """Yield each row with its label as a text or its index as an int. Values of numpy are converted."""
    n = -1
    iterator = iter(rows)
    while True:
        try:
            row = next(iterator)
        except StopIteration:
            return
        except ValueError as error:  # raised by zip
            raise ConfigError(f"the numbers of ids and classes differ: {error}") from None
        n += 1
        try:
            id_, class_ = () if isinstance(row, str) else row  # a text of two characters is no pair
        except (TypeError, ValueError):
            raise ConfigError(f"row {n} is {short(row)}; expected a pair of an id and a label") from None
        if not isinstance(id_, str):
            raise ConfigError(f"row {n} has the id {short(id_)}; expected a text, such as an id that predict returned")
        is_boolean = booleans and isinstance(class_, bool | np.bool_)
        class_ = str(bool(class_)).lower() if is_boolean else plain_class(class_, key)
        if class_ is None:
            is_flag = key == "label" and isinstance(row[1], bool | np.bool_)
            cure = f". Pass booleans as the names of their classes, such as {str(row[1])!r}" if is_flag else ""
            raise ConfigError(f"row {n} has the {key} {short(row[1])}; {CLASS[key]}{cure}")
        yield str(id_), class_
