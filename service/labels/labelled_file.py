"""Labelled answers as a file that recalibration reads, whatever their number: built on disk, block by block."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import zipfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import IO

import numpy as np
from numpy.lib import format as npy

from service.store.rows import LabelledLogits

CHUNK = 256 * 1024
SPLIT = "val"
"""The split of logits.npz that calibrators are fitted on."""


async def build(blocks: AsyncIterator[LabelledLogits]) -> tuple[IO[bytes], int]:
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


async def sent(file: IO[bytes]) -> AsyncIterator[bytes]:
    """The file from its beginning; closes it."""
    with file:
        file.seek(0)
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk
