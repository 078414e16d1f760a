"""Errors that a user can mend: the message stands alone, without a traceback, and says what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Names the wrong value, what is allowed, and the cure. A command prints it and exits with 1."""


class ConfigError(UserError, ValueError):
    """A key, a value or a name that cannot be used; the message says what is allowed and what is near."""


class MissingExtraError(UserError, ImportError):
    """A package is needed that this environment does not have; the message says how to install it."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the closest allowed name, or the empty string."""
    close = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""


def unknown(what: str, name: object, allowed: Iterable[str]) -> ConfigError:
    """The one wording for "there is no such thing": what was given, what is allowed, what is near."""
    names = list(allowed)
    return ConfigError(f"unknown {what} {name!r}; allowed: {', '.join(names) or 'none'}.{nearest(str(name), names)}")
