"""The instances of a JSON body."""

from __future__ import annotations

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


def _expected(kind: InputKind) -> str:
    beside = "beside it ids, tags and propensities, with one entry for each instance"
    return f'{{"instances": [...]}}, each {kind.instance}; {beside}'


def _invalid(message: str) -> ServiceError:
    return ServiceError(422, "invalid_instances", message)
