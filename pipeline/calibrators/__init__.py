"""Post-hoc calibrators: `fit(name, logits_NC, labels_N)` -> object; `object(logits_NC)` -> probabilities; JSON."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from pipeline.calibrators.base import Calibrator, checked_fit_data
from pipeline.calibrators.identity import Identity
from pipeline.calibrators.temperature import Temperature
from pipeline.config import unknown

_BY_NAME: dict[str, type[Calibrator]] = {c.name: c for c in (Identity, Temperature)}


def names() -> list[str]:
    """The names `fit` knows."""
    return list(_BY_NAME)


def get(name: str) -> type[Calibrator]:
    """The calibrator's class.

    Raises:
        ConfigError: an unknown name; the message lists the names and the nearest.
    """
    if name not in _BY_NAME:
        raise unknown("calibrator", name, _BY_NAME)
    return _BY_NAME[name]


def fit(name: str, logits_NC: npt.ArrayLike, labels_N: npt.ArrayLike) -> Calibrator:
    """Fit the named calibrator on validation logits (any float dtype; computed in float64).

    Raises:
        ConfigError: an unknown name.
        ValueError: empty, misshapen or non-finite logits, labels outside the classes.
    """
    return get(name).fit(*checked_fit_data(logits_NC, labels_N))


def from_json(tree: dict[str, Any]) -> Calibrator:
    """The calibrator that `to_json` wrote.

    Raises:
        ValueError: no or unknown `calibrator` name, or fields that the calibrator does not have.
    """
    if not isinstance(tree, dict):
        raise ValueError(f"a calibrator is a JSON object with the key 'calibrator', not {tree!r}")
    fields = dict(tree)
    calibrator = get(str(fields.pop("calibrator", None)))
    try:
        return calibrator(**fields)
    except TypeError as error:
        raise ValueError(f"calibrator {calibrator.name!r} cannot be restored from {sorted(fields)}: {error}") from None


__all__ = ["Calibrator", "Identity", "Temperature", "fit", "from_json", "get", "names"]
