"""Calls to the running service. While it is away they are repeated, which is safe: each row has an id."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter

from service.cli.replay import ReplayError
from service.cli.replay.source import Row, Signature
from service.cli.replay.stream import Event
from trueodds.inputs import Input

AWAY = (502, 503, 504)
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between attempts; the last for all further ones."""


@dataclass(frozen=True)
class Answer:
    id: str
    label: str
    index: int
    confidence: float


@dataclass(frozen=True)
class Keys:
    predict: str | None = None
    feedback: str | None = None


class Caller:
    """The service at `url`; a context manager. `model`, `version`: as in its /predict, None: what it serves."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        version: str | None = None,
        keys: Keys | None = None,
        patience: float = 30.0,
        say: Callable[[str], None] = print,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`patience`: seconds in which calls to a service that is away are repeated. `stopped`: whether to end earlier.

        Raises:
            ReplayError: what is no http:// or https:// URL.
        """
        self._query = {name: value for name, value in (("model", model), ("version", version)) if value is not None}
        self._keys, self._patience, self._say, self._stopped = keys or Keys(), patience, say, stopped
        self._run = f"replay-{uuid.uuid4().hex[:12]}"
        self.answering: tuple[str, str] | None = None
        """Model and version of the last answer."""
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ReplayError(
                f"--service {url!r} is no URL ({error}); expected such as http://127.0.0.1:8000"
            ) from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ReplayError(f"--service is {url!r}; expected http:// or https://, such as http://127.0.0.1:8000")
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def signature(self) -> Signature:
        """What the model takes, once the service is there; sets `answering` to the model and its version.

        Raises:
            ReplayError: no such model or version, or no service.
        """
        ready = self._call("GET", "/health/ready")
        model, version = self._query.get("model", ready["model"]), self._query.get("version")
        metadata = self._call(
            "GET", f"/v2/models/{quote(model, '')}" + (f"/versions/{quote(version, '')}" if version else "")
        )
        kind: Input = TypeAdapter(Input).validate_python(metadata["inputs"][0]["parameters"])
        outputs = {output["name"]: output for output in metadata["outputs"]}
        if version is None:
            known = self._call("GET", "/models")["models"]
            version = next(one["default"] for one in known if one["model"] == model)
        self.answering = model, version
        return Signature(kind, tuple(outputs["label"]["parameters"]["classes"]))

    def predict(self, events: list[Event]) -> list[Answer]:
        """Answers in the order of the events; sent again, the stored ones.

        Raises:
            ReplayError: refused, or the service stayed away.
        """
        body: dict[str, Any] = {
            "instances": [instance(event.row) for event in events],
            "ids": [f"{self._run}-{event.number}" for event in events],
        }
        if events[0].tag is not None:
            body["tags"] = [event.tag for event in events]
        answer = self._call("POST", "/predict", body, self._keys.predict, self._query | {"top_k": "1"})
        self.answering = answer["model"], answer["version"]
        return [Answer(p["id"], p["label"], p["index"], p["confidence"]) for p in answer["predictions"]]

    def feedback(self, rows: list[tuple[str, str | int]]) -> None:
        """Send (id, class by name or by index); what the service has already is no error. Raises as `predict`."""
        body = {"labels": [{"id": id_, "index" if isinstance(label, int) else "label": label} for id_, label in rows]}
        self._call("POST", "/feedback", body, self._keys.feedback)

    def report(self) -> dict[str, Any]:
        """The live calibration report of who answered last. Raises as `predict`."""
        query = {"format": "json"}
        if self.answering:
            query |= dict(zip(("model", "version"), self.answering, strict=True))
        report: dict[str, Any] = self._call("GET", "/calibration-report", query=query)
        return report

    def _call(
        self, method: str, path: str, body: Any = None, key: str | None = None, query: dict[str, Any] | None = None
    ) -> Any:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        started, attempt = time.monotonic(), 0
        while True:
            try:
                response = self._http.request(method, path, json=body, headers=headers, params=query)
                reason = _error(response)
            except httpx.TransportError as error:
                response, reason = None, str(error) or type(error).__name__
            if response is not None and response.is_success:
                if attempt:
                    self._say(f"{self.url} answers again")
                return response.json()
            if response is not None and response.status_code not in AWAY:
                raise ReplayError(f"{self.url}{path} answered {response.status_code}: {reason}")
            away = time.monotonic() - started
            if away >= self._patience or (self._stopped() and attempt):
                raise ReplayError(f"{self.url} did not answer for {away:.1f} s ({reason}); is the service up?")
            if not attempt:
                self._say(f"{self.url} does not answer ({reason}); trying again for {self._patience:g} s")
            time.sleep(min(PAUSES[min(attempt, len(PAUSES) - 1)], self._patience - away))
            attempt += 1


def instance(row: Row) -> Any:
    """One row as JSON: a text, the bytes of an image's pixels, or a vector's numbers, null where one is missing."""
    if isinstance(row, str):
        return row
    if row.ndim == 3:
        return {"pixels_b64": base64.b64encode(row.tobytes()).decode()}
    return [None if value != value else value for value in row.tolist()]


def _error(response: httpx.Response) -> str:
    """The service's own words, or the start of another's."""
    if response.is_success:
        return ""
    try:
        error = response.json()["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
