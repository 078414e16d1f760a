"""Labels of any form as the rows of /feedback: mappings, pairs, sequences, arrays, one id with its label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, Literal, TypeAlias

from trueodds.client.observations import CLASS, plain_class
from trueodds.errors import ConfigError
from trueodds.texts import plural, short

Key: TypeAlias = Literal["label", "index"]
"""The field that names a class: by its name, or by its place among the model's."""


def label_rows(ids: Any, labels: Any, index: Any) -> tuple[Iterator[tuple[str, str | int]], Key]:
    """Pairs of id and class, each checked when it is reached, and the field that names the classes.

    Raises:
        ConfigError: something else, sequences of two lengths, or both labels and indices.
    """
    if labels is not None and index is not None:
        raise ConfigError("labels and index are both given; send the names of the classes or their indices")
    key: Key = "label" if index is None else "index"
    return _checked(_pairs(ids, labels if index is None else index, "labels" if index is None else key), key), key


def _pairs(ids: Any, classes: Any, name: str) -> Iterable[tuple[Any, Any]]:
    if isinstance(ids, str):
        return [(ids, classes)]
    if isinstance(ids, Mapping) and classes is None:
        return ids.items()
    if classes is None:
        return ids  # type: ignore[no-any-return]
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise ConfigError(f"{name} is {short(classes)}, for several ids; expected one for each")
    if isinstance(ids, Sized) and isinstance(classes, Sized) and len(ids) != len(classes):
        raise ConfigError(f"there are {plural(len(ids), 'id')} and {len(classes):,} of {name}; expected as many")
    return zip(ids, classes, strict=True)


def _checked(rows: Iterable[tuple[Any, Any]], key: Key) -> Iterator[tuple[str, str | int]]:
    """The rows: labels as texts, indices as numbers, also those of numpy.

    Raises:
        ConfigError: a row that is no pair of an id and a label; the message names it.
    """
    n = -1
    iterator = iter(rows)
    while True:
        try:
            row = next(iterator)
        except StopIteration:
            return
        except ValueError as error:  # of zip
            raise ConfigError(f"the ids and their classes are not equally many: {error}") from None
        n += 1
        try:
            id_, class_ = row
        except (TypeError, ValueError):
            raise ConfigError(f"row {n} is {short(row)}; expected a pair of an id and a label") from None
        if not isinstance(id_, str):
            raise ConfigError(f"row {n} has the id {short(id_)}; expected a text, as predict answered it")
        class_ = plain_class(class_, key)
        if class_ is None:
            raise ConfigError(f"row {n} has the {key} {short(row[1])}; {CLASS[key]}")
        yield str(id_), class_
