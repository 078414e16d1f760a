"""Calls of a replay to the running service. Calls to an unreachable service are repeated; ids make this safe."""

from __future__ import annotations

import base64
import math
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote

from pydantic import TypeAdapter

from trueodds.client import CallError, Client
from trueodds.client.keys import Keys
from trueodds.client.labelled import NO_ROWS
from trueodds.inputs import Input
from trueodds.replay import ReplayError
from trueodds.replay.source import ModelSignature, Row
from trueodds.replay.stream import Event


@dataclass(frozen=True)
class RowAnswer:
    """The service's answer to one row."""

    id: str
    label: str
    index: int
    confidence: float
    probability_L: tuple[float, ...] = ()
    """Probability of each independent label. `label`, `index` and `confidence` are then empty."""


class Caller:
    """Connection to the service at `url`; a context manager.

    `model` and `version` are those of /predict; None: the default.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        version: str | None = None,
        keys: Keys | None = None,
        patience: float = 30.0,
        say: Callable[[str], None] = print,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Connect to a service.

        Args:
            url: Address of the service.
            model: Name of the model.
            version: Version of the model.
            keys: Keys to send.
            patience: Seconds in which calls to an unreachable service are repeated.
            say: Receives messages for the user.
            is_stopped: Returns whether to give up earlier.

        Raises:
            ConfigError: The address is not an http:// or https:// URL, or a key is not valid.
        """
        self._query = {name: value for name, value in (("model", model), ("version", version)) if value is not None}
        self._patience, self._say = patience, say
        self._stopped = is_stopped
        self._run = f"replay-{uuid.uuid4().hex[:12]}"
        self._away_since: float | None = None
        self._has_labels = False
        self._questions: tuple[str, ...] = ()
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

    def signature(self) -> ModelSignature:
        """Read the model's input and classes, as soon as the service answers. Sets `answering` to model and version.

        Raises:
            CallError: There is no such model or version, or no service.
            ReplayError: The service only reads its store.
        """
        client, version = self._predicting, self._query.get("version")
        answering = client.ready()
        if answering is None:
            raise ReplayError(
                f"{client.url} only reads its store and answers no predictions; give another service: --url"
            )
        model = self._query.get("model", answering.model)
        path = f"/v2/models/{quote(model, '')}" + (f"/versions/{quote(version, '')}" if version else "")
        metadata = client.request("GET", path)
        kind: Input = TypeAdapter(Input).validate_python(metadata["inputs"][0]["parameters"])
        outputs = {output["name"]: output for output in metadata["outputs"]}
        if version is None:
            version = next(one.version for one in client.models() if one.model == model)
        self.answering = model, version
        self._is_there()
        named = outputs["label"]["parameters"]
        self._has_labels = bool(named.get("multilabel"))
        return ModelSignature(kind, tuple(named["classes"]), self._has_labels)

    def predict(self, events: list[Event]) -> list[RowAnswer]:
        """Return the answers in the order of the events. Events that are sent again get the stored answers.

        Raises:
            CallError: The service refused them, or stayed unreachable.
        """
        body: dict[str, Any] = {
            "instances": [instance(event.row) for event in events],
            "ids": [f"{self._run}-{event.number}" for event in events],
        }
        if any(event.tag is not None for event in events):
            body["tags"] = [event.tag for event in events]
        more = {} if self._has_labels else {"top_k": "1"}
        answer = self._predicting.request("POST", "/predict", query=self._query | more, tree=body)
        self.answering = answer["model"], answer["version"]
        self._is_there()
        if self._has_labels:
            rows = answer["predictions"]
            self._questions = tuple(one["name"] for one in rows[0]["answers"])
            return [RowAnswer(p["id"], "", -1, 0.0, tuple(a["probability"] for a in p["answers"])) for p in rows]
        return [RowAnswer(p["id"], p["label"], p["index"], p["confidence"]) for p in answer["predictions"]]

    def feedback(self, rows: list[tuple[str, str | int]]) -> None:
        """Send pairs of id and class (name or index). Labels that the service has already are no error.

        Raises:
            CallError: As in `predict`.
        """
        ids, classes = zip(*rows, strict=True)
        by_index = isinstance(classes[0], int)
        self._labelling.feedback(ids, None if by_index else classes, index=classes if by_index else None)
        self._is_there()

    def feedback_of_labels(self, rows: list[tuple[str, int, bool]]) -> None:
        """Send truths of independent labels: id, place of the label, and whether it is true.

        Raises:
            CallError: As in `predict`.
        """
        tree = {"labels": [{"id": id_, "question": self._questions[place], "label": true} for id_, place, true in rows]}
        self._labelling.request("POST", "/feedback", tree=tree)
        self._is_there()

    def report(self) -> dict[str, Any]:
        """Read the live calibration report of the version that answered last.

        That of independent labels has the pooled figures under the same names, and no accuracy and no alarm.

        Raises:
            CallError: As in `predict`.
        """
        model, version = self.answering or (None, None)
        if self._has_labels:
            return self._report_of_labels(model, version)
        report = self._predicting.report(model=model, version=version)
        self._is_there()
        return report.model_dump(mode="json")

    def _report_of_labels(self, model: str | None, version: str | None) -> dict[str, Any]:
        about = {"accuracy": None, "alarm": None, "model": model, "version": version}
        try:
            found = self._predicting.request("GET", "/multi-label-report", query={"model": model, "version": version})
        except CallError as error:
            if error.code not in NO_ROWS:
                raise
            none = dict.fromkeys(("ece", "ece_lower", "ece_upper", "floor_p95"))
            return {**about, **none, "labelled": 0, "headline": "No label is known yet."}
        finally:
            self._is_there()
        whole = {name: found["whole"].get(name) for name in ("ece", "ece_lower", "ece_upper", "floor_p95")}
        return {**about, **whole, "labelled": found["pairs"], "headline": found["reading"]}

    def _again(self, reason: str) -> bool:
        """Return whether a failed call is repeated."""
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
    """Return a row as JSON: a text, the bytes of an image's pixels, or a vector's numbers (null for missing ones)."""
    if isinstance(row, str):
        return row
    if row.ndim == 3:
        return {"pixels_b64": base64.b64encode(row.tobytes()).decode()}
    return [None if value != value else value for value in row.tolist()]
