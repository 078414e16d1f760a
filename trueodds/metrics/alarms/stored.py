"""States of tests that are kept between labels, as plain numbers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self


@dataclass(frozen=True)
class StoredState(ABC):
    """A state whose fields are its JSON, beside the name of its form."""

    form: ClassVar[str]

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain numbers; `from_json` restores them exactly."""

    @classmethod
    def from_json(cls, value: dict[str, Any] | str) -> Self:
        """The state that `to_json` wrote, as a tree or as text.

        Raises:
            ValueError: another form, missing or unknown keys, or numbers of another kind, number or range.
        """
        names = [field.name for field in fields(cls)]
        try:
            tree = json.loads(value) if isinstance(value, str) else value
            if sorted(tree) != sorted(["form", *names]) or tree["form"] != cls.form:
                raise ValueError(f"the state is {tree!r:.200}; expected form {cls.form!r} and {', '.join(names)}")
            return cls._restored(tree)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"a damaged state of form {cls.form!r}: {error}") from None

    @classmethod
    @abstractmethod
    def _restored(cls, tree: dict[str, Any]) -> Self:
        """The state of a tree that has the form's name and all its fields.

        Raises:
            ValueError, TypeError, KeyError: numbers of another kind, number or range.
        """
