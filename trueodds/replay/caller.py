"""A replay's calls to the running service. While it is away they are repeated, which is safe: each row has an id."""

from __future__ import annotations

import base64
import math
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from pydantic import TypeAdapter

from trueodds.client import Client
from trueodds.inputs import Input
from trueodds.replay import ReplayError
from trueodds.replay.source import Row, Signature
from trueodds.replay.stream import Event


@dataclass(frozen=True)
class Answer:
    """The service's answer to one row."""

    id: str
    label: str
    index: int
    confidence: float


class Keys(NamedTuple):
    """The keys of the roles that a replay has."""

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
            ConfigError: no http:// or https:// URL, or no key.
        """
        self._query = {name: value for name, value in (("model", model), ("version", version)) if value is not None}
        self._patience, self._say, self._stopped = patience, say, stopped
        self._run = f"replay-{uuid.uuid4().hex[:12]}"
        self._away_since: float | None = None
        self.answering: tuple[str, str] | None = None
        """Model and version of the last answer."""
        limits: dict[str, Any] = {"tries": sys.maxsize, "seconds": math.inf, "timeout": 30, "again": self._again}
        keys = keys or Keys()
        self._predicting = Client(url, key=keys.predict, **limits)
        self._labelling = Client(url, key=keys.feedback, **limits)
        self.url = self._predicting.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._predicting.close()
        self._labelling.close()

    def signature(self) -> Signature:
        """Read what the model takes, once the service is there; sets `answering` to the model and its version.

        Raises:
            CallError: no such model or version, or no service.
            ReplayError: a service that only reads.
        """
        client, version = self._predicting, self._query.get("version")
        answering = client.ready()
        if answering is None:
            raise ReplayError(f"{client.url} only reads its store: it answers no predictions. Name another: --service")
        model = self._query.get("model", answering.model)
        path = f"/v2/models/{quote(model, '')}" + (f"/versions/{quote(version, '')}" if version else "")
        metadata = client.request("GET", path)
        kind: Input = TypeAdapter(Input).validate_python(metadata["inputs"][0]["parameters"])
        outputs = {output["name"]: output for output in metadata["outputs"]}
        if version is None:
            version = next(one.version for one in client.models() if one.model == model)
        self.answering = model, version
        self._is_there()
        return Signature(kind, tuple(outputs["label"]["parameters"]["classes"]))

    def predict(self, events: list[Event]) -> list[Answer]:
        """Answers in the order of the events; sent again, the stored ones.

        Raises:
            CallError: refused, or the service stayed away.
        """
        body: dict[str, Any] = {
            "instances": [instance(event.row) for event in events],
            "ids": [f"{self._run}-{event.number}" for event in events],
        }
        if events[0].tag is not None:
            body["tags"] = [event.tag for event in events]
        answer = self._predicting.request("POST", "/predict", query=self._query | {"top_k": "1"}, tree=body)
        self.answering = answer["model"], answer["version"]
        self._is_there()
        return [Answer(p["id"], p["label"], p["index"], p["confidence"]) for p in answer["predictions"]]

    def feedback(self, rows: list[tuple[str, str | int]]) -> None:
        """Send (id, class by name or by index); what the service has already is no error. Raises as `predict`."""
        ids, classes = zip(*rows, strict=True)
        by_index = isinstance(classes[0], int)
        self._labelling.feedback(ids, None if by_index else classes, index=classes if by_index else None)
        self._is_there()

    def report(self) -> dict[str, Any]:
        """Read the live calibration report of who answered last. Raises as `predict`."""
        model, version = self.answering or (None, None)
        report = self._predicting.report(model=model, version=version)
        self._is_there()
        return report.model_dump(mode="json")

    def _again(self, reason: str) -> bool:
        """Decide whether a call that failed is repeated."""
        if self._patience <= 0:
            return False
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._say(f"{self.url} does not answer ({reason}); trying again for {self._patience:g} s")
            return True
        return not self._stopped() and time.monotonic() - self._away_since < self._patience

    def _is_there(self) -> None:
        if self._away_since is not None:
            self._away_since = None
            self._say(f"{self.url} answers again")


def instance(row: Row) -> Any:
    """One row as JSON: a text, the bytes of an image's pixels, or a vector's numbers, null where one is missing."""
    if isinstance(row, str):
        return row
    if row.ndim == 3:
        return {"pixels_b64": base64.b64encode(row.tobytes()).decode()}
    return [None if value != value else value for value in row.tolist()]
