"""Composition of a method from its name and options, with checks of which parts can be combined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, get_args

from pipeline.methods.code import Code, options_of
from pipeline.methods.composition import Component, Composition
from pipeline.methods.looking_ahead import CE, outer_penalty
from pipeline.methods.roles import Role, Schedule, When
from trueodds.errors import ConfigError, unknown

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline.config import OptionValue

PENALTY: dict[str, OptionValue] = {
    "beta": 1.0,
    "start": 0.0,
    "when": "joint",
    "every": 1,
    "schedule": "constant",
    "relative": False,
}
"""Defaults of the options `WEIGHTING`, which every penalty has."""
PENALTY_LIMITS = {"beta": (0.0, 1e6), "start": (0.0, 1.0), "every": (1, 1_000_000)}
PENALTY_CHOICES = {"when": get_args(When), "schedule": get_args(Schedule)}
PENALTY_NEEDS = {"every": ("when", ("interleaved",)), "relative": ("when", ("joint",))}
META: dict[str, OptionValue] = {
    "outer": "sece", "outer_weight": 0.5, "lookahead": "head", "rate": 1e-3, "optimizer": "adam", "every": 1,
    "variant": "paper",
}  # fmt: skip
"""Defaults of the options `LOOKING_AHEAD`, which every meta part has."""
META_LIMITS = {"outer_weight": (0.0, 1e6), "rate": (0.0, 1e3), "every": (1, 1_000_000)}
META_CHOICES = {
    "lookahead": ("head", "all"), "optimizer": ("adam", "sgd"), "variant": ("paper", "official"),
}  # fmt: skip
DEFAULTS: Mapping[Role, Mapping[str, OptionValue]] = {"penalty": PENALTY, "meta": META}
LIMITS: Mapping[Role, Mapping[str, tuple[float, float]]] = {"penalty": PENALTY_LIMITS, "meta": META_LIMITS}
CHOICES: Mapping[Role, Mapping[str, tuple[str, ...]]] = {"penalty": PENALTY_CHOICES, "meta": META_CHOICES}
NEEDS: Mapping[Role, Mapping[str, tuple[str, tuple[str, ...]]]] = {"penalty": PENALTY_NEEDS}


@dataclass(frozen=True)
class Part:
    """Entry of PARTS: a loss, penalty, change to labels, augmentation with views, or meta part, with its source.

    Attributes:
        code: Function or class, or its place, `package.module:name`, which is imported only when a net is trained. Its
            keyword-only arguments are the options. A primary loss may take the `Moment` as third argument. A class is
            instantiated once per method, with the options, and may keep state (`pipeline.methods.learner.Learner`).
        source: Paper, and section or equation.
        role: The part's place in a method.
        limits: Option -> (least, greatest) allowed value.
        per_class: Options that may be a list with one number per class.
        choices: Option -> allowed texts. An option whose default is a number may still be a number.
        needs: Option -> (another option, the values of it for which the first has an effect).
        exponent: (p_y, moment, **options) -> gamma of each row. For losses that use `moment.gamma` if it is given.
        gives_gamma: Whether a meta part sets `moment.gamma`.
        weighs: Whether a meta part needs joint penalties.
        defaults: Defaults of the role's shared options that differ for this part.
        learner: Class that trains a meta part, or its place.
        mixes: Whether a change of labels mixes the rows of a batch.
    """

    code: Code
    source: str
    role: Role = "primary"
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    per_class: tuple[str, ...] = ()
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    exponent: Callable[..., Tensor] | None = None
    gives_gamma: bool = False
    weighs: bool = False
    defaults: Mapping[str, OptionValue] = field(default_factory=dict)
    learner: Code | None = None
    mixes: bool = False

    def options(self) -> dict[str, OptionValue]:
        """Return the default of each option of the part's own."""
        return options_of(self.code)

    def settings(self) -> dict[str, OptionValue]:
        """Return `options` and the options that all parts of the role have."""
        return {**self.options(), **DEFAULTS.get(self.role, {}), **self.defaults}


