"""Query parameters, the times in them, and Accept headers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.routing import APIRoute
from pydantic import BeforeValidator

from service.errors import ServiceError
from trueodds.errors import nearest
from trueodds.inputs.times import time_of
from trueodds.texts import short

_YEAR = re.compile(r"(19|20)\d\d")
"""A number that means a year. As Unix seconds it is in the first hour of 1970."""
_LOST_PLUS = re.compile(r":\d\d(\.\d+)? \d\d(:?\d\d)?$")


def check(request: Request, names: Iterable[str], *, is_form: bool = False) -> None:
    """Refuse a query with a parameter that the route does not have, that is sent twice, or that has no value.

    If a mistyped filter were ignored, the answer would have numbers of something else. So it would with a filter that
    is empty because a variable of a script is not set. Only a browser's form (`is_form`) sends empty fields.

    Raises:
        ServiceError: 422 with the parameter, the most similar known one, and all known ones.
    """
    if not request.scope.get("query_string"):
        return
    allowed, seen = list(names), set[str]()
    listed = f"Known are {', '.join(allowed)}" if allowed else "It has no parameters"
    pairs = request.query_params.multi_items()
    for name, _ in pairs:
        if name not in allowed:
            message = f"{request.url.path} has no parameter {short(name)}. {listed}.{nearest(name[:100], allowed)}"
            raise ServiceError(422, "invalid_parameter", message)
        if name in seen:
            raise ServiceError(422, "invalid_parameter", f"{name} is sent twice in the query; send it once")
        seen.add(name)
    if empty := [name for name, value in pairs if not value and not is_form]:
        message = f"{empty[0]} is empty in the query; give a value, or leave {empty[0]} out"
        raise ServiceError(422, "invalid_parameter", message)


async def _check_parameters(request: Request) -> None:
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    check(request, (parameter.alias for parameter in route.dependant.query_params))


DECLARED = Depends(_check_parameters)
"""Dependency of a route or router that accepts only the parameters that the route declares."""


def _time(value: Any) -> Any:
    """Convert a text or a number to a datetime. Return other values unchanged.

    Raises:
        ValueError: The value is not a time, or may be a date or a year. Or its offset has lost the plus sign, because a
            URL turns it into a blank.
    """
    if type(value) not in (int, float, str):
        return value
    text = str(value).strip()
    if _YEAR.fullmatch(text):
        raise ValueError(f"{short(value)}, a year or Unix seconds; write a date: {text}-01-01")
    if _LOST_PLUS.search(text):
        raise ValueError(f"{short(value)}, whose offset has no sign: URLs turn + into a blank; write %2B instead of +")
    return datetime.fromtimestamp(time_of(value).ms / 1000, UTC)


Moment = Annotated[datetime, BeforeValidator(_time)]
"""ISO 8601 (UTC if no offset) or Unix time, as `trueodds.inputs.times` reads it. Dates need dashes."""
Since = Annotated[
    Moment | None,
    Query(description="Only answers given at or after this time: ISO 8601 (UTC if no offset) or Unix time."),
]
"""Start time in the query of a route that reads stored answers."""
Served = Annotated[str | None, Query(description="Default: the served one.")]
"""Model or version in a query."""


def unix_ms(time: datetime) -> int:
    """Convert a time to Unix milliseconds. A time without an offset is in UTC."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def moment_of(ms: float) -> datetime:
    """Convert Unix milliseconds to a time in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def prefers_html(accept: str) -> bool:
    """Return whether an Accept header prefers HTML to JSON. `*/*` and a missing header do not."""
    return quality(accept, "text/html") > quality(accept, "application/json")


def quality(header: str, name: str) -> float:
    """Return the weight of a name in a header, 0 to 1; 0 if the header does not list it."""
    weight = 0.0
    for part in header.lower().split(","):
        listed, *parameters = (word.strip() for word in part.split(";"))
        if listed == name:
            weight = max([_weight(p) for p in parameters if p.startswith("q=")], default=1.0)
    return weight


def _weight(parameter: str) -> float:
    try:
        return float(parameter[2:])
    except ValueError:
        return 0.0
