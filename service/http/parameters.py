"""Statements of a caller beside the body: query parameters, the times in them, and the headers of what it accepts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.routing import APIRoute
from pydantic import BeforeValidator

from service.errors import ServiceError
from trueodds.errors import nearest
from trueodds.inputs.table import is_number
from trueodds.inputs.times import time_of
from trueodds.texts import short


def check(request: Request, known: Iterable[str]) -> None:
    """Refuse a query with a parameter that the route does not take, or with one that is sent twice.

    A mistyped filter that is ignored would be answered with numbers of something else.

    Raises:
        ServiceError: 422 naming the parameter, the nearest that there is, and all that there are.
    """
    if not request.scope.get("query_string"):
        return
    allowed, seen = list(known), set[str]()
    listed = f"Known are {', '.join(allowed)}" if allowed else "It takes none"
    for name, _ in request.query_params.multi_items():
        if name not in allowed:
            message = f"{request.url.path} has no parameter {short(name)}. {listed}.{nearest(name[:100], allowed)}"
            raise ServiceError(422, "invalid_parameter", message)
        if name in seen:
            raise ServiceError(422, "invalid_parameter", f"{name} stands twice in the query; give it once")
        seen.add(name)


async def _declared(request: Request) -> None:
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    check(request, (parameter.alias for parameter in route.dependant.query_params))


DECLARED = Depends(_declared)
"""A dependency of routes, or of a whole router: only the parameters that a route declares are taken."""


def _number(value: Any) -> Any:
    """Return the datetime that a number or its text says; anything else as it is.

    Raises:
        ValueError: a number that is no time, or may be a date.
    """
    if type(value) not in (int, float) and not (isinstance(value, str) and is_number(value)):
        return value
    return datetime.fromtimestamp(time_of(value).ms / 1000, UTC)


Moment = Annotated[datetime, BeforeValidator(_number)]
"""ISO 8601 (UTC without an offset) or Unix time, as `trueodds.inputs.times` reads it; no date without dashes."""
Since = Annotated[
    Moment | None, Query(description="answers given since then: ISO 8601 (UTC without an offset) or Unix time")
]
"""Parameter of a route that reads stored answers."""
Served = Annotated[str | None, Query(description="default: the one that is served")]
"""Parameter that names a model, or a version."""


def unix_ms(time: datetime) -> int:
    """Return milliseconds since 1970; a time without an offset is in UTC."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def moment_of(ms: float) -> datetime:
    """Return Unix milliseconds as a time in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def prefers_html(accept: str) -> bool:
    """Tell whether an Accept header asks for HTML before JSON; `*/*` and a missing header do not."""
    return quality(accept, "text/html") > quality(accept, "application/json")


def quality(header: str, name: str) -> float:
    """Return the weight that a header gives a name, 0..1; 0 where the header does not list it."""
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
