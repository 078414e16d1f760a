"""GET /admin/labelled.npz: the labelled answers of a version, as a file for recalibration.

The file is built on disk, block by block, so its size does not matter.
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
from service.http import documentation
from service.http.parameters import Served, Since, unix_ms
from service.labels import label_matrix
from service.runtime import runtime_of
from service.store.rows import LabelledLogits
from trueodds.texts import short

CHUNK = 256 * 1024
SPLIT = "val"
"""Split of logits.npz that calibrators are fitted on."""

router = APIRouter()


@router.get(
    "/admin/labelled.npz",
    summary="Export labelled logits for recalibration",
    response_class=Response,
    **documentation.route(
        "admin",
        content={"application/zip": {"schema": documentation.BINARY}},
        tag="operation",
        _404="unknown model or version, or no labelled answers",
        _422="unknown or repeated parameter, value out of range, a version without logits, or too many labels",
        _503="no model has been served yet, or the store is not readable",
    ),
)
async def labelled_logits(
    request: Request,
    model: Served = None,
    version: Served = None,
    since: Since = None,
    last: Annotated[
        int | None,
        Query(ge=1, le=2**31 - 1, description="Only the answers whose labels arrived last: at most this many."),
    ] = None,
    shadow: Annotated[
        str | None,
        Query(description="Only answers that this version has scored as the model's shadow. Its logits are included."),
    ] = None,
) -> Response:
    """Return all labelled answers of a version in the format of logits.npz, in the order in which the labels arrived.

    The arrays are val_logits (float32, each row minus its maximum), val_labels, val_created_ms (Unix milliseconds),
    val_propensity (NaN where unknown), and val_tag, the place of each answer's tag in val_tag_names (-1 without a tag).
    With `shadow` there is also val_shadow_logits. Where the version's probabilities are rounded, there is also
    val_resolution: their step.

    For a model of independent labels, val_logits and val_labels have a column for each label. Rows are answers with any
    known label, in the order of their first. val_labels is -1 where a label is not known; its logit is then 0.
    val_arrived_ms has the time of each label (0 where it is not known), and val_label_names the names.
    """
    runtime = runtime_of(request)
    if (of := await label_matrix.questions(runtime, model, version)) is not None:
        if shadow is not None:
            message = f"shadow is {short(shadow)}; a model of independent labels has no shadow: leave it out"
            raise ServiceError(422, "invalid_parameter", message)
        file = await label_matrix.build(runtime, of, None if since is None else unix_ms(since), last)
        return _attachment(file, f"{of.model}-{of.version}")
    source = await runtime.version(model, version)
    if not source.has_logits:
        message = (
            f"{source.model}/{source.version} was observed with the confidence of the predicted class only;"
            " recalibration needs probabilities or logits of all classes: send them under another version"
        )
        raise ServiceError(422, "no_logits", message)
    start = None if since is None else unix_ms(since)
    await runtime.mature(source)
    try:
        blocks = runtime.store.read_labelled_logits(*source.key, start, last, shadow)
        file, rows = await _build(blocks, source.resolution.step if source.resolution else None)
    except OSError as error:
        message = f"the file cannot be built in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR to another folder"
        raise ServiceError(503, "no_space", message) from None
    if not rows:
        file.close()
        since_then = "" if since is None else f" since {since.isoformat()}"
        message = f"{source.model}/{source.version} has no labelled answers{since_then}; send labels to POST /feedback"
        if source.maturity is not None:
            message += (
                f". A label counts when the window of its answer closes, {source.maturity.window} after the answer"
            )
        raise ServiceError(404, "no_labels", message)
    return _attachment(file, f"{source.model}-{source.version}")


def _attachment(file: IO[bytes], name: str) -> Response:
    """Return the response that streams a finished file."""
    name = quote(f"{name}-labelled.npz", safe="")
    headers = {
        "content-length": str(file.seek(0, 2)),
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
    }
    return StreamingResponse(_stream(file), media_type="application/zip", headers=headers)


async def _build(blocks: AsyncIterator[LabelledLogits], step: float | None) -> tuple[IO[bytes], int]:
    """Build a temporary file in the format of logits.npz. Return it open, with its number of rows.

    Its arrays, in the order in which the labels arrived:

    * val_logits (float32, N x C) and val_labels (int64, N)
    * val_created_ms (int64, N): time of each answer
    * val_propensity (float64, N): the answer's chance of getting a label, NaN where unknown
    * val_tag (int64, N): place of the answer's tag in val_tag_names, -1 without a tag
    * val_tag_names (text): the different tags, in the order of their first label
    * val_shadow_logits (float32, N x C), if the blocks have them
    * val_resolution (float64, 1): step of rounded probabilities, if they are
    """
    with ExitStack() as spools:
        columns: list[IO[bytes]] = [spools.enter_context(tempfile.TemporaryFile()) for _ in range(6)]
        rows, classes, tags = 0, 0, dict[str, int]()
        async for block in blocks:
            rows, classes = rows + len(block.labels_N), block.logits_NC.shape[1]
            await asyncio.to_thread(_append, columns, block, tags)
        return await asyncio.to_thread(_zip, columns, rows, classes, step, list(tags)), rows


def _append(columns: list[IO[bytes]], block: LabelledLogits, tags: dict[str, int]) -> None:
    """Append a block to the columns. `tags` has the places of the tags so far; new ones are added."""
    tag_N = np.array([-1 if tag is None else tags.setdefault(tag, len(tags)) for tag in block.tags], np.int64)
    beside = () if block.shadow_logits_NC is None else (block.shadow_logits_NC,)
    arrays = (block.logits_NC, block.labels_N, block.created_ms_N, block.propensity_N, tag_N, *beside)
    for file, array in zip(columns, arrays, strict=False):
        file.write(np.ascontiguousarray(array).tobytes())


def _zip(columns: list[IO[bytes]], rows: int, classes: int, step: float | None, tags: list[str]) -> IO[bytes]:
    members: list[tuple[str, str, tuple[int, ...]]] = [
        ("logits", "<f4", (rows, classes)),
        ("labels", "<i8", (rows,)),
        ("created_ms", "<i8", (rows,)),
        ("propensity", "<f8", (rows,)),
        ("tag", "<i8", (rows,)),
    ]
    if columns[-1].tell():
        members.append(("shadow_logits", "<f4", (rows, classes)))
    file = tempfile.TemporaryFile()  # noqa: SIM115  closed after it is sent
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for column, (name, dtype, shape) in zip(columns, members, strict=False):
            column.seek(0)
            with archive.open(f"{SPLIT}_{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": dtype, "fortran_order": False, "shape": shape}
                npy.write_array_header_1_0(member, header)
                shutil.copyfileobj(column, member, CHUNK)
        with archive.open(f"{SPLIT}_tag_names.npy", "w", force_zip64=True) as member:
            npy.write_array(member, np.array(tags, dtype=np.str_), allow_pickle=False)
        if step is not None:
            with archive.open(f"{SPLIT}_resolution.npy", "w") as member:
                npy.write_array(member, np.array([step]))
    return file


async def _stream(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield the file in chunks from its beginning, then close it."""
    with file:
        file.seek(0)
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk
