"""Which values an option of a fit takes: checked before rows are there, and by the fit itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trueodds.errors import nearest


def check_choice(option: str, value: object, allowed: Iterable[str]) -> None:
    """Raises ValueError naming the option, what was given, what is allowed and what is near."""
    names = list(allowed)
    if value not in names:
        raise ValueError(f"{option} is {value!r}; allowed: {', '.join(names)}.{nearest(str(value), names)}")


def check_number(option: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    """Raises ValueError unless low <= value <= high (and it is an integer where `whole`)."""
    kind = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
        raise ValueError(
            f"{option} is {value!r}; allowed is {'an integer' if whole else 'a number'} in [{low}, {high}]"
        )


class Check(Protocol):
    """What is asked of an option's value."""

    def __call__(self, option: str, value: object) -> None:
        """Raises ValueError naming the option, the value and what is allowed."""


@dataclass(frozen=True)
class Choice:
    """One of some names."""

    names: tuple[str, ...]

    def __call__(self, option: str, value: object) -> None:
        check_choice(option, value, self.names)


@dataclass(frozen=True)
class Number:
    """A number of an interval."""

    low: float
    high: float
    whole: bool = False
    optional: bool = False
    """Whether None, which leaves it to the fit, is a value."""

    def __call__(self, option: str, value: object) -> None:
        if not (self.optional and value is None):
            check_number(option, value, self.low, self.high, whole=self.whole)
