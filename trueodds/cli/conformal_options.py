"""The options --conformal, --levels and --set-confidence, and the lines that a command prints about conformal sets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from trueodds.errors import ConfigError
from trueodds.processes.choices import SET_LEVEL, SET_METHODS

if TYPE_CHECKING:
    from trueodds.bundle import CardSets
    from trueodds.calibrators.conformal import SetSettings


def add_conformal(parser: argparse.ArgumentParser) -> None:
    """Add --conformal, --levels and --set-confidence."""
    words = "also fit sets of classes that hold the true one, on half of the calibration rows; the other half fits the"
    words += f" calibrator. {'; '.join(f'{name}: {about}' for name, about in SET_METHODS.items())}"
    parser.add_argument("--conformal", choices=tuple(SET_METHODS), help=words)
    words = f"shares of the sets that hold the true class, such as .9,.95 (default: {SET_LEVEL:g})"
    parser.add_argument("--levels", metavar="LEVELS", help=words)
    words = "with --conformal: share of calibrations in which the sets cover the level, such as 0.95; the sets are then"
    words += " larger (default: they cover the level on average over calibrations)"
    parser.add_argument("--set-confidence", type=float, metavar="P", help=words)


def sets_of(arguments: argparse.Namespace) -> SetSettings | None:
    """Return the settings of the sets that the user asks for; None without --conformal.

    Raises:
        ConfigError: A level is not a number in (0, 1), or there are levels without a method.
    """
    if arguments.conformal is None:
        if arguments.levels is not None:
            raise ConfigError(f"--levels {arguments.levels} needs a method: --conformal {', '.join(SET_METHODS)}")
        if arguments.set_confidence is not None:
            given = f"--set-confidence {arguments.set_confidence:g}"
            raise ConfigError(f"{given} needs a method: --conformal {', '.join(SET_METHODS)}")
        return None
    from trueodds.calibrators.conformal import SetSettings

    texts = [] if arguments.levels is None else arguments.levels.split(",")
    try:
        levels = [float(text) for text in texts] or [SET_LEVEL]
    except ValueError:
        raise ConfigError(f"--levels is {arguments.levels!r}; allowed are numbers in (0, 1), such as .9,.95") from None
    confidence = arguments.set_confidence
    if confidence is not None and not 0 < confidence < 1:
        raise ConfigError(f"--set-confidence is {confidence:g}; allowed are numbers in (0, 1), such as 0.95")
    return SetSettings.of(arguments.conformal, {"levels": levels, "confidence": confidence}, "--conformal")


def set_lines(sets: CardSets | None) -> list[str]:
    """Return the lines about the sets of a bundle, and a blank line; empty if it has none."""
    if sets is None:
        return []
    lines = []
    for rule, measured in zip(sets.rules, sets.test or [None] * len(sets.rules), strict=True):
        line = f"{rule.method} sets of level {rule.level:g}, from {rule.calibration_rows:,} rows"
        if measured is not None:
            lower, upper = measured.interval()
            line += f": {measured.coverage:.4f} of the test rows are covered ({lower:.4f} to {upper:.4f})"
            line += f", mean size {measured.mean_size:.2f}"
        lines.append(f"{line}. Sound sets cover at least {min(rule.floors):.4f} in 95% of calibrations.")
    return [*lines, ""]
