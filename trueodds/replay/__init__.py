"""Replays a data set as live traffic, with late and missing labels and with drift.

    source -> stream (times of rows and labels, drift) -> caller (HTTP) -> a running service

The seed alone decides what is sent, not the clock or the speed of the service. `runner` keeps the time.
"""

from __future__ import annotations

from trueodds.errors import UserError


class ReplayError(UserError, RuntimeError):
    """Options or data cannot be replayed, or an alarm has not fired, or had fired before."""
