"""Times that callers name."""

from __future__ import annotations

from datetime import UTC, datetime


def unix_ms(time: datetime) -> int:
    """Milliseconds since 1970; a time without an offset is in UTC."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
