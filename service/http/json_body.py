"""Reading request bodies and parsing JSON. Slow work runs off the event loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import numpy as np
import orjson
from fastapi import Request
from starlette.requests import ClientDisconnect

from service.errors import ServiceError
from service.http.body_limits import BODY, LimitedBody
from service.http.json_names import repeated_name

JSON = "application/json"
LARGE = 64 * 1024
"""Size in bytes of JSON from which a thread is worth its overhead of about 60 us."""
HUGE = 1024 * 1024
"""Size in bytes of JSON from which bodies are parsed one at a time and without the garbage collector.

The collector would walk millions of fresh lists again and again (16 MB of pixels: 3.0 s with it, .4 s without).
"""
TEXTS = 8
"""Number of JSON values per allowed text: texts are the slowest to parse, and few are needed."""

T = TypeVar("T")
Runner: TypeAlias = Callable[[Executor | None, int, Callable[[], T]], Awaitable[T]]
_parser = ThreadPoolExecutor(1, "parse-huge")


def media_type(request: Request) -> str:
    """Return the Content-Type header without its parameters, in lower case; "" if it is missing."""
    for name, value in request.scope["headers"]:
        if name == b"content-type":
            sent: str = value.decode("latin-1")
            return sent if sent == JSON else sent.partition(";")[0].strip().lower()
    return ""


def unsupported_type(request: Request, allowed_types: str) -> ServiceError:
    """Return the error for an unsupported media type. `allowed_types` lists the media types of the route."""
    sent = request.headers.get("content-type") or "missing"
    message = (
        f"the content type is {sent[:100]}; {request.url.path} accepts {allowed_types}. Set the Content-Type header"
    )
    return ServiceError(415, "unsupported_media_type", message)


async def read(request: Request) -> bytes:
    """Read the whole body, like `request.body()` but without its layers: 6 us instead of 11 per image.

    Raises:
        ClientDisconnect: The client disconnected before the body was complete.
    """
    body: LimitedBody | None = request.scope["state"].get(BODY)
    if body is not None and (arrived := body.take()) is not None:
        return arrived
    parts: list[bytes] = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def read_json(request: Request, max_values: int, convert: Callable[[Any], T]) -> T:
    """Read and convert the JSON value of the body; a large body in a thread.

    Raises:
        ServiceError: See `parse` and `convert`; 415 for another content type.
    """
    if media_type(request) != JSON:
        raise unsupported_type(request, JSON)
    return await convert_json(await read(request), max_values, convert)


async def _in_thread(executor: Executor | None, size: int, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(executor, work)


async def convert_json(body: bytes, max_values: int, convert: Callable[[Any], T], runner: Runner[T] = _in_thread) -> T:
    """Convert the JSON value of `body`, in a thread if the body is large. For errors see `parse` and `convert`.

    Args:
        body: The body.
        max_values: See `parse`.
        convert: Converts the JSON value.
        runner: Runs the work in a thread: `runner(executor, bytes, work)`. The executor None is that of the event loop.
    """
    if len(body) < LARGE:
        return convert(parse(body, max_values))
    if len(body) < HUGE:
        return await runner(None, len(body), lambda: convert(parse(body, max_values)))
    return await runner(_parser, len(body), lambda: _convert_huge(body, max_values, convert))


def _convert_huge(body: bytes, max_values: int, convert: Callable[[Any], T]) -> T:
    gc.disable()
    try:
        return convert(parse(body, max_values))  # the tree is freed before collecting resumes
    finally:
        gc.enable()


def parse(body: bytes, max_values: int) -> Any:
    """Parse JSON with at most `max_values` values. Names must be unique within each object.

    The values are counted first: 16 MB can hold ten million lists, and parsing those blocks everything for a second.

    Raises:
        ServiceError: 400 with the position of the first error; 413 for too many values; 422 for a repeated name.
    """
    if len(body) > max_values // TEXTS:
        bytes_N = np.frombuffer(body, np.uint8)
        values = sum(int(np.count_nonzero(bytes_N == ord(mark))) for mark in "[{,:")
        texts = int(np.count_nonzero(bytes_N == ord('"'))) // 2
        if values > max_values or texts > max_values // TEXTS:
            counts = f"{values:,} values and {texts:,} texts" if texts > max_values // TEXTS else f"{values:,} values"
            message = f"the JSON has about {counts}; the limits are {max_values:,} and {max_values // TEXTS:,}"
            cure = "send .npy, base64 or raw bytes, or less in one call"
            raise ServiceError(413, "too_many_values", f"{message}. {cure[0].upper()}{cure[1:]}")
    try:
        tree = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ServiceError(
            400, "invalid_json", f"the body is not JSON ({error}); NaN and Infinity are not JSON"
        ) from None
    if problem := repeated_name(body, tree):
        raise ServiceError(422, "repeated_name", problem)
    return tree
