"""Routes that are taken before the framework's layers, and those that a service which only reads has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from re import Pattern

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import ServiceError
from service.http import error_answers

Endpoint = Callable[..., Awaitable[Response]]
READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that only read."""


class FastRoutes:
    """ASGI middleware: calls the function of a route with the request and the path's parameters as texts.

    They serve every image, and are documented and tested as all others. Other paths go on to the application, which
    has the same routes: a third of the event loop's time per image went into layers that they have no use for.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes: dict[str, list[tuple[Pattern[str], APIRoute, Endpoint]]] = {}
        for route in routes:
            assert isinstance(route, APIRoute)
            for method in route.methods or ():
                self._routes.setdefault(method, []).append((route.path_regex, route, route.endpoint))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for pattern, route, endpoint in self._routes.get(scope["method"], ()):
                if match := pattern.match(scope["path"]):
                    scope["route"] = route
                    answer = await _answer(endpoint, Request(scope, receive), match.groupdict())
                    await answer(scope, receive, send)
                    return
        await self._app(scope, receive, send)


async def _answer(endpoint: Endpoint, request: Request, parameters: dict[str, str]) -> Response:
    """The endpoint's answer, or that to its error."""
    try:
        return await endpoint(request, **parameters)
    except error_answers.ANSWERED as error:
        return await error_answers.answer(request, error)


class Reading:
    """ASGI middleware that answers 403 to every method but those that only read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in READING:
            await self._app(scope, receive, send)
            return
        message = (
            f"this service only reads (--read-only) and takes no {scope['method']} {error_answers.path_of(scope)};"
            " ask a service that answers and stores"
        )
        await error_answers.response(scope, ServiceError(403, "read_only", message))(scope, receive, send)


def reading_routes(router: APIRouter) -> APIRouter:
    """Return the routes of a router that only read: the others are neither there nor documented."""
    return APIRouter(routes=[r for r in router.routes if isinstance(r, Route) and (r.methods or set()) <= READING])
