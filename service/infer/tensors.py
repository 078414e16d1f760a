"""Tensors of the Open Inference Protocol (version 2), as JSON and in its binary extension."""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from service.errors import ServiceError
from trueodds.inputs import InputKind, Inputs, Limits
from trueodds.texts import short

_invalid = partial(ServiceError, 422, "invalid_tensor")

DTYPES: dict[str, np.dtype[Any]] = {
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""Numeric types of the protocol. With each of them, the values must be valid for the model's kind of input."""
BYTES = "BYTES"
"""Type of texts in the protocol."""
HEADER_LENGTH = "inference-header-content-length"
"""Header with the number of JSON bytes at the beginning of a body; binary tensors follow them."""


@dataclass(frozen=True)
class Output:
    """Tensor of an answer. Texts are a list."""

    name: str
    datatype: str
    shape: list[int]
    values: npt.NDArray[Any] | list[str]

    def data(self) -> list[Any]:
        """Return the values as a flat list, row by row."""
        return self.values if isinstance(self.values, list) else self.values.ravel().tolist()

    def binary(self) -> bytes:
        """Return little-endian numbers, or texts that each follow their length in bytes (uint32)."""
        if isinstance(self.values, list):
            encoded = [text.encode() for text in self.values]
            return b"".join(itertools.chain.from_iterable((struct.pack("<I", len(t)), t) for t in encoded))
        return self.values.astype(self.values.dtype.newbyteorder("<"), copy=False).tobytes()


def inputs_of(tensors: Any, binary: bytes, kind: InputKind, limits: Limits) -> Inputs:
    """Return the rows of an infer request.

    Its one input has the kind's name, a type in DTYPES and the shape N x the kind's shape.

    Raises:
        ServiceError: Another input, type or shape, or data that do not fill it.
        InputError: Values that the kind does not allow, or too many rows.
    """
    names = [i.get("name") if isinstance(i, dict) else None for i in tensors] if isinstance(tensors, list) else None
    if names != [kind.tensor] or not isinstance(tensors, list):
        shown = short(names) if names is not None else short(tensors)
        raise _invalid(f"inputs are {shown}; expected one input, named {kind.tensor!r}")
    (tensor,) = tensors
    if unknown := tensor.keys() - {"name", "shape", "datatype", "parameters", "data"}:
        raise _invalid(f"the input has an unknown key {short(min(unknown))}")
    datatype, shape = tensor.get("datatype"), tensor.get("shape")
    allowed = [BYTES] if kind.datatype == BYTES else list(DTYPES)
    if not isinstance(datatype, str) or datatype not in allowed:
        raise _invalid(f"the input's datatype is {short(datatype)}; allowed are {', '.join(allowed)}")
    wanted = list(kind.tensor_shape)
    whole = isinstance(shape, list) and all(type(size) is int for size in shape)
    column = not wanted and whole and shape[1:] == [1]  # the shape of Triton's models of texts
    if not whole or not (shape[1:] == wanted or column) or shape[0] < 0:
        raise _invalid(f"the input's shape is {short(shape)}; expected {['N', *wanted]}".replace("'N'", "N"))
    kind.check_count(shape[0], limits)
    parameters = tensor.get("parameters", {})
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is None:
        if binary:
            raise _invalid(f"{len(binary):,} bytes follow the JSON, but the input has no binary_data_size")
        return kind.from_values(_flat(tensor.get("data"), shape), shape[0], kind.tensor, limits)
    if "data" in tensor:
        raise _invalid("the input has data and binary_data_size; give one of them")
    if datatype == BYTES:
        if size != len(binary):
            raise _invalid(f"binary_data_size is {short(size)}, but {len(binary):,} bytes follow the JSON")
        return kind.from_values(_texts(binary, shape[0]), shape[0], kind.tensor, limits)
    expected = math.prod(shape) * DTYPES[datatype].itemsize
    if size != len(binary) or size != expected:
        problem = f"binary_data_size is {short(size)}, and {len(binary):,} bytes follow the JSON"
        raise _invalid(f"{problem}; {shape} of {datatype} needs {expected:,}")
    return kind.check_rows(np.frombuffer(binary, DTYPES[datatype]).reshape(shape), f"the input {kind.tensor!r}")


def _texts(binary: bytes, count: int) -> list[str]:
    """Decode texts that each follow their length in bytes (uint32)."""
    texts, place = list[str](), 0
    while place < len(binary):
        (length,) = struct.unpack_from("<I", binary, place) if place + 4 <= len(binary) else (len(binary),)
        end = place + 4 + length
        if end > len(binary):
            raise _invalid(f"text {len(texts)} extends beyond the {len(binary):,} bytes of the tensor")
        try:
            texts.append(binary[place + 4 : end].decode())
        except UnicodeDecodeError as error:
            byte = binary[place + 4 + error.start]
            problem = f"text {len(texts)} is not UTF-8: byte {error.start} is {byte:#04x}"
            raise _invalid(f"{problem}; send it as UTF-8") from None
        place = end
    if len(texts) != count:
        raise _invalid(f"the tensor holds {len(texts):,} texts, but its shape says {count:,}")
    return texts


def _flat(data: Any, shape: list[int]) -> list[Any]:
    """Return the values row by row, from data that are flat or nested like the shape."""
    if not isinstance(data, list):
        raise _invalid(f"the input's data is {short(data)}; expected a list of values")
    flat = data
    if data and isinstance(data[0], list):
        for axis, size in enumerate(shape):
            if len(flat) != math.prod(shape[: axis + 1]):
                raise _invalid(f"the input's data does not have the shape {shape}: axis {axis} is not {size}")
            if axis + 1 < len(shape):
                flat = _children(flat, shape[axis + 1], axis + 1)
    if len(flat) != math.prod(shape):
        raise _invalid(f"the input's data has {len(flat):,} values, but {shape} needs {math.prod(shape):,}")
    return flat


def _children(parents: list[Any], size: int, axis: int) -> list[Any]:
    for parent in parents:
        if not isinstance(parent, list) or len(parent) != size:
            content = f"{len(parent):,} values" if isinstance(parent, list) else short(parent)
            raise _invalid(f"the input's data does not match its shape: axis {axis} has {content}, not {size}")
    return list(itertools.chain.from_iterable(parents))
