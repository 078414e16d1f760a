"""A service that only reads: what it has no use for is left out, and what would write is refused."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import ServiceError
from service.http import error_answers

METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Reading:
    """ASGI middleware that answers 403 to every method but those that only read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in METHODS:
            await self._app(scope, receive, send)
            return
        message = (
            f"this service only reads (--read-only) and takes no {scope['method']} {error_answers.path_of(scope)};"
            " ask a service that answers and stores"
        )
        await error_answers.response(scope, ServiceError(403, "read_only", message))(scope, receive, send)


def part(router: APIRouter) -> APIRouter:
    """The routes of a router that only read: the others are neither there nor documented."""
    return APIRouter(routes=[r for r in router.routes if isinstance(r, Route) and (r.methods or set()) <= METHODS])
