"""Routes that bypass the framework's layers, and the routes of a read-only service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from re import Pattern

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import ServiceError
from service.http import error_answers

Endpoint = Callable[..., Awaitable[Response]]
READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that only read."""
START = "http.response.start"
WHOLE = "trueodds.response"
"""Type of our own message with status, headers and body. `Envelope` sends it at once, or as ASGI's two messages."""


class FastRoutes:
    """ASGI middleware that calls a route's function directly with the request and the path parameters as texts.

    These routes serve every prediction. They are documented and tested like all others, and the application has them
    too; other paths go on to it. Without this, a third of the event loop's time per image went into layers without a
    use.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes: dict[str, list[tuple[Pattern[str], APIRoute, Endpoint]]] = {}
        self._plain: dict[tuple[str, str], tuple[APIRoute, Endpoint]] = {}
        """Routes without path parameters, by method and path."""
        for route in routes:
            assert isinstance(route, APIRoute)
            for method in route.methods or ():
                if "{" in route.path:
                    self._routes.setdefault(method, []).append((route.path_regex, route, route.endpoint))
                else:
                    self._plain[method, route.path] = route, route.endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = error_answers.path_of(scope) if scope.get("root_path") else scope["path"]
            if plain := self._plain.get((scope["method"], path)):
                scope["route"], endpoint = plain
                request = Request(scope, receive)
                try:
                    answer = await endpoint(request)
                except error_answers.ANSWERED as error:
                    answer = await error_answers.answer(request, error)
                if type(answer).__call__ is Response.__call__ and answer.background is None:
                    whole = {"type": WHOLE, "status": answer.status_code, "headers": answer.raw_headers}
                    await send({**whole, "body": answer.body})
                else:
                    await answer(scope, receive, send)
                return
            for pattern, route, endpoint in self._routes.get(scope["method"], ()):
                if match := pattern.match(path):
                    scope["route"] = route
                    answer = await _answer(endpoint, Request(scope, receive), match.groupdict())
                    await answer(scope, receive, send)
                    return
        await self._app(scope, receive, send)


async def _answer(endpoint: Endpoint, request: Request, parameters: dict[str, str]) -> Response:
    """Return the endpoint's answer, or the answer to its error."""
    try:
        return await endpoint(request, **parameters)
    except error_answers.ANSWERED as error:
        return await error_answers.answer(request, error)


def root_of(request: Request) -> str:
    """Return the path below which a proxy serves this service (`--root-path`); "" if it has none."""
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


def redirect(request: Request, address: str, status: int = 303) -> Response:
    """Return a redirect to an address of this service, below the path of a proxy."""
    return RedirectResponse(f"{root_of(request)}{address}", status, {"cache-control": "no-store"})


def direct(app: FastAPI) -> ASGIApp:
    """Return an application's layers without those around them, which only set `scope["app"]` in the service."""
    layers = app.middleware_stack
    assert layers is not None

    def enter(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return app(scope, receive, send)
        scope["app"] = app
        return layers(scope, receive, send)

    return enter


class ReadOnly:
    """ASGI middleware that answers 403 to every method that may write."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in READING:
            await self._app(scope, receive, send)
            return
        message = (
            f"this service is read-only (--read-only) and does not accept {scope['method']}"
            f" {error_answers.path_of(scope)}; use a service that is not read-only"
        )
        await error_answers.response(scope, ServiceError(403, "read_only", message))(scope, receive, send)


def reading_routes(router: APIRouter) -> APIRouter:
    """Return the read-only routes of a router. The others do not exist and are not documented."""
    return APIRouter(routes=[r for r in router.routes if isinstance(r, Route) and (r.methods or set()) <= READING])
