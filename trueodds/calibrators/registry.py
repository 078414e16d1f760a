"""The calibrators by name, fitted on rows or restored from JSON."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy.typing as npt

from trueodds.calibrators.affine.dirichlet import Dirichlet
from trueodds.calibrators.affine.group_temperature import GroupTemperature
from trueodds.calibrators.affine.label_platt import MultilabelPlatt
from trueodds.calibrators.affine.maps import BiasCorrectedTemperature, Matrix, Vector
from trueodds.calibrators.affine.structured import StructuredMatrix, StructuredVector
from trueodds.calibrators.base import Calibrator, Labels, Logits, check_fit_data, fit_kind
from trueodds.calibrators.curve import StructuredCurve, TemperatureCurve
from trueodds.calibrators.ensemble import EnsembleTemperature
from trueodds.calibrators.fitting.prior_corrected import PriorCorrected
from trueodds.calibrators.fitting.rounded import Rounded
from trueodds.calibrators.held_out import out_of_scale, overfitting
from trueodds.calibrators.histogram import BBQ, Histogram
from trueodds.calibrators.identity import Identity
from trueodds.calibrators.isotonic import Isotonic
from trueodds.calibrators.ordered_temperature import OrderedTemperature
from trueodds.calibrators.sigmoid import Beta, Platt, Quadratic
from trueodds.calibrators.spline import Spline
from trueodds.calibrators.temperature import Temperature
from trueodds.calibrators.venn_abers import VennAbers
from trueodds.errors import ConfigError, unknown
from trueodds.processes import extensions
from trueodds.processes.extensions import Distribution, Extension
from trueodds.sums.frames import check_index
from trueodds.sums.group_names import check_groups
from trueodds.texts import short

Method: TypeAlias = str | type[Calibrator]
"""A calibrator's name or its class."""

_CLASSES: tuple[type[Calibrator], ...] = (
    Identity,
    Temperature,
    EnsembleTemperature,
    BiasCorrectedTemperature,
    OrderedTemperature,
    GroupTemperature,
    Platt,
    Beta,
    Quadratic,
    Vector,
    StructuredVector,
    Matrix,
    StructuredMatrix,
    Dirichlet,
    Isotonic,
    VennAbers,
    Histogram,
    BBQ,
    Spline,
    TemperatureCurve,
    StructuredCurve,
)
_BY_NAME: dict[str, type[Calibrator]] = {c.name: c for c in _CLASSES}
_AROUND: dict[str, type[Calibrator]] = {c.name: c for c in (Rounded, PriorCorrected)}
"""Calibrators around another one, by name."""
MOST_AROUND = 8
"""Largest number of calibrators around one another in JSON."""
RESERVED = (*_BY_NAME, *_AROUND, MultilabelPlatt.name, "select", "all")
"""Names that no other distribution may register: the built-in calibrators, and words with a meaning in their place."""


def names(*, has_groups: bool = True) -> list[str]:
    """List the calibrator names that `fit` accepts.

    They are ordered from no parameter over few to many, followed by those that bin or smooth one score, and by those
    that other distributions register in the entry-point group `trueodds.calibrators`.

    Args:
        has_groups: Whether to list the calibrators that need the rows' groups as well.

    Returns:
        The names.

    Raises:
        ExtensionError: A registered name is a built-in one, or two distributions register it.

    Examples:
        >>> calibrators.names()[:3]
        ['identity', 'temperature', 'ensemble_temperature']
    """
    own = [name for name, kind in _BY_NAME.items() if has_groups or not kind.uses_groups]
    return [*own, *extensions.names("calibrators", RESERVED)]


def get(name: Method) -> type[Calibrator]:
    """Return a calibrator's class.

    Args:
        name: Name of the calibrator. A class is returned as it is.

    Raises:
        ConfigError: The name is unknown. The message lists the names and the nearest one. Or the class is not a
            calibrator with a name of its own.
        ExtensionError: Another distribution registers the name, and it cannot be used.

    Examples:
        >>> calibrators.get("platt").__name__
        'Platt'
    """
    if not isinstance(name, str):
        return _check_class(name)
    if (extension := extensions.find("calibrators", name, RESERVED)) is not None:
        return _load(extension)
    if name not in _BY_NAME:
        raise unknown("calibrator", name, names())
    return _BY_NAME[name]


def name_of(method: Method) -> str:
    """Return the name of a calibrator that is given by its name or class."""
    return method if isinstance(method, str) else method.name


def joining() -> list[str]:
    """List the registered calibrators that are default candidates of `select` (`Calibrator.joins_select`)."""
    return [name for name in extensions.names("calibrators", RESERVED) if get(name).joins_select]


def origin(calibrator: Calibrator | type[Calibrator]) -> Distribution | None:
    """Return the distribution that registers a calibrator.

    Args:
        calibrator: A calibrator or its class.

    Returns:
        Name and version of the distribution; None for a built-in or an unregistered calibrator.

    Examples:
        >>> print(calibrators.origin(calibrators.Temperature))
        None
    """
    kind = calibrator if isinstance(calibrator, type) else type(calibrator)
    return None if kind in (*_CLASSES, *_AROUND.values()) else extensions.origin("calibrators", kind.name, kind)


def _is_calibrator(value: object) -> bool:
    """Return whether a value is a class from which calibrators can be made, with a name."""
    is_class = isinstance(value, type) and issubclass(value, Calibrator) and not inspect.isabstract(value)
    return is_class and isinstance(getattr(value, "name", None), str)


