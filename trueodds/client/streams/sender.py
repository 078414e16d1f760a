"""Sends messages to the service and notes the outcome of each row. A service that is away is waited for."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trueodds.client import NO_ANSWER, CallError, Client
from trueodds.client.keys import Keys
from trueodds.client.streams import StreamError
from trueodds.client.streams.messages import DOORS, Door, Item, query_of

BODY_BYTES = 2_000_000
"""Size of the lines in one request, except for a single larger message."""
PAUSE = 5.0
"""Seconds until a request is sent again after an answer that is not the service's own."""
OUTCOMES = ("stored", "already_known", "corrected", "held", "declined")
"""Outcomes of rows that were not refused."""
_TREE_STATUSES = (400, 404, 409, 413, 415, 422, 500)
"""Statuses by which the service refuses a body. Other bodies may still be taken."""


class StoppedError(Exception):
    """A stop was requested while the service was away. The messages were perhaps not stored."""


class Sender:
    """Client of the service for the messages of all topics. Other threads may read `is_away`."""

    def __init__(
        self,
        url: str,
        keys: Keys,
        queries: Mapping[str, Mapping[str, str]],
        say: Callable[[str], None],
        is_stopped: Callable[[], bool],
        pause: float = PAUSE,
    ) -> None:
        """Make the client.

        Args:
            url: Address of the service.
            keys: Keys of the roles `predict` and `feedback`.
            queries: Parameters of each route, by its path.
            say: Receives messages for the user.
            is_stopped: Returns whether to stop waiting.
            pause: Seconds until a request is sent again after an answer that is not the service's own.

        Raises:
            ConfigError: The address or a key cannot be used.
        """
        limits: dict[str, Any] = {"tries": sys.maxsize, "seconds": math.inf, "again": self._again}
        self._observing = Client(url, key=keys.predict, **limits)
        self._labelling = Client(url, key=keys.feedback, **limits)
        self._queries, self._say, self._is_stopped, self._pause = queries, say, is_stopped, pause
        self._away_since: float | None = None

    @property
    def url(self) -> str:
        """The service's address."""
        return self._observing.url

    @property
    def is_away(self) -> bool:
        """Whether the service did not answer the last request."""
        return self._away_since is not None

    def check(self, doors: Sequence[Door]) -> None:
        """Check address, keys and parameters by a request without rows to each route.

        Raises:
            CallError: The service refuses the key or a parameter, or has no such route.
            StoppedError: A stop was requested while the service was away.
        """
        for door in doors:
            self._request(door, query=self._queries.get(door.path), lines=b"")

    def send(self, items: Sequence[Item]) -> None:
        """Send messages: answers before labels, those of a topic in their order. Their outcomes are then set.

        Raises:
            CallError: The service refuses the key, or has no such route.
            StreamError: Its answer does not tell the outcome of each row.
            StoppedError: A stop was requested while the service was away.
        """
        for door in DOORS:
            for run in _runs([item for item in items if item.door is door and (item.lines or item.tree is not None)]):
                if run[0].tree is None:
                    self._send_lines(door, run)
                else:
                    self._send_tree(door, run[0])

    def _send_lines(self, door: Door, items: Sequence[Item]) -> None:
        """Send the lines of some messages in one request. If the service refuses all, send each half by itself."""
        for item in items:
            item.begin()
        rows = [(item, row) for item in items for row in range(len(item.lines))]
        body = b"".join(line + b"\n" for item in items for line in item.lines)
        try:
            answers = self._request(door, query=self._queries.get(door.path), lines=body)
        except CallError as error:
            if not _is_of_body(error):
                raise
            if len(items) == 1:
                _refuse(items[0], error)
                return
            middle = len(items) // 2
            self._send_lines(door, items[:middle])
            self._send_lines(door, items[middle:])
            return
        told = set[int]()
        try:
            for answer in answers:
                place = answer["row"] - 1  # it counts lines
                item, row = rows[place]
                told.add(place)
                if answer["outcome"] == "failed":
                    item.refuse(row, str(answer["code"]), str(answer["message"]))
                else:
                    item.outcomes[answer["outcome"]] += 1
        except (LookupError, TypeError) as error:
            raise self._strange(door, f"{type(error).__name__}: {error}") from None
        if len(told) < len(rows):
            raise self._strange(door, f"{len(rows)} rows were sent and {len(told)} outcomes came back")

    def _send_tree(self, door: Door, item: Item) -> None:
        """Send a message that is a JSON body."""
        item.begin()
        try:
            answer = self._request(door, query=query_of(item, self._queries.get(door.path, {})), tree=item.tree)
        except CallError as error:
            if not _is_of_body(error):
                raise
            _refuse(item, error)
            return
        item.outcomes.update({name: answer[name] for name in OUTCOMES if answer.get(name)})
        for problem in answer.get("problems", ()):  # questions are stored one by one
            item.refuse(problem["row"], str(problem["code"]), str(problem["message"]))

    def _strange(self, door: Door, what: str) -> StreamError:
        return StreamError(
            f"{self.url}{door.path} answered in an unexpected form ({what}); start a service of this release"
        )

    def _request(self, door: Door, **options: Any) -> Any:
        """Send a request until the service itself answers.

        Raises:
            CallError: The service refuses it.
            StoppedError: A stop was requested while the service was away.
        """
        client = self._labelling if door.is_of_labels else self._observing
        while True:
            try:
                answer = client.request("POST", door.path, **options)
            except CallError as error:
                if not _is_away(error):
                    self._is_there()
                    raise
                if not self._again(error.message):
                    raise StoppedError from error
                time.sleep(self._pause)
            else:
                self._is_there()
                return answer

    def _again(self, reason: str) -> bool:
        """Note that the service is away. Return whether the request is repeated."""
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._say(f"{self.url} does not answer ({reason}). Waiting for it; no offset is committed meanwhile")
        return not self._is_stopped()

    def _is_there(self) -> None:
        if self._away_since is not None:
            self._say(f"{self.url} answers again, after {time.monotonic() - self._away_since:.0f} s")
            self._away_since = None


def _runs(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield the messages of each request: a JSON body by itself, or lines up to BODY_BYTES, in their order."""
    run, size = list[Item](), 0
    for item in items:
        length = sum(map(len, item.lines)) + len(item.lines)
        if run and (item.tree is not None or run[0].tree is not None or size + length > BODY_BYTES):
            yield run
            run, size = [], 0
        run.append(item)
        size += length
    if run:
        yield run


def _is_away(error: CallError) -> bool:
    """Return whether the service did not answer: nobody did, a proxy did, or the body came too slowly."""
    if error.code in (NO_ANSWER, "not_json", "unexpected_answer"):
        return True
    status = error.status or 0
    return status in (408, 429, 502, 503, 504) or (status >= 500 and error.code.startswith("http_"))


def _is_of_body(error: CallError) -> bool:
    """Return whether the service refuses this body, and may take another one."""
    return error.status in _TREE_STATUSES and error.code != "not_found" and not error.code.startswith("http_")


def _refuse(item: Item, error: CallError) -> None:
    """Note the refusal of a whole message, row by row where the service says which."""
    for problem in error.details.get("problems") or ():
        item.refuse(problem["row"], str(problem["code"]), str(problem["message"]))
    if not item.problems:
        item.refuse(None, error.code, str(error))
