"""Options that commands share, and types of options, for argparse."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from trueodds.errors import ConfigError
from trueodds.replay.kinds import seconds
from trueodds.texts import LONG, short

if TYPE_CHECKING:
    from trueodds.sums.rounding import Resolution


def number(low: float, high: float, words: str) -> Callable[[str], float]:
    """Return a parser of numbers within limits. `words` names the limits."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed is {words}")
        return value

    return read


def whole_number(low: int, high: int, words: str) -> Callable[[str], int]:
    """Return a parser of whole numbers within limits. `words` names the limits."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < LONG and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"{short(text)} is not allowed; allowed is {words}")
        return int(text)

    return read


def seconds_of(text: str) -> float:
    """Parse a time such as 40s or 1.5m."""
    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive_seconds(text: str) -> float:
    """Parse a time above 0."""
    if not (time := seconds_of(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed is any time above 0, such as 5s")
    return time


def add_resolution(parser: argparse.ArgumentParser) -> None:
    """Add --resolution."""
    words = (
        "step of rounded probabilities, such as 0.01, or exact"
        " (default: the step that row sums other than 1 show, else exact)"
    )
    parser.add_argument("--resolution", metavar="STEP", help=words)


def resolution_of(arguments: argparse.Namespace) -> Resolution | None:
    """Return the resolution that the user gave; None: as the rows show it.

    Raises:
        ConfigError: It is not a step or "exact".
    """
    if arguments.resolution is None:
        return None
    from trueodds.sums.rounding import Resolution

    try:
        return Resolution.of(arguments.resolution)
    except ConfigError as error:
        raise ConfigError(f"--{error}") from None
