"""The calibrators by name, fitted on rows or restored from JSON."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from trueodds.calibrators.affine import BiasCorrectedTemperature, Matrix, Vector
from trueodds.calibrators.base import Calibrator, Labels, Logits, check_fit_data
from trueodds.calibrators.curve import StructuredCurve, TemperatureCurve
from trueodds.calibrators.dirichlet import Dirichlet
from trueodds.calibrators.ensemble import EnsembleTemperature
from trueodds.calibrators.held_out import out_of_scale, overfitting
from trueodds.calibrators.histogram import BBQ, Histogram
from trueodds.calibrators.identity import Identity
from trueodds.calibrators.isotonic import Isotonic
from trueodds.calibrators.sigmoid import Beta, Platt, Quadratic
from trueodds.calibrators.spline import Spline
from trueodds.calibrators.structured import StructuredMatrix, StructuredVector
from trueodds.calibrators.temperature import Temperature
from trueodds.calibrators.venn_abers import VennAbers
from trueodds.errors import unknown

_CLASSES: tuple[type[Calibrator], ...] = (
    Identity,
    Temperature,
    EnsembleTemperature,
    BiasCorrectedTemperature,
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


def names() -> list[str]:
    """List the calibrator names that `fit` accepts.

    They are ordered from no parameter over few to many, followed by those that bin or smooth one score.

    Returns:
        The names.

    Examples:
        >>> calibrators.names()[:3]
        ['identity', 'temperature', 'ensemble_temperature']
    """
    return list(_BY_NAME)


def get(name: str) -> type[Calibrator]:
    """Return a calibrator's class.

    Args:
        name: Name of the calibrator.

    Raises:
        ConfigError: The name is unknown. The message lists the names and the nearest one.

    Examples:
        >>> calibrators.get("platt").__name__
        'Platt'
    """
    if name not in _BY_NAME:
        raise unknown("calibrator", name, _BY_NAME)
    return _BY_NAME[name]


def options(name: str) -> dict[str, Any]:
    """Return the keyword options of `fit` for a calibrator, with their defaults.

    Args:
        name: Name of the calibrator.

    Raises:
        ConfigError: The name is unknown.

    Examples:
        >>> calibrators.options("histogram")
        {'form': 'top_label', 'binning': 'width', 'bins': 15}
    """
    parameters = inspect.signature(get(name).fit).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def check_options(name: str, values: Mapping[str, object]) -> None:
    """Check options and their values for a calibrator.

    An option that the objective does not use is refused, unless it has its default value.

    Raises:
        ConfigError: The calibrator or an option is unknown. The message names the nearest one.
        ValueError: A value is not allowed, or an option would change nothing.
    """
    kind, defaults = get(name), options(name)
    for option in values:
        if option not in defaults:
            raise unknown(f"option of {name!r}", option, defaults)
    kind.check_values(**values)
    objective = {**defaults, **values}.get("objective")
    for option, value in values.items():
        readers = kind.readers.get(option, (objective,))
        if objective not in readers and value != defaults[option]:
            raise ValueError(
                f"{option} is {value!r}, which the objective {objective!r} does not read; leave it out, or choose an"
                f" objective that does: {', '.join(map(str, readers))}"
            )


def fit_by_name(name: str, logits_NC: npt.ArrayLike, labels_N: npt.ArrayLike, **options: Any) -> Calibrator:
    """Fit the named calibrator. This is the work of `trueodds.calibrators.fit`, which documents it."""
    kind = get(name)
    check_options(name, options)
    logits, labels = check_fit_data(logits_NC, labels_N)
    return with_warnings(kind.fit(logits, labels, **options), options, logits, labels)


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
        ValueError: The key `calibrator` is missing or its name unknown, or the calibrator does not have these fields.

    Examples:
        >>> calibrators.from_json({"calibrator": "temperature", "temperature": 2.0})([[2, 0]]).round(3)
        array([[0.731, 0.269]])
    """
    if not isinstance(tree, dict):
        raise ValueError(f"a calibrator is {tree!r}; allowed is a JSON object with the key 'calibrator'")
    fields = dict(tree)
    calibrator = get(str(fields.pop("calibrator", None)))
    try:
        return calibrator(**fields)
    except TypeError as error:
        raise ValueError(f"calibrator {calibrator.name!r} cannot be restored from {sorted(fields)}: {error}") from None
