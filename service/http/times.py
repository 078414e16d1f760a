"""Times that callers name, and those that answers tell."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator

from trueodds.inputs.table import is_number
from trueodds.inputs.times import time_of


def _number(value: Any) -> Any:
    """Return the datetime that a number or its text says; anything else as it is.

    Raises:
        ValueError: a number that is no time, or may be a date.
    """
    if type(value) not in (int, float) and not (isinstance(value, str) and is_number(value)):
        return value
    return datetime.fromtimestamp(time_of(value).ms / 1000, UTC)


Moment = Annotated[datetime, BeforeValidator(_number)]
"""ISO 8601 (UTC without an offset) or Unix time, as `trueodds.inputs.times` reads it; no date without dashes."""


def unix_ms(time: datetime) -> int:
    """Return milliseconds since 1970; a time without an offset is in UTC."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def moment_of(ms: float) -> datetime:
    """Return Unix milliseconds as a time in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)
