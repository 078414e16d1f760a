"""How to train for calibration, by name: `build("focal", gamma=2).loss(logits_NC, labels_N)`.

A method is a primary loss, penalties added to it, and options of both. PARTS and PRESETS below are the only place
where names live; `build`, the check of params.yaml, `python -m pipeline methods` and the tests read them.
To add a loss, write a function that returns one value per sample and enter it into PARTS.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from pipeline.config import ConfigError, OptionValue, unknown
from pipeline.methods import losses
from pipeline.methods.method import Method


@dataclass(frozen=True)
class Part:
    """A primary loss or a penalty: its function, whose keyword arguments are its options, and where it comes from.

    limits: option -> (least, greatest) allowed value.
    """

    function: Callable[..., Tensor]
    source: str
    penalty: bool = False
    limits: dict[str, tuple[float, float]] = field(default_factory=dict)

    def options(self) -> dict[str, OptionValue]:
        """Option name -> default."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


@dataclass(frozen=True)
class Preset:
    """A published name for parts with settings."""

    parts: str
    source: str
    options: dict[str, OptionValue] = field(default_factory=dict)


PARTS = {
    "ce": Part(losses.cross_entropy, "cross entropy"),
    "focal": Part(losses.focal, "Mukhoti et al. 2020, section 4; gra: BSCE-GRA paper", limits={"gamma": (0, 50)}),
}
PRESETS = {
    "fl1": Preset("focal", "Mukhoti et al. 2020, FL-1", {"gamma": 1.0}),
    "fl2": Preset("focal", "Mukhoti et al. 2020, FL-2", {"gamma": 2.0}),
    "fl3": Preset("focal", "Mukhoti et al. 2020, FL-3", {"gamma": 3.0}),
    "fl_gra": Preset("focal", "BSCE-GRA paper, FL-GRA", {"gamma": 3.0, "gra": True}),
}


def names() -> list[str]:
    """Every name that can stand alone."""
    return [*(name for name, part in PARTS.items() if not part.penalty), *PRESETS]


def build(spec: str, **options: OptionValue) -> Method:
    """Compose a method. `spec`: a preset (`fl3`), a part (`focal`), or parts joined by `+` (primary first).

    `options` are the parts' keyword arguments and win over the preset's. Option `beta` weighs a penalty.

    Raises:
        ConfigError: an unknown name or option, a value of another type or out of range, or parts that do not compose.
    """
    preset = PRESETS.get(spec)
    settings = {**(preset.options if preset else {}), **options}
    first, *rest = (preset.parts if preset else spec).split("+")
    primary = _part(first, penalty=False)
    penalties = [_part(name, penalty=True) for name in rest]
    known = {name: value for part in (primary, *penalties) for name, value in part.options().items()}
    if penalties:
        known["beta"] = 1.0
    for name, value in settings.items():
        _check_option(spec, name, value, known, [primary, *penalties])
    beta = float(settings.get("beta", 1.0))
    return Method(
        spec,
        _bind(primary, settings),
        tuple((beta, _bind(penalty, settings)) for penalty in penalties),
    )


def _part(name: str, *, penalty: bool) -> Part:
    part = PARTS.get(name)
    if part is None or part.penalty != penalty:
        allowed = [n for n, p in PARTS.items() if p.penalty] if penalty else names()
        raise unknown("penalty" if penalty else "method", name, allowed)
    return part


def _check_option(spec: str, name: str, value: object, known: dict[str, OptionValue], parts: list[Part]) -> None:
    if name not in known:
        raise unknown(f"option of method {spec!r}:", name, known)
    default = known[name]
    kind = (bool,) if isinstance(default, bool) else (int, float) if isinstance(default, int | float) else (str,)
    if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kind):
        raise ConfigError(
            f"option {name} = {value!r} of method {spec!r}: allowed is a {kind[-1].__name__}, such as {default!r}"
        )
    for part in parts:
        low, high = part.limits.get(name, (float("-inf"), float("inf")))
        if isinstance(value, int | float) and not low <= value <= high:
            raise ConfigError(f"option {name} = {value!r} of method {spec!r}: allowed is {low} to {high}")


def _bind(part: Part, settings: dict[str, OptionValue]) -> Callable[[Tensor, Tensor], Tensor]:
    own = {name: value for name, value in settings.items() if name in part.options()}
    return functools.partial(part.function, **own)


__all__ = ["PARTS", "PRESETS", "Method", "Part", "Preset", "build", "names"]
