"""Retries: which requests are sent again, after how long a pause, and when to give up. No I/O.

Predictions carry ids, and sending the same label twice changes nothing. Such requests can be repeated safely. Any other
request that changes something is sent with `once=True`. It is repeated only if the service has certainly not carried it
out.
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

from trueodds.client.queries import encode_query
from trueodds.client.responses import NO_ANSWER, CallError
from trueodds.texts import plural

JSON, NDJSON = "application/json", "application/x-ndjson"
AWAY = (429, 502, 503, 504)
"""Statuses of a service that cannot answer now, or of a proxy in front of it."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between tries if the service names none.

The pause doubles with each try. Up to half of it is taken off at random, so that many clients do not return at once.
"""
NOT_CARRIED_OUT = (429, 503)
"""Statuses of a request that was not carried out. 502 and 504 come from a proxy, which cannot know."""
UNKNOWN = "it may have been carried out, so it was not sent again; check before you repeat it"
SHORTEST = 0.1
"""Timeout in seconds of a try that begins just before the time is over."""

T = TypeVar("T")


class Request(NamedTuple):
    """Arguments of a request for httpx, and the file that receives the body of a successful answer."""

    options: Mapping[str, Any]
    file: IO[bytes] | None


class Response(NamedTuple):
    """An HTTP response. Its body is empty if it went to a file."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unsent(str):
    """Reason why a request never reached the service: there was no connection."""


Steps: TypeAlias = Generator[Request | float, Response | str, T]
"""Generator that yields requests to send, or seconds to wait, and returns the result of a call.

The client sends the response back into it. If no whole response came, it sends the reason as a text. After a pause it
sends nothing of interest.
"""


@dataclass(frozen=True)
class Endpoint:
    """A service's address, the key to send, the limits of the retries, and the advice that errors end with."""

    url: str
    """Address of the service, without a slash at its end."""
    key: str | None
    """Key that every request carries, if any."""
    tries: int
    """Largest number of tries of a request."""
    seconds: float
    """Seconds for all tries of a request and the pauses between them."""
    timeout: float
    """Seconds without a byte from the service after which a try fails."""
    again: Callable[[str], bool]
    """Callback that receives the reason before a request is sent again. If it returns False, the client gives up."""
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
        """Send a request and parse its JSON answer with `read`. An NDJSON answer is passed as a list.

        Args:
            read: Turns the parsed JSON into the result.
            method: HTTP method.
            path: Path of the route.
            tree: Body to send as JSON.
            headers: Extra headers.
            **options: Other arguments of `exchange`.

        Raises:
            CallError: As in `exchange`, or the answer does not have the route's form.
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
            message = f"{where} something other than JSON ({error}); is this a TrueOdds service?"
            request_id = answer.headers.get("x-request-id")
            raise CallError("not_json", message, status=answer.status, request_id=request_id) from None
        try:
            return read(parsed)
        except (LookupError, TypeError, ValueError) as error:
            message = f"{where} JSON of an unexpected form ({type(error).__name__}: {error})"
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
    ) -> Steps[Response]:
        """Send a request until it succeeds, and return the response. Its body goes to `file`, if there is one.

        Args:
            method: HTTP method.
            path: Path of the route.
            query: Parameters of the URL.
            body: Body of the request.
            headers: Extra headers.
            file: Receives the body of a successful response.
            once: The request does more if it is carried out twice. It is sent again only if it was not carried out.

        Raises:
            CallError: The request was refused, every try failed, or it is not certain whether it was carried out.
            OSError: The file cannot be written.
        """
        request_id = secrets.token_hex(8)  # the same for all tries, so that the service's log shows them together
        authorization = {"authorization": f"Bearer {self.key}"} if self.key else {}
        options = {
            "method": method,
            "url": self.url + path,
            "params": encode_query(query or {}),
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
            if isinstance(answer, Response) and 200 <= answer.status < 300:
                return answer
            if isinstance(answer, Response) and answer.status not in AWAY:
                raise self._refusal(answer, path, request_id)
            if once and not (
                isinstance(answer, Unsent) or (isinstance(answer, Response) and answer.status in NOT_CARRIED_OUT)
            ):
                if isinstance(answer, Response):
                    raise self._refusal(answer, path, request_id, f"; {UNKNOWN}")
                words = f"{method} {self.url}{path} got no answer ({answer}): {UNKNOWN}"
                raise CallError(NO_ANSWER, words, request_id=request_id)
            pause = _pause(answer, tried)
            spent = time.monotonic() - started
            reason = answer if isinstance(answer, str) else _problem(answer)[1]
            over = tried >= self.tries or spent + pause >= self.seconds
            if over or not self.again(reason):
                tries = plural(tried, "try", "tries")
                if isinstance(answer, Response):
                    raise self._refusal(answer, path, request_id, f" ({tries} in {spent:.1f} s)")
                effort = f"it did not answer for {spent:.1f} s, in {tries}"
                words = f"no service answers at {self.url} ({reason}): {effort}; {self.cure_away}"
                raise CallError(NO_ANSWER, words, request_id=request_id)
            yield pause

    def _refusal(self, answer: Response, path: str, request_id: str, effort: str = "") -> CallError:
        """Build the error for a refused request."""
        code, message, details = _problem(answer)
        cure = self.cure_key if answer.status in (401, 403) else ""
        message = f"{self.url}{path} answered {answer.status}: {message}{effort}{cure}"
        return CallError(code, message, status=answer.status, request_id=request_id, details=details)


def _problem(answer: Response) -> tuple[str, str, dict[str, Any]]:
    """Return code, message and details of a refusal: the service's own, or the start of a proxy's body."""
    try:
        details = dict(json.loads(answer.body)["error"])
        return str(details.pop("code")), str(details.pop("message")), details
    except (ValueError, LookupError, TypeError):
        start = answer.body[:200].decode(errors="replace").strip()
        return f"http_{answer.status}", start or "nothing", {}


def _pause(answer: Response | str, tries: int) -> float:
    """Return the seconds until the next try: ours, or those of Retry-After if they are more."""
    own: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tries - 1)) * random.uniform(0.5, 1)
    return own if isinstance(answer, str) else max(own, retry_after(answer.headers.get("retry-after", "")))


def retry_after(value: str) -> float:
    """Return the seconds of a Retry-After header, which holds a number or a date; 0 if it holds neither.

    >>> retry_after("2"), retry_after("soon"), retry_after("Wed, 21 Oct 2015 07:28:00 GMT")
    (2.0, 0.0, 0.0)
    """
    if value.strip().isascii() and value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0
