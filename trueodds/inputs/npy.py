"""Bodies that are .npy files: an array of plain numbers, never executed or unpickled."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.inputs.errors import InputError, UnreadableError
from trueodds.texts import plural, short

MAX_HEADER = 1024
"""Largest header of a .npy file in bytes. A plain array's header has 128."""
READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read(
    body: bytes, rows_shape: Callable[[tuple[int, ...]], tuple[int, ...]], *, best: str, of_bools: str
) -> npt.NDArray[Any]:
    """Read the array of a .npy file in the shape that `rows_shape` derives from its own.

    `rows_shape` may refuse before any value is read. `best` is the type to recommend if the array holds no numbers, and
    `of_bools` states what to do if it holds booleans.

    Raises:
        UnreadableError: The body is not a complete .npy file.
        InputError: The array holds something other than numbers.
    """
    file = io.BytesIO(body)
    try:
        read_header = READ_HEADER[np.lib.format.read_magic(file)]
        shape, by_columns, dtype = read_header(file, max_header_size=MAX_HEADER)
    except Exception as error:  # numpy parses the header as a Python literal, and fails in the ways of the parser
        message = f"the body is not a .npy file ({type(error).__name__}: {str(error)[:100]}); write it with numpy.save"
        raise UnreadableError("invalid_npy", message) from None
    if dtype.hasobject or dtype.kind not in "uif":
        cure = f". {of_bools}" if dtype.kind == "b" else ""
        message = f"the array is {short(str(dtype))}; allowed are numbers, best {best}{cure}"
        raise InputError("wrong_type", message)
    if not all(type(size) is int and size >= 0 for size in shape):  # True is an int too, and equal to 1
        message = f"the .npy header says the shape {short(shape)}; allowed are whole numbers from 0 on"
        raise UnreadableError("invalid_npy", f"{message}. Write the file with numpy.save")
    wanted = rows_shape(shape)
    data, size = body[file.tell() :], math.prod(shape) * dtype.itemsize
    if len(data) != size:
        message = f"the .npy header says {shape} {dtype}, {plural(size, 'byte')}; {len(data):,} came after it"
        raise UnreadableError("invalid_npy", message)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if by_columns else "C").reshape(wanted)
