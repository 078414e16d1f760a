"""Parameters of an infer request of the Open Inference Protocol, and their checks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from service.errors import ServiceError
from service.predict import options
from trueodds.texts import short

invalid = partial(ServiceError, 422, "invalid_request")
"""Error for a bad request, made from its message."""

MAX_SEQUENCE_ID = 128
"""Longest sequence id in characters, as in Triton."""


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise invalid(f"{name} is {short(value)}; allowed are true and false")
    return value


def _whole_number(value: Any, name: str) -> int:
    if type(value) is not int or value < 0:
        raise invalid(f"{name} is {short(value)}; allowed is a whole number, 0 or more")
    return value


def _sequence_id(value: Any, name: str) -> int | str:
    if isinstance(value, str) and len(value) <= MAX_SEQUENCE_ID:
        return value
    if type(value) is not int or value < 0:
        text = f"a text of up to {MAX_SEQUENCE_ID} characters"
        raise invalid(f"{name} is {short(value)}; allowed is a whole number, 0 or more, or {text}")
    return value


def _level(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not 0 < value < 1:
        raise invalid(f"{name} is {short(value)}; allowed is a number between 0 and 1, such as 0.9")
    return float(value)


CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "prediction_id": options.check_id,
    "tag": options.check_tag,
    "propensity": options.check_propensity,
    "set": _level,
    "binary_data_output": _flag,
    "timeout": _whole_number,
    "priority": _whole_number,
    "sequence_id": _sequence_id,
    "sequence_start": _flag,
    "sequence_end": _flag,
}
"""Check of a value by parameter name. Triton's clients send the last five."""


def read_parameters(value: Any) -> dict[str, Any]:
    """Validate the parameters.

    Raises:
        ServiceError: 422 if the value is not an object, or for an unknown parameter or a value that is not allowed.
    """
    if not isinstance(value, dict):
        raise invalid(f"parameters is {short(value)}; expected an object")
    if unknown := value.keys() - CHECKS.keys():
        raise invalid(f"unknown parameter {short(min(unknown))}; allowed are {', '.join(CHECKS)}")
    return {name: CHECKS[name](one, f"parameters.{name}") for name, one in value.items()}


def seconds(parameters: dict[str, Any], most: float) -> float:
    """Return the time limit of an answer: `timeout` (microseconds) if it is set and not 0, at most `most`."""
    timeout: int = parameters.get("timeout", 0)
    return min(timeout / 1e6, most) if timeout else most
