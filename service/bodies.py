"""From a request to what it asks for; work that takes long is done off the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from pipeline.bundle import ImageInput
from pipeline.pictures import Pixels
from service import decode
from service.errors import ServiceError
from service.settings import Settings

LARGE = 64 * 1024
"""Bytes of JSON from which a thread is worth its hop of some 60 us."""
JSON, MULTIPART = "application/json", "multipart/form-data"


async def json_of(request: Request) -> Any:
    """The JSON value of the body.

    Raises:
        ServiceError: 400 for what is not JSON, 413 too large, 415 another content type.
    """
    if _media_type(request) != JSON:
        raise _unsupported(request, JSON)
    body = await request.body()
    return decode.parse_json(body) if len(body) < LARGE else await asyncio.to_thread(decode.parse_json, body)


async def images_of(request: Request, spec: ImageInput, settings: Settings) -> Pixels:
    """The images of a /predict body, as N x H x W x C; errors as `json_of` and `decode.images`."""
    if _media_type(request) == MULTIPART:
        files = await _files_of(request, settings.max_instances)
        return await asyncio.to_thread(decode.encoded_images, files, spec, settings.max_pixels)
    if _media_type(request) != JSON:
        raise _unsupported(request, f"{JSON} and {MULTIPART}")
    found = decode.instances(await json_of(request), settings.max_instances)
    small = len(found) * spec.height * spec.width * spec.channels < LARGE
    if small and all(type(instance) is list for instance in found):
        return decode.images(found, spec, settings.max_pixels)
    # Encoded images too, however small: a few bytes of PNG can hold millions of pixels.
    return await asyncio.to_thread(decode.images, found, spec, settings.max_pixels)


async def _files_of(request: Request, limit: int) -> list[tuple[str, bytes]]:
    try:
        async with request.form(max_files=limit, max_fields=limit) as form:
            files: list[tuple[str, bytes]] = []
            for field, value in form.multi_items():
                if field != "files" or not isinstance(value, UploadFile):
                    message = f"the form has a field {field!r}; expected only files, in fields named 'files'"
                    raise ServiceError(422, "invalid_form", message)
                files.append((f"files[{len(files)}]", await value.read()))
    except HTTPException as error:  # Starlette's words for a broken form, or for too many parts
        many = str(error.detail).startswith("Too many")
        code, status = ("too_many_instances", 413) if many else ("invalid_form", 400)
        cure = f"the limit is {limit:,} images in one call" if many else "send files in fields named 'files'"
        raise ServiceError(status, code, f"{error.detail}; {cure}") from None
    decode.check_count(len(files), limit)
    return files


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unsupported(request: Request, allowed: str) -> ServiceError:
    given = request.headers.get("content-type") or "missing"
    message = f"the content type is {given[:100]}; {request.url.path} takes {allowed}. Set the Content-Type header"
    return ServiceError(415, "unsupported_media_type", message)
