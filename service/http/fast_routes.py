"""Routes that serve every image, reached before the framework's own layers: documented and tested as all others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from re import Pattern

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http import error_answers

Endpoint = Callable[..., Awaitable[Response]]


class FastRoutes:
    """ASGI middleware: calls the function of a route with the request and the path's parameters as texts.

    Other paths go on to the application, which has the same routes: a third of the event loop's time per image went
    into layers that these routes have no use for.
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
