"""Requests that are sent again: which answers are worth it, how long to wait, and when to give up. No I/O.

Every request of the client may be repeated: predictions carry ids, and the same label again changes nothing.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias, TypeVar

from trueodds.client.answers import CallError
from trueodds.texts import plural

NDJSON = "application/x-ndjson"
AWAY = (502, 503, 504)
"""Statuses of a service that cannot answer now, and of a proxy before it."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between tries where the service names none; doubled each time, and up to half of it taken off by chance, so
that many clients do not come back at once."""

SHORTEST = 0.1
"""Seconds of a try that begins just before the end."""

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """How often and how long one request is tried."""

    tries: int
    seconds: float
    """For all tries and the pauses between them."""
    timeout: float
    """Of one try: without a byte from the service."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    headers: Mapping[str, str | bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Send:
    """Send it, and pass on the answer."""

    request: Request
    timeout: float


@dataclass(frozen=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class NoAnswer:
    """The connection failed, or broke before the answer was whole."""

    reason: str


Steps: TypeAlias = Generator[Send | Pause, Answer | NoAnswer | None, T]
"""Asks for what a transport does, and returns the result; the transport sends back the answer, None after a pause."""


def exchange(request: Request, url: str, limits: Limits) -> Steps[Any]:
    """The JSON of a good answer; of one in lines, their list.

    Raises:
        CallError: the request was refused, or every try failed; what was answered is not JSON.
    """
    request_id = secrets.token_hex(8)  # one for all tries: the service's log has them together
    headers = {**request.headers, "x-request-id": request_id}
    request = Request(request.method, request.path, request.query, request.body, headers)
    started, tried = time.monotonic(), 0
    while True:
        tried += 1
        left = limits.seconds - (time.monotonic() - started)
        answer = yield Send(request, max(SHORTEST, min(limits.timeout, left)))
        assert answer is not None
        if isinstance(answer, Answer) and answer.status not in AWAY:
            return _read(answer, request.path, url, request_id)
        pause = _pause(answer, tried)
        spent = time.monotonic() - started
        if tried >= limits.tries or spent + pause >= limits.seconds:
            raise _failure(answer, request.path, url, request_id, f"{plural(tried, 'try', 'tries')} in {spent:.1f} s")
        yield Pause(pause)


def _pause(answer: Answer | NoAnswer, tried: int) -> float:
    """Seconds until the next try: Retry-After's, if the answer has one and it is longer than ours."""
    own: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tried - 1)) * random.uniform(0.5, 1)
    return own if isinstance(answer, NoAnswer) else max(own, retry_after(answer.headers.get("retry-after", "")))


def retry_after(value: str) -> float:
    """Seconds, of a header that says a number of them or a date; 0 for what is neither.

    >>> retry_after("2"), retry_after("soon"), retry_after("Wed, 21 Oct 2015 07:28:00 GMT")
    (2.0, 0.0, 0.0)
    """
    if value.strip().isascii() and value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0


def _read(answer: Answer, path: str, url: str, request_id: str) -> Any:
    if not 200 <= answer.status < 300:
        raise _refusal(answer, path, url, request_id)
    try:
        if answer.headers.get("content-type", "").startswith(NDJSON):
            return [json.loads(line) for line in answer.body.splitlines()]
        return json.loads(answer.body)
    except ValueError as error:
        message = f"{url}{path} answered what is not JSON ({error}): not a TrueOdds?"
        raise CallError("not_json", message, status=answer.status, request_id=request_id) from None


def _failure(answer: Answer | NoAnswer, path: str, url: str, request_id: str, effort: str) -> CallError:
    """The error of a request that is not tried again."""
    if isinstance(answer, Answer):
        return _refusal(answer, path, url, request_id, f" ({effort})")
    message = f"{url}{path} did not answer ({answer.reason}; {effort}); is the service up?"
    return CallError("no_answer", message, request_id=request_id)


def _refusal(answer: Answer, path: str, url: str, request_id: str, effort: str = "") -> CallError:
    """The service's own words, or the start of a proxy's."""
    try:
        details = dict(json.loads(answer.body)["error"])
        code, message = str(details.pop("code")), str(details.pop("message"))
    except (ValueError, LookupError, TypeError):
        code, message, details = f"http_{answer.status}", answer.body[:200].decode(errors="replace").strip(), {}
    message = f"{url}{path} answered {answer.status}: {message or 'nothing'}{effort}"
    return CallError(code, message, status=answer.status, request_id=request_id, details=details)
