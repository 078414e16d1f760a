"""A resolved method: its parts with the values of all their options. Their code is imported when a net is trained."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.methods.code import Code, load, module_of
from pipeline.methods.looking_ahead import Meta, outer_penalty
from pipeline.methods.roles import LOOKING_AHEAD, SHARED, WEIGHTING, Role
from trueodds.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline.config import OptionValue
    from pipeline.methods.method import Method, Moment, PrimaryLoss
    from pipeline.methods.weighted_penalty import Penalty, WeightedPenalty
    from pipeline.nets.net import Net


@dataclass(frozen=True)
class Component:
    """One part of a method: its function or class, the values of its options, and the class that trains it."""

    name: str
    code: Code
    role: Role
    options: Mapping[str, OptionValue]
    learner: Code | None = None
    exponent: Callable[..., Tensor] | None = None
    per_class: tuple[str, ...] = ()
    mixes: bool = False

    @property
    def own_options(self) -> dict[str, OptionValue]:
        """Options that belong to this part alone."""
        shared = SHARED.get(self.role, ())
        return {name: value for name, value in self.options.items() if name not in shared}

    def bind(self) -> Callable[..., Any]:
        """Return the function with its options, or an instance of the class."""
        own, function = self.own_options, load(self.code)
        return function(**own) if isinstance(function, type) else functools.partial(function, **own)

    def check_classes(self, classes: int) -> None:
        """Raise ConfigError if a list of numbers does not have one number per class."""
        for name in self.per_class:
            value = self.options[name]
            if isinstance(value, list) and len(value) != classes:
                raise ConfigError(
                    f"option {name} of {self.name} has {len(value)} numbers, and the data has {classes} classes; give"
                    " one number per class, in their order, or one number for all"
                )

    def exponents(self) -> Callable[[Tensor, Moment], Tensor] | None:
        """Return the function (p_y, moment) -> gamma of each row, or None if the loss has no gamma."""
        return None if self.exponent is None else functools.partial(self.exponent, **self.options)

    def make_learner(self, outer_penalty: Penalty | None, penalties: Sequence[str]) -> Meta:
        """Return the learner of a meta part.

        Args:
            outer_penalty: Penalty in the outer loss, with its options, or None.
            penalties: Names of the method's joint penalties.
        """
        assert self.learner is not None
        looking = {name: self.options[name] for name in LOOKING_AHEAD}
        learner: Meta = load(self.learner)(
            self.bind(), self.name, outer_penalty=outer_penalty, penalties=penalties, **looking
        )
        return learner


@dataclass(frozen=True)
class Composition:
    """A method as its parts, the primary loss first.

    `build` makes the object that trains one net. Build one for each net.

    Attributes:
        name: The name that was resolved.
        components: The parts.
        recipe: Settings that replace those of the recipe, unless params.yaml names them.
    """

    name: str
    components: tuple[Component, ...]
    recipe: Mapping[str, OptionValue] = field(default_factory=dict)

    def build(self, net: Net | None = None) -> Method:
        """Build the method in its state before the first step.

        Args:
            net: The net to train. A part that learns by looking ahead needs it.

        Raises:
            ConfigError: An option has one number per class, and the net has another number of classes.
        """
        from pipeline.methods.method import Method

        primary, *added = self.components
        loss = primary.bind()
        method = Method(
            self.name,
            _with_moment(loss),
            penalties=tuple(_weigh(part) for part in added if part.role == "penalty"),
            labels=tuple(part.bind() for part in added if part.role == "labels"),  # type: ignore[misc]
            views=next((part.bind() for part in added if part.role == "views"), None),  # type: ignore[arg-type]
            meta=next((self._make_learner(part) for part in added if part.role == "meta"), Meta()),
            exponent=getattr(loss, "exponent", None) or primary.exponents(),
            mixes=any(part.mixes for part in added),
        )
        if net is not None:
            for part in self.components:
                part.check_classes(net.head.out_features)
            method.meta.attach(net)
        return method

    def _make_learner(self, meta: Component) -> Meta:
        """Return the learner of a meta part with its outer penalty."""
        outer = outer_penalty(str(meta.options["outer"]))
        penalty = next((part.bind() for part in self.components if part.name == outer), None)
        return meta.make_learner(
            penalty, [part.name for part in self.components if part.options.get("when") == "joint"]
        )

    @property
    def has_views(self) -> bool:
        """Whether the net sees several views of each row."""
        return any(part.role == "views" for part in self.components)

    @property
    def looks_through_all(self) -> bool:
        """Whether a part looks ahead through every layer."""
        return any(part.options.get("lookahead") == "all" for part in self.components)

    @property
    def held_out_parts(self) -> tuple[str, ...]:
        """Names of the parts that need set-aside rows: interleaved penalties and meta parts."""
        return tuple(
            part.name for part in self.components if part.role == "meta" or part.options.get("when") == "interleaved"
        )

    @property
    def parts_that_pass_again(self) -> tuple[str, ...]:
        """Names of the parts that run the net forward or backward once more during a step."""
        return tuple(
            part.name for part in self.components if part.role == "meta" or part.options.get("when") == "separate"
        )

    @property
    def changes_rows(self) -> bool:
        """Whether a part replaces rows of a batch, by views or by mixtures."""
        return any(part.role == "views" or part.mixes for part in self.components)

    def modules(self) -> list[str]:
        """Return the modules that the parts are defined in."""
        learners = [part.learner for part in self.components if part.learner is not None]
        return sorted({module_of(code) for code in (*(part.code for part in self.components), *learners)})

    def to_json(self) -> dict[str, Any]:
        """Return the name and the options of each part, those of the outer loss included."""
        return {"name": self.name, "parts": {part.name: dict(part.options) for part in self.components}}


def _weigh(part: Component) -> WeightedPenalty:
    """Return a penalty with its weight."""
    from pipeline.methods.weighted_penalty import WeightedPenalty

    beta, start, when, every, schedule, relative = (part.options[name] for name in WEIGHTING)
    return WeightedPenalty(part.bind(), beta, start, when, every, part.name, schedule, relative)  # type: ignore[arg-type]  # checked


def _with_moment(function: Callable[..., Any]) -> PrimaryLoss:
    """Return a loss that takes the moment as third argument, even if `function` does not."""
    positional = [p for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return function if len(positional) > 2 else lambda logits_NC, targets, moment: function(logits_NC, targets)
