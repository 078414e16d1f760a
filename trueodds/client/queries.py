"""Options of the client's calls, with their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict


class PredictOptions(TypedDict, total=False):
    """Options of `predict`: the version that answers, values stored with all rows of a call, and the level of sets."""

    model: str | None
    version: str | None
    tag: str | None
    propensity: float | None
    set: float | None


class ObserveOptions(TypedDict, total=False):
    """Options of `observe`.

    `logits`, `form`, `classes`, `ordered`, `positive`, `act_alone`, `shadow`, `confidence_source`, `resolution`,
    `set_level` and `set_rows` hold for all rows; the other options have one value for each row.
    """

    predicted: Iterable[str | int] | None
    index: Iterable[int] | None
    logits: bool
    classes: Iterable[str] | None
    ordered: bool
    positive: str | None
    act_alone: str | None
    tags: Iterable[str | None] | None
    times: Iterable[datetime | float | None] | None
    propensities: Iterable[float | None] | None
    shadow: bool
    form: Literal["logprobs", "verbalised", "votes"] | None
    confidence_source: Literal["native", "logprob", "verbalised", "votes"] | None
    confidence_sources: Iterable[str | None] | None
    resolution: float | Literal["exact"] | None
    sets: Iterable[Iterable[str]] | None
    set_level: float | None
    set_rows: int | None


class ReportQuery(TypedDict, total=False):
    """Options of `report`: the answers that it covers, and its parts."""

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
    by: Literal["class", "tag", "confidence_source"] | None
    trend: Literal["minute", "hour", "day", "month", "auto"] | None
    costs: str | None


NAMES = {"predicted_class": "class"}
"""Parameters of the service whose names are keywords in Python."""


def encode_query(query: Mapping[str, Any]) -> dict[str, str]:
    """Convert a query to texts, leaving out what is None.

    >>> encode_query({"predicted_class": "cat", "bins": 15, "since": datetime(2026, 1, 31), "tag": None})
    {'class': 'cat', 'bins': '15', 'since': '2026-01-31T00:00:00'}
    """
    return {NAMES.get(name, name): _text(value) for name, value in query.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)
