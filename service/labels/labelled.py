"""GET /admin/labelled.npz: labelled answers as a file that recalibration reads, whatever their number.

It is built on disk, block by block.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import zipfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import IO, Annotated
from urllib.parse import quote

import numpy as np
from fastapi import APIRouter, Query, Request
from numpy.lib import format as npy
from starlette.responses import Response, StreamingResponse

from service.errors import ServiceError
from service.http import error_answers, keys
from service.http.parameters import Served, Since, unix_ms
from service.runtime import runtime_of
from service.store.rows import LabelledLogits

CHUNK = 256 * 1024
SPLIT = "val"
"""The split of logits.npz that calibrators are fitted on."""

router = APIRouter()


@router.get(
    "/admin/labelled.npz",
    tags=["operation"],
    summary="Labelled logits, for recalibration",
    dependencies=[keys.requires("admin")],
    response_class=Response,
    responses={
        200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}},
        **error_answers.documented(
            _404="unknown model or version, or no labelled answers",
            _422="a parameter that is unknown, given twice or out of range, or a version without logits",
            _503="no model has been served yet, or the store cannot be read",
            **keys.ERRORS,
        ),
    },
)
async def labelled_logits(
    request: Request,
    model: Served = None,
    version: Served = None,
    since: Since = None,
    last: Annotated[
        int | None, Query(ge=1, le=2**31 - 1, description="only those whose labels arrived last, this many at most")
    ] = None,
    shadow: Annotated[
        str | None, Query(description="only answers that this version, the model's shadow, has scored: and its logits")
    ] = None,
) -> Response:
    """All labelled answers of a version in the format of logits.npz: val_logits (float32, each row minus its maximum),
    val_labels, val_created_ms (Unix milliseconds) and val_propensity (NaN where it is not known), in the order in which
    the labels arrived; with `shadow`, also val_shadow_logits.
    """
    runtime = runtime_of(request)
    source = await runtime.version(model, version)
    if not source.has_logits:
        message = (
            f"of {source.model}/{source.version} only the confidences of what was predicted were observed;"
            " recalibrating takes probabilities or logits of all classes: send those, under another version"
        )
        raise ServiceError(422, "no_logits", message)
    start = None if since is None else unix_ms(since)
    await runtime.mature(source)
    try:
        file, rows = await _build(runtime.store.read_labelled_logits(*source.key, start, last, shadow))
    except OSError as error:
        message = f"the file cannot be built in {tempfile.gettempdir()}: {error.strerror}; TMPDIR names another folder"
        raise ServiceError(503, "no_space", message) from None
    if not rows:
        file.close()
        since_then = "" if since is None else f" since {since.isoformat()}"
        message = f"{source.model}/{source.version} has no labelled answers{since_then}; send labels to POST /feedback"
        if source.maturity is not None:
            message += (
                f". Each counts when the window of its answer closes, {source.maturity.window} after it was given"
            )
        raise ServiceError(404, "no_labels", message)
    name = quote(f"{source.model}-{source.version}-labelled.npz", safe="")
    headers = {
        "content-length": str(file.seek(0, 2)),
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
    }
    return StreamingResponse(_sent(file), media_type="application/zip", headers=headers)


async def _build(blocks: AsyncIterator[LabelledLogits]) -> tuple[IO[bytes], int]:
    """An open temporary file in the format of logits.npz, and its rows.

    Arrays val_logits (float32, N x C), val_labels (int64, N), in the order in which the labels arrived, and
    val_created_ms (int64, N), when each answer was given; val_propensity (float64, N), its chance to get a label, NaN
    where that is not known; val_shadow_logits (float32, N x C) if the blocks have them.
    """
    with ExitStack() as spools:
        columns: list[IO[bytes]] = [spools.enter_context(tempfile.TemporaryFile()) for _ in range(5)]
        rows, classes = 0, 0
        async for block in blocks:
            rows, classes = rows + len(block.labels_N), block.logits_NC.shape[1]
            await asyncio.to_thread(_append, columns, block)
        return await asyncio.to_thread(_zip, columns, rows, classes), rows


def _append(columns: list[IO[bytes]], block: LabelledLogits) -> None:
    beside = () if block.shadow_logits_NC is None else (block.shadow_logits_NC,)
    arrays = (block.logits_NC, block.labels_N, block.created_ms_N, block.propensity_N, *beside)
    for file, array in zip(columns, arrays, strict=False):
        file.write(np.ascontiguousarray(array).tobytes())


def _zip(columns: list[IO[bytes]], rows: int, classes: int) -> IO[bytes]:
    members: list[tuple[str, str, tuple[int, ...]]] = [
        ("logits", "<f4", (rows, classes)),
        ("labels", "<i8", (rows,)),
        ("created_ms", "<i8", (rows,)),
        ("propensity", "<f8", (rows,)),
    ]
    if columns[-1].tell():
        members.append(("shadow_logits", "<f4", (rows, classes)))
    file = tempfile.TemporaryFile()  # noqa: SIM115  closed once it is sent
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for column, (name, dtype, shape) in zip(columns, members, strict=False):
            column.seek(0)
            with archive.open(f"{SPLIT}_{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": dtype, "fortran_order": False, "shape": shape}
                npy.write_array_header_1_0(member, header)
                shutil.copyfileobj(column, member, CHUNK)
    return file


async def _sent(file: IO[bytes]) -> AsyncIterator[bytes]:
    """The file from its beginning; closes it."""
    with file:
        file.seek(0)
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk
