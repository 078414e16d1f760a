"""Names that stand twice in an object of JSON, of which a parser silently keeps the last."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from trueodds.texts import short

_SHORT = 4096
"""Bytes up to which they are counted faster one by one than by numpy."""
_CHUNK = 64 * 1024
"""Bytes that numpy compares at once: their comparison stays in the processor's cache."""
_NESTED = frozenset((dict, list))


def repeated_name(body: bytes, tree: Any) -> str:
    """The name that stands twice in an object of `body`, and the cure, as a sentence; "" where there is none.

    `tree` is what was read from it. Each pair of name and value has one colon outside of texts, so each name stands
    once if there are as many colons as names in the tree. Texts are looked at only where they hold a colon, too.
    """
    names, colons = _count_names(tree, _count(body, b"{")), _count(body, b":")
    if colons == names or _colons_outside_texts(body) == names:
        return ""
    try:
        found = _find(json.loads(body, object_pairs_hook=_Pairs, parse_int=float), "")
    except RecursionError:  # the other parser reads what is nested deeper
        found = None
    return f"{found or 'an object of the body has a name'} twice; leave one of its values out"


def _count_names(tree: Any, objects: int) -> int:
    """The names in all objects of a tree, which are at most so many: the rest of it is then not looked at."""
    count, queue = 0, [tree]
    for value in queue:
        if type(value) is dict:
            count, objects = count + len(value), objects - 1
            if not objects:
                break
            queue += [inner for inner in value.values() if type(inner) in _NESTED]
        elif type(value) is list:
            queue += [inner for inner in value if type(inner) in _NESTED]
    return count


def _colons_outside_texts(body: bytes) -> int:
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    return sum(part.count(b":") for part in plain.split(b'"')[::2])


def _count(body: bytes, mark: bytes) -> int:
    if len(body) < _SHORT:
        return body.count(mark)
    bytes_N, mark_ = np.frombuffer(body, np.uint8), ord(mark)
    return sum(int(np.count_nonzero(bytes_N[start : start + _CHUNK] == mark_)) for start in range(0, len(body), _CHUNK))


class _Pairs(list[tuple[str, Any]]):
    """The names and values of an object, repeated ones too."""


def _find(tree: Any, place: str) -> str:
    """The first object with a name that stands twice, by its place in the tree, and that name; "" where none has."""
    steps: Iterable[tuple[str, Any]] = ()
    if isinstance(tree, _Pairs):
        seen = set[str]()
        for name, _ in tree:
            if name in seen:
                return f"{place or 'the body'} has the name {short(name)}"
            seen.add(name)
        steps = ((f"{place}.{name}" if place else name, value) for name, value in tree if isinstance(value, list))
    elif isinstance(tree, list):
        steps = ((f"{place}[{n}]", value) for n, value in enumerate(tree) if isinstance(value, list))
    return next((found for where, value in steps if (found := _find(value, where))), "")
