"""Tensors of the Open Inference Protocol (version 2), as JSON and in its binary extension."""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from service.errors import ServiceError
from service.predict import decoding
from service.predict.arrays import whole_pixels
from trueodds.bundle.bundle import ImageInput
from trueodds.inputs.pictures import Pixels
from trueodds.texts import short

IMAGES = "images"
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
"""The protocol's types of numbers; whichever an input has, its values must be pixels."""
HEADER_LENGTH = "inference-header-content-length"
"""Bytes of JSON at the beginning of a body that goes on with binary tensors."""


@dataclass(frozen=True)
class Output:
    """One tensor of an answer; texts are a list."""

    name: str
    datatype: str
    shape: list[int]
    values: npt.NDArray[Any] | list[str]

    def data(self) -> list[Any]:
        """Flat, row by row."""
        return self.values if isinstance(self.values, list) else self.values.ravel().tolist()

    def binary(self) -> bytes:
        """Little-endian numbers; before each text its length in bytes, as uint32."""
        if isinstance(self.values, list):
            encoded = [text.encode() for text in self.values]
            return b"".join(itertools.chain.from_iterable((struct.pack("<I", len(t)), t) for t in encoded))
        return self.values.astype(self.values.dtype.newbyteorder("<"), copy=False).tobytes()


def images_of(inputs: Any, binary: bytes, spec: ImageInput, limit: int) -> Pixels:
    """The images of an infer request: its one input, `images`, of any type in DTYPES, N x H x W x C.

    Raises:
        ServiceError: another input, type or shape, data that do not fill it, or values that are no pixels.
    """
    names = [i.get("name") if isinstance(i, dict) else None for i in inputs] if isinstance(inputs, list) else None
    if names != [IMAGES] or not isinstance(inputs, list):
        shown = short(names) if names is not None else short(inputs)
        raise _invalid(f"inputs are {shown}; the model takes one, named {IMAGES!r}")
    (tensor,) = inputs
    if unknown := tensor.keys() - {"name", "shape", "datatype", "parameters", "data"}:
        raise _invalid(f"the input has an unknown key {short(min(unknown))}")
    datatype, shape = tensor.get("datatype"), tensor.get("shape")
    if not isinstance(datatype, str) or datatype not in DTYPES:
        raise _invalid(f"the input's datatype is {short(datatype)}; allowed are {', '.join(DTYPES)}")
    wanted = list(spec.shape)
    whole = isinstance(shape, list) and all(type(size) is int for size in shape)
    if not whole or shape[1:] != wanted or shape[0] < 0:
        raise _invalid(f"the input's shape is {short(shape)}; the model takes {['N', *wanted]}".replace("'N'", "N"))
    decoding.check_count(shape[0], limit)
    parameters = tensor.get("parameters", {})
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is None:
        if binary:
            raise _invalid(f"{len(binary):,} bytes follow the JSON; the input has no binary_data_size")
        return _from_json(tensor.get("data"), tuple(shape), datatype)
    if "data" in tensor:
        raise _invalid("the input has data and binary_data_size; give one of them")
    expected = math.prod(shape) * DTYPES[datatype].itemsize
    if size != len(binary) or size != expected:
        problem = f"binary_data_size is {short(size)}, {len(binary):,} bytes follow the JSON"
        raise _invalid(f"{problem}; {shape} of {datatype} needs {expected:,}")
    return whole_pixels(np.frombuffer(binary, DTYPES[datatype]).reshape(shape), f"the input {IMAGES!r}")


def _from_json(data: Any, shape: tuple[int, ...], datatype: str) -> Pixels:
    """Flat or nested, but nested as the shape says."""
    if not isinstance(data, list):
        raise _invalid(f"the input's data is {short(data)}; expected a list of numbers")
    flat = data
    if data and isinstance(data[0], list):
        for axis, size in enumerate(shape):
            if len(flat) != math.prod(shape[: axis + 1]):
                raise _invalid(f"the input's data does not have the shape {list(shape)}: axis {axis} is not {size}")
            if axis + 1 < len(shape):
                flat = _children(flat, shape[axis + 1], axis + 1)
    if len(flat) != math.prod(shape):
        raise _invalid(f"the input's data has {len(flat):,} values; {list(shape)} needs {math.prod(shape):,}")
    kinds = set(map(type, flat))
    if kinds == {int}:
        try:
            return np.frombuffer(bytes(flat), np.uint8).reshape(shape)
        except ValueError:  # numpy would round a value beyond 64 bits before it is named
            first = next(n for n, value in enumerate(flat) if not 0 <= value <= 255)
            place = [int(i) for i in np.unravel_index(first, shape)]
            message = f"the input {IMAGES!r} holds {flat[first]} at {place}; allowed are whole numbers 0..255"
            raise _invalid(message) from None
    if not kinds <= {int, float}:
        wrong = next(value for value in flat if type(value) not in (int, float))
        raise _invalid(f"the input's data holds {short(wrong)}; allowed are whole numbers 0..255")
    return whole_pixels(np.array(flat, np.float64).reshape(shape), f"the input {IMAGES!r}")


def _children(parents: list[Any], size: int, axis: int) -> list[Any]:
    for parent in parents:
        if not isinstance(parent, list) or len(parent) != size:
            content = f"{len(parent):,} values" if isinstance(parent, list) else short(parent)
            raise _invalid(f"the input's data is not as its shape: axis {axis} has {content}, not {size}")
    return list(itertools.chain.from_iterable(parents))


def _invalid(message: str) -> ServiceError:
    return ServiceError(422, "invalid_tensor", message)
