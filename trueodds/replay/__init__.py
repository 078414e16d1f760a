"""A data set as live traffic, with labels that come late, in part, and while things change.

    source -> stream (who comes when, and what becomes of the pixels) -> caller (HTTP) -> a running service

What is sent is decided by the seed alone, never by the clock or by how fast the service answers. The module `runner`
keeps the time, `command` is the command line.
"""

from __future__ import annotations

from trueodds.errors import UserError


class ReplayError(UserError, RuntimeError):
    """Options or data that cannot be replayed, or an alarm that has not fired, or had fired before."""
