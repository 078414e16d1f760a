"""Messages between a process and its confined readers: JSON and plain numbers, which are never executed."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

LENGTHS = struct.Struct("<QQ")
"""Number of bytes of a message's JSON, and number of bytes after it."""
DTYPES = ("<f8", "<f4", "<i8", "<i4", "|u1")
"""Types of the arrays in a piece."""


class ConfinedError(Exception):
    """Error if the file cannot be read.

    `code` is a word for programs: `died`, `time`, `memory`, `size` (a piece is too large), `failed` (any exception of
    the function), or the function's own. `start` is not the file's fault: no process can be started now.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Piece(NamedTuple):
    """Part of the result of a reader."""

    head: Any
    """Any JSON value."""
    arrays: list[npt.NDArray[Any]]
    """Writable arrays of the types DTYPES."""


def pack(head: dict[str, Any], arrays: Iterable[npt.NDArray[Any]] = ()) -> Iterable[bytes | memoryview]:
    """Yield the parts of a message in their order."""
    plain = [np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for array in arrays]
    text = json.dumps({**head, "arrays": [(array.dtype.str, array.shape) for array in plain]}).encode()
    yield LENGTHS.pack(len(text), sum(array.nbytes for array in plain)) + text
    yield from (array.data.cast("B") for array in plain if array.nbytes)


def unpack(text: bytes | bytearray, data: bytearray) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
    """Return the head and the arrays of a message.

    Raises:
        ValueError: The bytes are not a message, or do not match the described arrays.
    """
    arrays, start = list[npt.NDArray[Any]](), 0
    head = json.loads(text)
    if not isinstance(head, dict) or not isinstance(head.get("arrays"), list):
        raise ValueError(text[:100])
    for dtype, shape in head["arrays"]:
        if dtype not in DTYPES or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(dtype)
        count = math.prod(shape)
        arrays.append(np.frombuffer(data, dtype, count, start).reshape(shape))
        start += arrays[-1].nbytes
    if start != len(data):
        raise ValueError(f"{len(data) - start} bytes are left")
    return head, arrays
