"""Errors that a user can correct. The message stands alone, without a traceback, and states what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Base class of errors that state what was given, what is allowed and what to do.

    A command prints the message and exits with 1.

    Examples:
        >>> try:
        ...     trueodds.fit([[2, 0], [0, 2]], [0, 1], "temprature")
        ... except trueodds.UserError as error:
        ...     print(str(error)[-27:])
        Did you mean 'temperature'?
    """


class ConfigError(UserError, ValueError):
    """Error for an invalid key, value or name. The message lists the allowed ones and the nearest one."""


class MissingExtraError(UserError, ImportError):
    """Error if packages of an extra are not installed. The message states how to install them."""

    def __init__(self, user: str, package: str, extra: str) -> None:
        """State that `user` needs `package`, which belongs to `extra`, as pip names it."""
        super().__init__(
            f"{user} needs the package {package}, which is not installed here; install what belongs to it:"
            f" pip install 'trueodds[{extra}]'"
        )


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the closest allowed name, or the empty string."""
    close = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""


def unknown(what: str, name: object, choices: Iterable[str]) -> ConfigError:
    """Build the error for an unknown name: what was given, what is allowed, and the nearest name."""
    names = list(choices)
    return ConfigError(f"unknown {what} {name!r}; allowed: {', '.join(names) or 'none'}.{nearest(str(name), names)}")
