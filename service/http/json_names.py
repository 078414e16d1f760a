"""Repeated names in JSON objects. A parser would silently keep only the last one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from trueodds.texts import short

_SHORT = 1024
"""Size in bytes up to which counting one by one is faster than numpy."""
_FEW = 32
"""Number of marks that are searched one by one.

numpy releases the GIL while it compares. Waiting to get it back from the model's thread took up to 40 us per image.
"""
_CHUNK = 64 * 1024
"""Number of bytes that numpy compares at once, so that they stay in the processor's cache."""
_NESTED = frozenset((dict, list))


def repeated_name(body: bytes, tree: Any) -> str:
    """Return a sentence on the first repeated name in an object of `body` and its cure; "" if there is none.

    `tree` is the parsed body. Each pair of name and value has one colon outside of texts. So no name is repeated if
    there are as many colons as names in the tree. Texts are examined only if they contain colons.
    """
    names, colons = _count_names(tree, _count(body, b"{")), _count(body, b":")
    if colons == names or _colons_outside_texts(body) == names:
        return ""
    try:
        found = _find(json.loads(body, object_pairs_hook=_Pairs, parse_int=float), "")
    except RecursionError:  # json cannot read such deep nesting, although orjson can
        found = None
    return f"{found or 'an object of the body has a name'} twice; remove one of them"


def _count_names(tree: Any, objects: int) -> int:
    """Count the names in all objects of a tree. It has at most `objects` of them, so the rest need not be visited."""
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
    count, start = 0, body.find(mark)
    while start >= 0 and count < _FEW:  # a long text is passed over in one step
        count, start = count + 1, body.find(mark, start + 1)
    if start < 0:
        return count
    bytes_N, mark_ = np.frombuffer(body, np.uint8), ord(mark)
    return sum(int(np.count_nonzero(bytes_N[start : start + _CHUNK] == mark_)) for start in range(0, len(body), _CHUNK))


class _Pairs(list[tuple[str, Any]]):
    """Names and values of an object, including repeated ones."""


def _find(tree: Any, place: str) -> str:
    """Return the place of the first object with a repeated name, and that name; "" if there is none."""
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
