"""Requests that are sent again: which answers are worth it, how long to wait, and when to give up. No I/O.

Predictions carry ids, and the same label again changes nothing: such requests may be repeated. A request that changes
something else goes `once`: it is repeated only where the service has not carried it out.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import IO, Any, NamedTuple, TypeAlias, TypeVar

from trueodds.client.answers import NO_ANSWER, CallError
from trueodds.client.queries import texts
from trueodds.texts import plural

JSON, NDJSON = "application/json", "application/x-ndjson"
AWAY = (502, 503, 504)
"""Statuses of a service that cannot answer now, and of a proxy before it."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between tries where the service names none; doubled each time, and up to half of it taken off by chance, so
that many clients do not come back at once."""
REFUSED = 503
"""The status of a service that has not carried out a request. 502 and 504 are a proxy's, which cannot know."""
UNKNOWN = "it may have been carried out, so it was not sent again; look first"
SHORTEST = 0.1
"""Seconds of a try that begins just before the end."""

T = TypeVar("T")


class Request(NamedTuple):
    """A request as httpx takes it, and the file that the body of a good answer goes to."""

    options: Mapping[str, Any]
    file: IO[bytes] | None


class Answer(NamedTuple):
    """An answer; its body is empty where it went to a file."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unsent(str):
    """The reason why a request never reached a service: no connection."""


Steps: TypeAlias = Generator[Request | float, Answer | str, T]
"""Yields a request to send or seconds to wait, and returns the result of a call.

The transport sends back the answer; or as a text the reason why none came whole, or nothing after a pause.
"""


@dataclass(frozen=True)
class Caller:
    """The place of a service, the key of its caller, how long a request is tried, and the cures that errors name."""

    url: str
    key: str | None
    tries: int
    seconds: float
    """For all tries of a request and the pauses between them."""
    timeout: float
    """Seconds of one try without a byte from the service."""
    again: Callable[[str], bool]
    """Asked with the reason before a request is sent again; False gives up."""
    cure_away: str = "is the service up?"
    cure_key: str = ""

    def read(
        self,
        read: Callable[[Any], T],
        method: str,
        path: str,
        *,
        tree: Any = None,
        headers: Mapping[str, str | bytes] | None = None,
        **options: Any,
    ) -> Steps[T]:
        """An answer in JSON, read; of one in lines, their list. `tree`: a body, to be sent as JSON.

        `options`: as `exchange` takes them.

        Raises:
            CallError: see `exchange`; or the answer is not what the service answers there.
        """
        headers = {"accept": JSON, **(headers or {})}
        if tree is not None:
            options["body"], headers["content-type"] = json.dumps(tree).encode(), JSON
        answer = yield from self.exchange(method, path, headers=headers, **options)
        where = f"{self.url}{path} answered"
        try:
            lines = answer.headers.get("content-type", "").startswith(NDJSON)
            parsed = [json.loads(line) for line in answer.body.splitlines()] if lines else json.loads(answer.body)
        except ValueError as error:
            message = f"{where} what is not JSON ({error}): not a TrueOdds?"
            request_id = answer.headers.get("x-request-id")
            raise CallError("not_json", message, status=answer.status, request_id=request_id) from None
        try:
            return read(parsed)
        except (LookupError, TypeError, ValueError) as error:
            message = f"{where} JSON of another form ({type(error).__name__}: {error})"
            raise CallError("unexpected_answer", message) from None

    def exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str | bytes] | None = None,
        file: IO[bytes] | None = None,
        once: bool = False,
    ) -> Steps[Answer]:
        """A good answer; its body goes to `file`, if there is one.

        `once`: a request that does more when it is carried out twice. It is sent again only where it was not.

        Raises:
            CallError: the request was refused, or every try failed, or nobody knows whether it was carried out.
            OSError: the file cannot be written.
        """
        request_id = secrets.token_hex(8)  # one for all tries: the service's log has them together
        authorization = {"authorization": f"Bearer {self.key}"} if self.key else {}
        options = {
            "method": method,
            "url": self.url + path,
            "params": texts(query or {}),
            "content": body,
            "headers": {**authorization, **(headers or {}), "x-request-id": request_id},
        }
        started, tried = time.monotonic(), 0
        while True:
            tried += 1
            left = self.seconds - (time.monotonic() - started)
            if file is not None:
                file.seek(0)
                file.truncate()
            timeout = max(SHORTEST, min(self.timeout, left))
            answer = yield Request({**options, "timeout": timeout}, file)
            if isinstance(answer, Answer) and 200 <= answer.status < 300:
                return answer
            if isinstance(answer, Answer) and answer.status not in AWAY:
                raise self._refusal(answer, path, request_id)
            if once and not (isinstance(answer, Unsent) or (isinstance(answer, Answer) and answer.status == REFUSED)):
                if isinstance(answer, Answer):
                    raise self._refusal(answer, path, request_id, f"; {UNKNOWN}")
                words = f"{method} {self.url}{path} got no answer ({answer}): {UNKNOWN}"
                raise CallError(NO_ANSWER, words, request_id=request_id)
            pause = _pause(answer, tried)
            spent = time.monotonic() - started
            reason = answer if isinstance(answer, str) else _problem(answer)[1]
            over = tried >= self.tries or spent + pause >= self.seconds
            if over or not self.again(reason):
                tries = plural(tried, "try", "tries")
                if isinstance(answer, Answer):
                    raise self._refusal(answer, path, request_id, f" ({tries} in {spent:.1f} s)")
                effort = f"it did not answer for {spent:.1f} s, in {tries}"
                words = f"no service answers at {self.url} ({reason}): {effort}; {self.cure_away}"
                raise CallError(NO_ANSWER, words, request_id=request_id)
            yield pause

    def _refusal(self, answer: Answer, path: str, request_id: str, effort: str = "") -> CallError:
        code, message, details = _problem(answer)
        cure = self.cure_key if answer.status in (401, 403) else ""
        message = f"{self.url}{path} answered {answer.status}: {message}{effort}{cure}"
        return CallError(code, message, status=answer.status, request_id=request_id, details=details)


def _problem(answer: Answer) -> tuple[str, str, dict[str, Any]]:
    """Code, message and details of a refusal: the service's own words, or the start of a proxy's."""
    try:
        details = dict(json.loads(answer.body)["error"])
        return str(details.pop("code")), str(details.pop("message")), details
    except (ValueError, LookupError, TypeError):
        start = answer.body[:200].decode(errors="replace").strip()
        return f"http_{answer.status}", start or "nothing", {}


def _pause(answer: Answer | str, tried: int) -> float:
    """Seconds until the next try: Retry-After's, if the answer has one and it is longer than ours."""
    own: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tried - 1)) * random.uniform(0.5, 1)
    return own if isinstance(answer, str) else max(own, retry_after(answer.headers.get("retry-after", "")))


def retry_after(value: str) -> float:
    """Seconds that a header names as a number or as a date; 0 where it names neither.

    >>> retry_after("2"), retry_after("soon"), retry_after("Wed, 21 Oct 2015 07:28:00 GMT")
    (2.0, 0.0, 0.0)
    """
    if value.strip().isascii() and value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0
