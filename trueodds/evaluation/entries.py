"""Entries of `compare`: a calibrator's name with options of its fit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from trueodds import calibrators
from trueodds.errors import ConfigError, unknown

ALL = "all"


def check_entries(entries: Iterable[str]) -> None:
    """Check the entries before any long computation.

    Raises:
        ConfigError: An entry is neither `all` nor a calibrator's name with valid options of its fit.

    Examples:
        >>> check_entries(["vector", "temperature objective=ece bins=10"])
    """
    for entry in entries:
        name, options = name_and_options(entry)
        if name not in (allowed := [*calibrators.names(), ALL]):
            raise unknown("calibrator in compare", name, allowed)
        if name != ALL:
            try:
                calibrators.check(name, options)
            except ConfigError:
                raise
            except ValueError as error:  # a value
                raise ConfigError(f"compare has {entry!r}: {error}") from None
        elif options:
            raise ConfigError(f"compare has {entry!r}; options follow the name of one calibrator, not {ALL!r}")


def name_and_options(entry: str) -> tuple[str, dict[str, Any]]:
    """Split an entry into a calibrator's name and the options of its fit. Values are JSON, or else text.

    Raises:
        ConfigError: A word after the name does not have the form option=value, or an option is repeated.

    Examples:
        >>> name_and_options("temperature objective=sb_ece softness=0.05")
        ('temperature', {'objective': 'sb_ece', 'softness': 0.05})
    """
    name, *words = entry.split() or [""]
    options: dict[str, Any] = {}
    for word in words:
        option, equals, value = word.partition("=")
        if not (option and equals and value):
            raise ConfigError(
                f"compare has {entry!r}, in which {word!r} is not of the form option=value, such as"
                " temperature objective=ece"
            )
        if option in options:
            raise ConfigError(f"compare has {entry!r}, in which {option!r} stands twice; allowed is once")
        try:
            options[option] = json.loads(value)
        except ValueError:
            options[option] = value
    return name, options
