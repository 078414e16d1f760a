"""The service's errors: a tree whose root says what its answer is, which `service.http.error_answers` makes of it."""

from __future__ import annotations

from typing import Any


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


class CallerGoneError(Exception):
    """Nobody waits for the answer any more."""
