"""From the body of a /predict request to images; work that takes long is done off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from service.errors import ServiceError
from service.http import json_body
from service.http.json_body import JSON
from service.models.calls import PredictionCall
from service.predict import arrays, decoding
from service.predict.options import Options, for_all, lists_of
from service.settings import Settings
from trueodds.bundle.bundle import ImageInput
from trueodds.inputs.pictures import Pixels
from trueodds.texts import short

SMALL, SMALL_PIXELS = 8 * 1024, 1 << 16
"""Characters of base64, and pixels, that are decoded where they are: .2 ms at most, and a thread's hop costs .1 ms."""
DECODING = 2
"""Calls whose encoded images are decoded at once: each may hold max_pixels of memory."""
MULTIPART, NPY, RAW = "multipart/form-data", "application/x-npy", "application/octet-stream"

_decoder = ThreadPoolExecutor(DECODING, "decode")


async def read_call(request: Request, options: Options, spec: ImageInput, settings: Settings) -> PredictionCall:
    """The images of a /predict body and what is said of them.

    Raises:
        ServiceError: as `json_body.read_json`, `decoding.images`, `arrays.npy` and `options.lists_of`.
    """
    kind, limit = json_body.media_type(request), settings.max_instances
    lists: dict[str, list[Any]] = {}
    if kind == JSON:
        images_NHWC, lists = await _json_images(request, spec, settings)
    elif kind == MULTIPART:
        files = await _files_of(request, limit)
        images_NHWC = await _decoded(decoding.encoded_images, files, spec, settings.max_pixels)
    elif kind in (NPY, RAW):
        read = arrays.npy if kind == NPY else arrays.raw
        body = await json_body.read(request)
        huge = len(body) >= json_body.HUGE
        images_NHWC = await asyncio.to_thread(read, body, spec, limit) if huge else read(body, spec, limit)
    else:
        raise json_body.unsupported(request, f"{JSON}, {MULTIPART}, {NPY} and {RAW}")
    return PredictionCall(images_NHWC, request.state.request_id, **for_all(request, options, lists, len(images_NHWC)))


async def _json_images(request: Request, spec: ImageInput, settings: Settings) -> tuple[Pixels, dict[str, list[Any]]]:
    """Images and lists; encoded images are decoded in a thread, unless they are small, by their headers too."""

    def build(tree: Any) -> tuple[Pixels | list[Any], dict[str, list[Any]]]:
        instances = decoding.instances(tree, settings.max_instances)
        lists = lists_of(tree, len(instances))
        encoded = [i["b64"] for i in instances if type(i) is dict and "b64" in i]
        if not encoded:
            return decoding.images(instances, spec, settings.max_pixels), lists
        if sum(len(text) for text in encoded if type(text) is str) > SMALL:
            return instances, lists
        try:
            return decoding.images(instances, spec, min(settings.max_pixels, SMALL_PIXELS)), lists
        except ServiceError as error:
            if error.code != "image_too_large":
                raise
            return instances, lists

    images, lists = await json_body.convert_json(await json_body.read(request), settings.max_json_values, build)
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
