"""Errors of the service. `service.http.error_answers` turns them into HTTP answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

ENDING = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
"""Exceptions that end work from outside. Any other BaseException is a fault of the work itself; for example, a panic
of a library in Rust is not an Exception.
"""


class ServiceError(Exception):
    """Base of all errors that become an HTTP answer other than 2xx.

    The message says what was sent, what is allowed and what to do.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retry_after: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.details = details or {}
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}


RefusalCode = Literal[
    "invalid_row",
    "unknown_id",
    "unknown_model",
    "unknown_class",
    "ambiguous_id",
    "conflicting_label",
    "conflicting_answer",
    "other_form",
    "version_taken",
    "too_many_versions",
]
STATUSES: dict[RefusalCode, int] = {
    "invalid_row": 422,
    "unknown_id": 404,
    "unknown_model": 404,
    "unknown_class": 422,
    "ambiguous_id": 409,
    "conflicting_label": 409,
    "conflicting_answer": 409,
    "other_form": 422,
    "version_taken": 409,
    "too_many_versions": 409,
}
"""HTTP status of a call, by the code of its first refused row."""
MOST_LISTED = 20
"""Largest number of refused rows that an answer lists."""


@dataclass(frozen=True)
class Refusal:
    """Reason why one row of a call cannot be stored."""

    row: int
    id: str | None
    code: RefusalCode
    message: str


class CallerGoneError(Exception):
    """The caller has disconnected and waits for no answer."""
