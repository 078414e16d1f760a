"""A method as resolved: its parts with all their options, and nothing of what else could have been named."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pipeline.methods.method import Method, PrimaryLoss, Weighted

if TYPE_CHECKING:
    from pipeline.config import OptionValue

Role = Literal["primary", "penalty", "labels", "views"]
WEIGHTING = ("beta", "start", "when", "every")
"""Options that every penalty has besides its own: its weight, and when it acts."""


@dataclass(frozen=True)
class Component:
    """One part of a method: the function or class that runs, and the values of all its options."""

    name: str
    function: Callable[..., Any]
    role: Role
    options: Mapping[str, OptionValue]

    def bind(self) -> Callable[..., Any]:
        """The function with its options, or an object of the class."""
        own = {name: value for name, value in self.options.items() if self.role != "penalty" or name not in WEIGHTING}
        return self.function(**own) if isinstance(self.function, type) else functools.partial(self.function, **own)


@dataclass(frozen=True)
class Composition:
    """A method by its parts, the primary loss first. `build` makes what trains one net; two nets need two."""

    name: str
    components: tuple[Component, ...]

    def build(self) -> Method:
        """The method, its state as before the first step."""
        primary, *added = self.components
        return Method(
            self.name,
            _with_moment(primary.bind()),
            tuple(_weighted(part) for part in added if part.role == "penalty"),
            tuple(part.bind() for part in added if part.role == "labels"),  # type: ignore[misc]
            *(part.bind() for part in added if part.role == "views"),  # type: ignore[arg-type]
        )

    @property
    def needs_held_out(self) -> bool:
        """Whether a penalty is interleaved: it learns from a split of its own."""
        return any(part.role == "penalty" and part.options["when"] == "interleaved" for part in self.components)

    def modules(self) -> list[str]:
        """The modules that its parts come from."""
        return sorted({part.function.__module__ for part in self.components})

    def to_json(self) -> dict[str, Any]:
        """Its name, and the options of each part."""
        return {"name": self.name, "parts": {part.name: dict(part.options) for part in self.components}}


def _weighted(part: Component) -> Weighted:
    beta, start, when, every = (part.options[name] for name in WEIGHTING)
    return Weighted(part.bind(), float(beta), float(start), when, int(every), part.name)  # type: ignore[arg-type]


def _with_moment(function: Callable[..., Any]) -> PrimaryLoss:
    """A loss of logits and targets alone, called as one that takes the moment too."""
    positional = [p for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return function if len(positional) > 2 else lambda logits_NC, targets, moment: function(logits_NC, targets)
