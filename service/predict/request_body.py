"""From a request to what it asks for; work that takes long is done off the event loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from service.errors import ServiceError, short
from service.models.requests import Asked
from service.predict import arrays, decoding
from service.predict.options import Options, for_all, lists_of
from service.settings import Settings
from trueodds.bundle import ImageInput
from trueodds.inputs.pictures import Pixels

LARGE = 64 * 1024
"""Bytes of JSON from which a thread is worth its hop of some 60 us."""
HUGE = 1024 * 1024
"""Bytes of JSON from which bodies are read one at a time, and without the garbage collector: it walks millions of
fresh lists again and again (16 MB of pixels: 3.0 s with it, .4 s without)."""
SMALL, SMALL_PIXELS = 8 * 1024, 1 << 16
"""Characters of base64, and pixels, that are decoded where they are: .2 ms at most, and a thread's hop costs .1 ms."""
DECODING = 2
"""Calls whose encoded images are decoded at once: each may hold max_pixels of memory."""
JSON, MULTIPART, NPY, RAW = "application/json", "multipart/form-data", "application/x-npy", "application/octet-stream"

T = TypeVar("T")
_parser = ThreadPoolExecutor(1, "parse-huge")
_decoder = ThreadPoolExecutor(DECODING, "decode")


async def json_of(request: Request, settings: Settings, build: Callable[[Any], T]) -> T:
    """What `build` makes of the JSON value of the body; a large body's in a thread.

    Raises:
        ServiceError: 400 for what is not JSON, 413 too large, 415 another content type.
    """
    if media_type(request) != JSON:
        raise _unsupported(request, JSON)
    return await built(await body_of(request), settings, build)


async def body_of(request: Request) -> bytes:
    """The whole body, as `request.body()` reads it, without that one's layers: 6 us in place of 11, at every image.

    Raises:
        ClientDisconnect: the caller hung up before it was whole.
    """
    parts: list[bytes] = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def built(body: bytes, settings: Settings, build: Callable[[Any], T]) -> T:
    """What `build` makes of the JSON value of `body`; errors as `json_of`."""
    if len(body) < LARGE:
        return build(decoding.parse_json(body, settings.max_json_values))
    if len(body) < HUGE:
        return await asyncio.to_thread(lambda: build(decoding.parse_json(body, settings.max_json_values)))
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_parser, _build_huge, body, settings.max_json_values, build)


def _build_huge(body: bytes, max_values: int, build: Callable[[Any], T]) -> T:
    gc.disable()
    try:
        return build(decoding.parse_json(body, max_values))  # the tree has gone when collecting goes on
    finally:
        gc.enable()


async def asked_of(request: Request, options: Options, spec: ImageInput, settings: Settings) -> Asked:
    """The images of a /predict body and what is said of them.

    Raises:
        ServiceError: as `json_of`, `decode.images`, `arrays.npy` and `options.lists_of`.
    """
    kind, limit = media_type(request), settings.max_instances
    lists: dict[str, list[Any]] = {}
    if kind == JSON:
        images_NHWC, lists = await _json_images(request, spec, settings)
    elif kind == MULTIPART:
        files = await _files_of(request, limit)
        images_NHWC = await _decoded(decoding.encoded_images, files, spec, settings.max_pixels)
    elif kind in (NPY, RAW):
        read = arrays.npy if kind == NPY else arrays.raw
        body = await body_of(request)
        images_NHWC = read(body, spec, limit) if len(body) < HUGE else await asyncio.to_thread(read, body, spec, limit)
    else:
        raise _unsupported(request, f"{JSON}, {MULTIPART}, {NPY} and {RAW}")
    return Asked(images_NHWC, request.state.request_id, **for_all(request, options, lists, len(images_NHWC)))


async def _json_images(request: Request, spec: ImageInput, settings: Settings) -> tuple[Pixels, dict[str, list[Any]]]:
    """Images and lists; encoded images are decoded in a thread, unless they are small, by their headers too."""

    def build(tree: Any) -> tuple[Pixels | list[Any], dict[str, list[Any]]]:
        found = decoding.instances(tree, settings.max_instances)
        lists = lists_of(tree, len(found))
        encoded = [i["b64"] for i in found if type(i) is dict and "b64" in i]
        if not encoded:
            return decoding.images(found, spec, settings.max_pixels), lists
        if sum(len(text) for text in encoded if type(text) is str) > SMALL:
            return found, lists
        try:
            return decoding.images(found, spec, min(settings.max_pixels, SMALL_PIXELS)), lists
        except ServiceError as error:
            if error.code != "image_too_large":
                raise
            return found, lists

    images, lists = await built(await body_of(request), settings, build)
    if isinstance(images, list):
        images = await _decoded(decoding.images, images, spec, settings.max_pixels)
    return images, lists


async def _decoded(decode_all: Callable[..., Pixels], *arguments: Any) -> Pixels:
    return await asyncio.get_running_loop().run_in_executor(_decoder, decode_all, *arguments)


async def _files_of(request: Request, limit: int) -> list[tuple[str, bytes]]:
    try:
        async with request.form(max_files=limit, max_fields=limit) as form:
            files: list[tuple[str, bytes]] = []
            for field, value in form.multi_items():
                if field != "files" or not isinstance(value, UploadFile):
                    message = f"the form has a field {short(field)}; expected only files, in fields named 'files'"
                    raise ServiceError(422, "invalid_form", message)
                files.append((f"files[{len(files)}]", await value.read()))
    except HTTPException as error:  # Starlette's words for a broken form, or for too many parts
        many = str(error.detail).startswith("Too many")
        code, status = ("too_many_instances", 413) if many else ("invalid_form", 400)
        cure = f"the limit is {limit:,} images in one call" if many else "send files in fields named 'files'"
        raise ServiceError(status, code, f"{str(error.detail).rstrip('.')}; {cure}") from None
    decoding.check_count(len(files), limit)
    return files


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unsupported(request: Request, allowed: str) -> ServiceError:
    given = request.headers.get("content-type") or "missing"
    message = f"the content type is {given[:100]}; {request.url.path} takes {allowed}. Set the Content-Type header"
    return ServiceError(415, "unsupported_media_type", message)
