"""Base class of test states that are stored between labels as plain numbers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self


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
