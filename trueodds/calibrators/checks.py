"""Checks of the options of a fit. They run before there are rows, and again in the fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trueodds.errors import nearest


def check_choice(option: str, value: object, choices: Iterable[str]) -> None:
    """Check that a value is one of the allowed names.

    Raises:
        ValueError: It is not. The message names the option, the value, the allowed names and the nearest one.
    """
    names = list(choices)
    if value not in names:
        raise ValueError(f"{option} is {value!r}; allowed: {', '.join(names)}.{nearest(str(value), names)}")


def check_number(option: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    """Check that low <= value <= high, and that it is an integer if `whole`.

    Raises:
        ValueError: It is not.
    """
    kind = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
        raise ValueError(
            f"{option} is {value!r}; allowed is {'an integer' if whole else 'a number'} in [{low}, {high}]"
        )


class OptionCheck(Protocol):
    """Check of an option's value."""

    def __call__(self, option: str, value: object) -> None:
        """Raise a ValueError that names the option, the value and the allowed values, if the value is not allowed."""


@dataclass(frozen=True)
class OneOf:
    """Check that a value is one of some names."""

    names: tuple[str, ...]

    def __call__(self, option: str, value: object) -> None:
        check_choice(option, value, self.names)


@dataclass(frozen=True)
class Number:
    """Check that a value is a number in an interval."""

    low: float
    high: float
    whole: bool = False
    optional: bool = False
    """Whether None is allowed; the fit then chooses the value."""

    def __call__(self, option: str, value: object) -> None:
        if not (self.optional and value is None):
            check_number(option, value, self.low, self.high, whole=self.whole)
