"""The option --resolution of the commands that read probabilities."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from trueodds.errors import ConfigError

if TYPE_CHECKING:
    from trueodds.sums.rounding import Resolution


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