def _check_class(kind: type[Calibrator]) -> type[Calibrator]:
    """Return a class after a check."""
    if not _is_calibrator(kind):
        raise ConfigError(
            f"{short(kind)} is not a calibrator; allowed are a name, and a subclass of trueodds.Calibrator that defines"
            " name, fit, keeps_argmax and _apply"
        )
    if kind.name in RESERVED and kind not in _CLASSES:
        raise ConfigError(
            f"{kind.__name__} has the name {kind.name!r}, which belongs to TrueOdds; give it a name of its own"
        )
    return kind


def _load(extension: Extension) -> type[Calibrator]:
    """Return the class that an entry point names."""
    kind = extension.load()
    if not _is_calibrator(kind):
        raise extension.error(f"is {short(kind)}; allowed is a subclass of trueodds.Calibrator that can be fitted")
    if kind.name != extension.name:
        raise extension.error(f"has the name {kind.name!r} in its class; the two must be equal")
    return kind  # type: ignore[no-any-return]  # checked


def options(name: Method) -> dict[str, Any]:
    """Return the keyword options of `fit` for a calibrator, with their defaults.

    Args:
        name: Name of the calibrator, or its class.

    Raises:
        ConfigError: The name is unknown.

    Examples:
        >>> calibrators.options("histogram")
        {'form': 'top_label', 'binning': 'width', 'bins': 15}
    """
    parameters = inspect.signature(get(name).fit).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def check_options(name: Method, values: Mapping[str, object]) -> None:
    """Check options and their values for a calibrator.

    An option that the objective does not use is refused, unless it has its default value.

    Raises:
        ConfigError: The calibrator or an option is unknown. The message names the nearest one.
        ValueError: A value is not allowed, or an option would change nothing.
    """
    kind, defaults = get(name), options(name)
    for option in values:
        if option not in defaults:
            raise unknown(f"option of {kind.name!r}", option, defaults)
    kind.check_values(**values)
    objective = {**defaults, **values}.get("objective")
    for option, value in values.items():
        readers = kind.readers.get(option, (objective,))
        if objective not in readers and value != defaults[option]:
            raise ValueError(
                f"{option} is {value!r}, which the objective {objective!r} does not read; leave it out, or choose an"
                f" objective that does: {', '.join(map(str, readers))}"
            )


def fit_by_name(
    name: Method,
    logits_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    groups: Iterable[Any] | None = None,
    **options: Any,
) -> Calibrator:
    """Fit the calibrator with this name or class. `trueodds.calibrators.fit` documents it."""
    kind = get(name)
    check_options(name, options)
    logits, labels = check_fit_data(logits_NC, labels_N)
    if groups is not None and not kind.uses_groups:
        able = " or ".join(repr(each.name) for each in _CLASSES if each.uses_groups)
        raise ValueError(
            f"groups is given, and {kind.name!r} treats all rows alike; leave groups out, or choose {able} or 'select'"
        )
    check_index(logits=logits_NC, groups=groups)
    groups_N = None if groups is None else check_groups(groups, len(logits))
    return with_warnings(fit_kind(kind, logits, labels, groups_N, options), options, logits, labels)


def with_warnings(
    calibrator: Calibrator, options: Mapping[str, Any], logits_NC: Logits, labels_N: Labels
) -> Calibrator:
    """Return the calibrator with the warnings that these rows give."""
    warnings = (
        *calibrator._row_warnings(logits_NC, labels_N),
        *overfitting(calibrator, options, logits_NC, labels_N),
        *out_of_scale(calibrator, options, logits_NC, labels_N),
        *calibrator._fit_warnings(),
    )
    return replace(calibrator, warnings=warnings)


def from_json(tree: dict[str, Any]) -> Calibrator:
    """Restore the calibrator that `to_json` wrote.

    Args:
        tree: The JSON object.

    Returns:
        The calibrator.

    Raises:
        ExtensionError: The calibrator belongs to a distribution that is not installed. The message says how to install
            it.
        ValueError: The key `calibrator` is missing or its name unknown, the calibrator does not have these fields, or
            more than 8 calibrators are around one another.

    Examples:
        >>> calibrators.from_json({"calibrator": "temperature", "temperature": 2.0})([[2, 0]]).round(3)
        array([[0.731, 0.269]])
    """
    if not isinstance(tree, dict):
        raise ValueError(f"a calibrator is {tree!r}; allowed is a JSON object with the key 'calibrator'")
    inner, around = tree, 0
    while isinstance(inner, dict) and str(inner.get("calibrator")) in _AROUND:
        inner, around = inner.get("inner", {}), around + 1
    if around > MOST_AROUND:
        raise ValueError(f"{around} calibrators are around one another; allowed are {MOST_AROUND}")
    fields = dict(tree)
    name, requirement = str(fields.pop("calibrator", None)), fields.pop("distribution", None)
    if name == MultilabelPlatt.name:
        raise ValueError(
            f"calibrator {name!r} is for independent labels, not for classes; load it with trueodds.load(path), or with"
            " calibrators.MultilabelPlatt.from_json"
        )
    if requirement is not None and name not in names():
        raise extensions.missing("calibrators", name, requirement)
    calibrator = _AROUND.get(name) or get(name)
    if name in _AROUND:
        fields["calibrator"] = from_json(fields.pop("inner", None))
    try:
        return calibrator(**fields)
    except TypeError as error:
        raise ValueError(f"calibrator {calibrator.name!r} cannot be restored from {sorted(fields)}: {error}") from None
