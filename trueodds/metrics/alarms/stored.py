"""Base class of test states that are stored between labels as plain numbers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from trueodds.sums.inputs import is_whole


@dataclass(frozen=True)
class StoredState(ABC):
    """A state whose JSON consists of its fields and the name of its form."""

    form: ClassVar[str]

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, which `from_json` restores exactly."""

    @classmethod
    def from_json(cls, value: dict[str, Any] | str) -> Self:
        """Restore the state that `to_json` wrote.

        Args:
            value: The state as a tree or as JSON text.

        Raises:
            ValueError: The form is another one, keys are missing or unknown, or numbers have a wrong type, count or
                range.
        """
        names = [field.name for field in fields(cls)]
        try:
            tree = json.loads(value) if isinstance(value, str) else value
            if sorted(tree) != sorted(["form", *names]) or tree["form"] != cls.form:
                raise ValueError(f"the state is {tree!r:.200}; expected form {cls.form!r} and {', '.join(names)}")
            return cls._restore(tree)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"a damaged state of form {cls.form!r}: {error}") from None

    @classmethod
    @abstractmethod
    def _restore(cls, tree: dict[str, Any]) -> Self:
        """Restore the state from a tree that has the form's name and all fields.

        Raises:
            ValueError, TypeError, KeyError: Numbers have a wrong type, count or range.
        """


class BlockState(StoredState):
    """A test that bets on blocks of labels. All wealth is in logs, and None before the first block."""

    blocks: int
    labels: int
    log_wealth: tuple[float, ...] | None
    peak: float

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, which `from_json` restores exactly. Wealth and peak are null before the first block."""
        peak = self.peak if self.blocks else None
        wealth = None if self.log_wealth is None else list(self.log_wealth)
        return {"form": self.form, **asdict(self), "log_wealth": wealth, "peak": peak}

    def _after(self, tree: dict[str, Any], bets: int) -> Self:
        """Return this state, which has no labels, with the counts and the wealth of `bets` bets of a tree.

        Raises:
            ValueError, TypeError: They are of another type, count or range.
        """
        for name in ("blocks", "labels"):
            if not is_whole(tree[name]):
                raise TypeError(f"{name} is {tree[name]!r}; allowed are whole numbers")
        wealth, counted = tree["log_wealth"], tree["blocks"]
        if (wealth is None) != (counted == 0) or not 0 <= counted <= tree["labels"]:
            raise ValueError(
                f"{counted} blocks of {tree['labels']} labels; allowed: one or more each, null wealth for 0"
            )
        if wealth is None:
            return self
        if len(wealth) != bets or not np.isfinite([*wealth, tree["peak"]]).all():
            raise ValueError(f"log_wealth must hold {bets} finite numbers, one for each bet, and peak one")
        known: dict[str, Any] = {name: tree[name] for name in ("blocks", "labels", "peak")}
        return replace(self, **known | {"log_wealth": tuple(wealth)})
