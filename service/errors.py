"""The service's errors: a tree whose root says what its answer is, which `service.http.error_answers` makes of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

ENDING = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
"""Exceptions that end work from outside. Any other BaseException is a fault of the work: a panic of a library that is
written in Rust is no Exception.
"""


class ServiceError(Exception):
    """An answer other than 2xx: the message says what was sent, what is allowed and the cure."""

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
"""Of a call whose first refused row has the code."""
SHOWN = 20
"""Refused rows that an answer lists."""


@dataclass(frozen=True)
class Refusal:
    """Why one row of a call cannot be stored."""

    row: int
    id: str | None
    code: RefusalCode
    message: str


class CallerGoneError(Exception):
    """Nobody waits for the answer any more."""
