"""Binary bodies to images: .npy files, raw bytes, and the numbers of any tensor that must be pixels."""

from __future__ import annotations

import io
import math

import numpy as np
import numpy.typing as npt

from service.errors import ServiceError
from service.predict import decoding
from trueodds.bundle.bundle import ImageInput
from trueodds.inputs.pictures import Pixels
from trueodds.texts import plural, short

MAX_HEADER = 1024
"""Bytes of a .npy header: a plain array's has 128."""


def raw(body: bytes, spec: ImageInput, limit: int) -> Pixels:
    """One byte a pixel value, images one after the other, each in rows x columns x channels.

    Raises:
        ServiceError: 422 for what is not a whole number of images, 413 for more than `limit`.
    """
    size = math.prod(spec.shape)
    if len(body) % size:
        problem = f"the body has {plural(len(body), 'byte')}"
        message = f"{problem}; an image has {size:,} ({_shape_text(spec)}), and only whole ones are taken"
        raise ServiceError(422, "wrong_shape", message)
    decoding.check_count(len(body) // size, limit)
    return np.frombuffer(body, np.uint8).reshape(-1, *spec.shape)


def npy(body: bytes, spec: ImageInput, limit: int) -> Pixels:
    """A .npy file with one image or several; nothing in it is ever executed or unpickled.

    Raises:
        ServiceError: 400 for what is not whole .npy, 413 for too many images, 422 for another shape or other numbers.
    """
    file = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, by_columns, dtype = read(file, max_header_size=MAX_HEADER)
    except Exception as error:  # numpy parses the header as a Python literal, and fails in the ways of the parser
        message = f"the body is not a .npy file ({type(error).__name__}: {str(error)[:100]}); write it with numpy.save"
        raise ServiceError(400, "invalid_npy", message) from None
    if dtype.hasobject or dtype.kind not in "uif":
        # A mask of True and False is 0 and 1, or 0 and 255: only who sends it knows.
        cure = ". Send a mask as the pixels it stands for: mask * numpy.uint8(255)" if dtype.kind == "b" else ""
        message = f"the array is {short(str(dtype))}; allowed are numbers, best uint8{cure}"
        raise ServiceError(422, "wrong_type", message)
    wanted = _images_shape(shape, spec)
    decoding.check_count(wanted[0], limit)
    data, size = body[file.tell() :], math.prod(shape) * dtype.itemsize
    if len(data) != size:
        message = f"the .npy header says {shape} {dtype}, {plural(size, 'byte')}; {len(data):,} came after it"
        raise ServiceError(400, "invalid_npy", message)
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if by_columns else "C")
    return whole_pixels(array.reshape(wanted), "the array")


def whole_pixels(values: npt.NDArray[np.generic], name: str) -> Pixels:
    """Numbers of any type as uint8, if that changes none of them.

    Raises:
        ServiceError: 422 naming the first value that is not a whole number 0..255, and where it is.
    """
    if values.dtype == np.uint8:
        return values  # type: ignore[return-value]
    with np.errstate(invalid="ignore"):
        pixels = values.astype(np.uint8)
        wrong = pixels != values
    if wrong.any():
        place = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), values.shape))
        message = f"{name} holds {values[place]} at {list(place)}; allowed are whole numbers 0..255"
        scaled = " Send pixels as they are, not scaled" if values.dtype.kind == "f" else ""
        raise ServiceError(422, "invalid_instances", f"{message}.{scaled}" if scaled else message)
    return pixels


def _images_shape(shape: tuple[int, ...], spec: ImageInput) -> tuple[int, int, int, int]:
    """N x H x W x C of an array of images, of one image, or of grey ones without their channel.

    Raises:
        ServiceError: 422 for another shape.
    """
    for one in {spec.shape, spec.shape[:2] if spec.channels == 1 else spec.shape}:
        if shape == one:
            return (1, *spec.shape)
        if len(shape) == len(one) + 1 and shape[1:] == one:
            return (shape[0], *spec.shape)
    message = f"the array has the shape {short(list(shape))}; the model takes N x {_shape_text(spec)}"
    raise ServiceError(422, "wrong_shape", message)


def _shape_text(spec: ImageInput) -> str:
    height, width, channels = spec.shape
    plain = f", or {height} x {width}" if channels == 1 else ""
    return f"{height} x {width} x {channels} (rows x columns x channels){plain}"
