"""The instances of a JSON body: which it has, and that no name in it stands twice."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from service.errors import ServiceError
from trueodds.inputs import InputKind, Limits
from trueodds.texts import short

PER_INSTANCE = ("ids", "tags", "propensities")


def instances(tree: Any, kind: InputKind, limits: Limits) -> list[Any]:
    """The instances of a /predict body.

    Raises:
        ServiceError: another shape.
        InputError: no instances, or too many.
    """
    if not isinstance(tree, dict) or not isinstance(tree.get("instances"), list):
        raise _invalid(f"the body must be {_expected(kind)}")
    if extra := tree.keys() - {"instances", *PER_INSTANCE}:
        raise _invalid(f"unknown key {short(min(extra))} in the body; expected {_expected(kind)}")
    values: list[Any] = tree["instances"]
    kind.check_count(len(values), limits)
    return values


def check_names(body: bytes, tree: dict[str, Any]) -> None:
    """Raise ServiceError where an object of a body has a name twice; the parser keeps the last of its values.

    `tree` is what was read, whose only objects are itself and its instances. Each name has a colon, so as many colons
    as names means that each stands once; where there are more, as in ids, the body is read again.
    """
    objects = [value for value in tree["instances"] if type(value) is dict]
    if body.count(b":") == len(tree) + sum(map(len, objects)):
        return
    pairs = json.loads(body, object_pairs_hook=_Pairs)
    _check_once(pairs, "the body")
    for n, instance in enumerate(dict(pairs)["instances"]):
        if isinstance(instance, _Pairs):
            _check_once(instance, f"instances[{n}]")


class _Pairs(list[tuple[str, Any]]):
    """The names and values of an object, repeated ones too."""


def _check_once(pairs: _Pairs, place: str) -> None:
    if twice := [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]:
        raise _invalid(f"{place} has the name {short(twice[0])} twice; leave one of its values out")


def _expected(kind: InputKind) -> str:
    beside = "beside it ids, tags and propensities, with one entry for each instance"
    return f'{{"instances": [...]}}, each {kind.instance}; {beside}'


def _invalid(message: str) -> ServiceError:
    return ServiceError(422, "invalid_instances", message)