@dataclass(frozen=True)
class Preset:
    """Published name for a set of parts with settings.

    Attributes:
        parts: The parts, joined by `+`.
        source: Paper and row of its table.
        options: Options of the parts.
        recipe: Settings of the recipe in the published runs of this name, if they differ from the paper's usual ones.
    """

    parts: str
    source: str
    options: dict[str, OptionValue] = field(default_factory=dict)
    recipe: dict[str, OptionValue] = field(default_factory=dict)


def compose(
    spec: str, options: Mapping[str, OptionValue], parts: Mapping[str, Part], presets: Mapping[str, Preset]
) -> Composition:
    """Compose as `pipeline.methods.resolve` does, from any tables."""
    first, *added = spec.split("+")
    preset = presets.get(first, Preset(first, ""))
    named = preset.parts.split("+")
    members = _members(spec, [*named, *added], parts, presets)
    published = {name: members[name] for name in named}  # a preset's `beta` belongs to the preset's own penalty
    if (outer := _outer(members, {**preset.options, **options})) in parts:
        members.setdefault(outer, replace(parts[outer], role="outer"))
    values: dict[str, dict[str, OptionValue]] = {name: {} for name in members}
    for owners, settings in ((published, preset.options), (members, options)):
        for name, value in settings.items():
            owner, option = _owner(spec, name, owners)
            _check_value(spec, option, value, members[owner], _choices(members[owner], parts))
            values[owner][option] = value
    for full in options:
        owner, option = _owner(spec, full, members)
        _check_effect(spec, option, owner, members[owner], values[owner])
    views = [name for name, part in members.items() if part.role == "views"]
    if views and "mixup" in members:
        raise ConfigError(f"method {spec!r}: mixup mixes images that {views[0]} has views of; leave one out")
    resolved = {name: {**part.settings(), **values[name]} for name, part in members.items()}
    for name in [name for name, part in members.items() if part.role == "meta"]:
        _check_meta(spec, name, members, values)
        if members[name].gives_gamma:
            del resolved[named[0]]["gamma"]
    return Composition(
        spec,
        tuple(
            Component(
                name, part.code, part.role, resolved[name], part.learner, part.exponent, part.per_class, part.mixes
            )
            for name, part in members.items()
        ),
        preset.recipe,
    )


def _check_meta(
    spec: str, name: str, members: Mapping[str, Part], values: Mapping[str, Mapping[str, OptionValue]]
) -> None:
    """Raise ConfigError if the meta part `name` cannot be combined with the other parts."""
    primary, *added = members
    if several := [other for other in added if members[other].role == "meta" and other != name]:
        raise ConfigError(f"method {spec!r}: {name} and {several[0]} both look a step ahead; name one of them")
    if members[name].gives_gamma:
        takers = [other for other, part in members.items() if part.exponent is not None]
        if not takers:
            raise ConfigError(
                f"method {spec!r}: {name} sets gamma for each row, and {primary} has no gamma; use focal,"
                " inverse_focal, dual_focal or bsce"
            )
        if "gamma" in values[primary]:
            raise ConfigError(f"method {spec!r}: {name} sets gamma for each row; leave the option gamma out")
    joint = [p for p in added if members[p].role == "penalty" and values[p].get("when", "joint") == "joint"]
    if members[name].weighs and not joint:
        raise ConfigError(
            f"method {spec!r}: {name} learns the weights of joint penalties, and the method has none; add one, such"
            f" as ce+mmce+{name}"
        )
    if primary == "consistency" and not values[primary].get("gra", True):
        raise ConfigError(
            f"method {spec!r}: consistency without gra passes features through the last layer a second time, and the"
            f" look-ahead of {name} does not support this; leave gra out"
        )
    options = values[name]
    if options.get("variant") == "official" and options.get("lookahead", "head") == "all":
        raise ConfigError(
            f"method {spec!r}: variant official looks ahead through the last layer only, as the public code does;"
            " leave lookahead out"
        )
    if "outer_weight" in options and "+" not in str(options.get("outer", META["outer"])):
        raise ConfigError(
            f"option outer_weight of method {spec!r} needs an outer loss of two terms, such as outer: ce+dece; leave"
            " it out"
        )


