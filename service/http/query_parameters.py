"""Parameters of a query: each one known and sent once, or the call is refused."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from service.errors import ServiceError
from trueodds.errors import nearest
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
