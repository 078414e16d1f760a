"""Labels that make an alarm fire: as the store gives them, and through an application."""

from __future__ import annotations

from typing import Any

import numpy as np

from service.store.rows import LabelBlock
from tests.service.app_client import Client
from tests.service.hooks import until
from tests.service.tiny_bundle import CLASSES, pictures

ACKNOWLEDGE = "/admin/alarm/acknowledge"
START = 1_700_000_000_000


def labels(
    confidence_N: Any,
    correct_N: Any,
    first: int = 0,
    propensity_N: Any = None,
    predicted_N: Any = None,
    levels: tuple[Any, Any] | None = None,
) -> LabelBlock:
    """Labels that arrive every second; what they say now is the contrary of what they said first.

    `levels` are the first labels and the probabilities of "at least level k".
    """
    count = len(confidence_N)
    confidence, correct, none = np.array(confidence_N, float), np.array(correct_N, bool), np.zeros(count)
    number = first + np.arange(count, dtype=np.int64)
    at = START + 1000 * number
    index = np.zeros(count, np.int64) if predicted_N is None else np.array(predicted_N, np.int64)
    propensity = np.full(count, np.nan) if propensity_N is None else np.array(propensity_N, float)
    levels = (index, np.zeros((count, 0))) if levels is None else levels
    parts = at, at, index, index, confidence, ~correct, correct, none, none, propensity
    return LabelBlock(number + 1, [""] * count, *parts, [None] * count, *levels)


def all_wrong(client: Client, count: int = 80, seed: int = 0) -> None:
    """Predictions whose labels all say that they were wrong."""
    predictions = client.predict(pictures(count, seed=seed))
    client.label([{"id": p["id"], "index": (p["index"] + 1) % len(CLASSES)} for p in predictions])


def alarm(client: Client) -> dict[str, Any]:
    part: dict[str, Any] = client.report()["alarm"]
    return part


def fire(client: Client) -> str:
    """Make it fire, and give the version."""
    all_wrong(client)
    until(lambda: alarm(client)["state"] == "fired")
    return str(client.report()["version"])