def _check_effect(spec: str, option: str, name: str, part: Part, values: Mapping[str, OptionValue]) -> None:
    """Raise ConfigError for an option that has no effect with the part's other options."""
    other, effective = {**NEEDS.get(part.role, {}), **part.needs}.get(option, ("", ()))
    value = {**part.settings(), **values}.get(other)
    if other and value not in effective:
        allowed = " or ".join(effective)
        raise ConfigError(
            f"option {option} of method {spec!r} has an effect only with {other}: {allowed}, and {other} of {name} is"
            f" {value}; set {other}: {allowed}, or leave {option} out"
        )


def _members(spec: str, names: list[str], parts: Mapping[str, Part], presets: Mapping[str, Preset]) -> dict[str, Part]:
    """Return the parts with these names, the primary loss first."""
    first, *rest = names
    if first not in parts or parts[first].role != "primary":
        primaries = [name for name, part in parts.items() if part.role == "primary"]
        raise unknown("method", first, list(dict.fromkeys([*primaries, *presets])))
    for name in rest:
        if name not in parts or parts[name].role == "primary":
            added = [other for other, part in parts.items() if part.role != "primary"]
            raise unknown(f"penalty or change of labels in method {spec!r}:", name, added)
        if rest.count(name) > 1:
            raise ConfigError(
                f"method {spec!r} names {name!r} twice; name each part once, and set its weight with beta"
            )
    return {name: parts[name] for name in (first, *rest)}


def _outer(members: Mapping[str, Part], options: Mapping[str, OptionValue]) -> str:
    """Return the name of the penalty in the outer loss, or an empty text if there is none."""
    for name in (name for name, part in members.items() if part.role == "meta"):
        return outer_penalty(str(options.get(f"{name}.outer", options.get("outer", META["outer"]))))
    return ""


def _owner(spec: str, name: str, members: Mapping[str, Part]) -> tuple[str, str]:
    """Return the part that an option belongs to, and the option's name in that part."""
    owners = {f"{part}.{option}": (part, option) for part in members for option in members[part].settings()}
    if name in owners:
        return owners[name]
    homonyms = [full for full, (_, option) in owners.items() if option == name]
    if of_terms := [full for full in homonyms if members[owners[full][0]].role != "outer"]:
        homonyms = of_terms
    if not homonyms:
        raise unknown(f"option of method {spec!r}:", name, dict.fromkeys(option for _, option in owners.values()))
    if len(homonyms) > 1:
        several = " or ".join(homonyms)
        raise ConfigError(f"option {name!r} of method {spec!r} belongs to several parts: write {several}")
    return owners[homonyms[0]]


def _choices(part: Part, parts: Mapping[str, Part]) -> dict[str, tuple[str, ...]]:
    """Return the allowed texts of each option of a part; those of `outer` are the penalties, alone or after `ce+`."""
    choices = {**CHOICES.get(part.role, {}), **part.choices}
    if part.role == "meta":
        penalties = [name for name, other in parts.items() if other.role == "penalty"]
        choices["outer"] = (CE, *penalties, *(f"{CE}+{name}" for name in penalties))
    return choices


def _check_value(spec: str, name: str, value: object, part: Part, choices_of: Mapping[str, tuple[str, ...]]) -> None:
    """Raise ConfigError if an option's value has the wrong type or is out of range."""
    default, choices = part.settings()[name], choices_of.get(name, ())
    where = f"option {name} = {value!r} of method {spec!r}: allowed is"
    if isinstance(value, str) and choices:
        if value not in choices:
            raise unknown(f"value of option {name} of method {spec!r}:", value, choices)
        return
    if isinstance(value, list) and name in part.per_class and value:
        for number in value:
            _check_value(spec, name, number, part, choices_of)
        return
    # bool is an int in Python, but gamma = true is a mistake, and bins = 2.0 is one too
    kinds = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}[type(default)]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        texts = f", or one of {', '.join(choices)}" if choices else ""
        texts += ", or a list with a number for each class" if name in part.per_class else ""
        raise ConfigError(f"{where} a {kinds[-1].__name__}, such as {default!r}{texts}")
    low, high = {**LIMITS.get(part.role, {}), **part.limits}.get(name, (float("-inf"), float("inf")))
    if isinstance(value, int | float) and not low <= value <= high:
        raise ConfigError(f"{where} {low} to {high}")
