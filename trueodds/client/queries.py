"""What may be said beside inputs, answers and labels: the options of the client's calls, by name and type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict


class PredictOptions(TypedDict, total=False):
    """Which version answers, and what is kept with all rows of a call."""

    model: str | None
    version: str | None
    tag: str | None
    propensity: float | None


class ObserveOptions(TypedDict, total=False):
    """Options of observed answers: `logits`, `positive`, `act_alone` and `shadow` of all rows.

    The others are said row by row.
    """

    predicted: Iterable[str | int] | None
    index: Iterable[int] | None
    logits: bool
    classes: Iterable[str] | None
    positive: str | None
    act_alone: str | None
    tags: Iterable[str | None] | None
    times: Iterable[datetime | float | None] | None
    propensities: Iterable[float | None] | None
    shadow: bool


class ReportQuery(TypedDict, total=False):
    """Which answers a report is about, and what it shows."""

    model: str | None
    version: str | None
    since: datetime | str | None
    until: datetime | str | None
    last: int | None
    predicted_class: str | None
    tag: str | None
    bins: int | None
    binning: Literal["width", "mass"] | None
    level: float | None
    by: Literal["class", "tag"] | None
    trend: Literal["minute", "hour", "day", "month", "auto"] | None
    costs: str | None


NAMES = {"predicted_class": "class"}
"""Names of the service that are no names in Python."""


def texts(query: Mapping[str, Any]) -> dict[str, str]:
    """The query as it is sent, without what is None.

    >>> texts({"predicted_class": "cat", "bins": 15, "since": datetime(2026, 1, 31), "tag": None})
    {'class': 'cat', 'bins': '15', 'since': '2026-01-31T00:00:00'}
    """
    return {NAMES.get(name, name): _text(value) for name, value in query.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)
