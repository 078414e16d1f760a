"""Images in JSON: nested lists of pixels, and base64 of an image file or of raw bytes."""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from trueodds.inputs.checkpoint import checkpoint
from trueodds.inputs.errors import InputError, InputTooLargeError
from trueodds.inputs.image import pictures
from trueodds.inputs.image.formats import ALLOWED
from trueodds.inputs.image.pictures import PictureError, PictureTooLargeError, Pixels, Scaling
from trueodds.inputs.kind import Limits
from trueodds.texts import plural, short

SCHEMAS: Sequence[Mapping[str, Any]] = (
    {
        "type": "array",
        "items": {"type": "array"},
        "description": "rows x columns x channels of whole numbers 0..255",
    },
    {
        "type": "object",
        "required": ["b64"],
        "additionalProperties": False,
        "properties": {"b64": {"type": "string", "format": "byte", "description": ALLOWED}},
    },
    {
        "type": "object",
        "required": ["pixels_b64"],
        "additionalProperties": False,
        "properties": {
            "pixels_b64": {
                "type": "string",
                "format": "byte",
                "description": "one byte a value, rows x columns x channels",
            }
        },
    },
)
_BASE64 = TypeAdapter(bytes, config=ConfigDict(val_json_bytes="base64"))


@dataclass
class ImageReading:
    """Reading of one call's images. It counts the pixels of encoded images against the limit."""

    shape: tuple[int, int, int]
    scaling: Scaling | None
    limits: Limits
    used: int = field(default=0, init=False)
    """Pixels of the encoded images so far."""

    def images(self, values: Sequence[Any]) -> Pixels:
        """Convert instances (nested lists, or objects with b64) to one N x H x W x C array.

        Raises:
            InputError: An instance is invalid. The message names the instance and the value.
            InputTooLargeError: All encoded images together exceed the limits.
        """
        if self.limits.characters < _characters(values):
            message = f"the encoded images have more than {self.limits.characters:,} characters, the limit"
            raise InputTooLargeError("image_too_large", f"{message}. Send fewer or smaller images in one call")
        if len(values) == 1:  # most calls have one image; a copy would wait for the GIL once more
            return self._image(values[0], 0)[None]
        images_NHWC = np.empty((len(values), *self.shape), np.uint8)
        for n, value in enumerate(values):
            checkpoint()
            images_NHWC[n] = self._image(value, n)
        return images_NHWC

    def decode(self, data: bytes, name: str) -> Pixels:
        """Decode one image to H x W x C, scaled if the model's images are. The errors are those of `images`.

        The header is checked before a pixel is decoded, because a few bytes can hold gigabytes of nothing.
        """
        checkpoint()
        rows, columns, channels = self.shape

        def accept(width: int, height: int) -> None:
            self.used += width * height
            if self.used > self.limits.pixels:
                limit = f"{self.used:,} pixels; the limit is {self.limits.pixels:,}"
                message = f"{name} brings the images of this call to {limit}. Send fewer or smaller images in one call"
                raise InputTooLargeError("image_too_large", message)
            if not self.scaling and (height, width) != (rows, columns):
                wanted = f"the model takes {rows} x {columns} (height x width). Scale it to that size first"
                raise InputError("wrong_size", f"{name} is {height} x {width} pixels; {wanted}")

        try:
            return pictures.read(data, channels, self.scaling, max_pixels=self.limits.pixels, accept=accept)
        except PictureTooLargeError as error:
            raise InputTooLargeError("image_too_large", f"{name}: {error}") from None
        except PictureError as error:
            raise InputError("invalid_image", f"{name}: {error}") from None

    def _image(self, instance: Any, n: int) -> Pixels:
        name = f"instances[{n}]"
        if isinstance(instance, list):
            return self._from_lists(instance, name)
        if isinstance(instance, dict) and "pixels_b64" in instance:
            return self._from_bytes(_base64(instance, "pixels_b64", name), name)
        if isinstance(instance, dict):
            return self.decode(_base64(instance, "b64", name), name)
        raise _invalid(f"{name} is {short(instance)}; expected a nested list of pixels or an object with b64")

    def _from_bytes(self, data: bytes, name: str) -> Pixels:
        if len(data) != math.prod(self.shape):
            problem = f"{name}.pixels_b64 has {plural(len(data), 'byte')}, not {math.prod(self.shape):,}"
            raise self._wrong_shape(problem)
        return np.frombuffer(data, np.uint8).reshape(self.shape)

    def _from_lists(self, rows: list[Any], name: str) -> Pixels:
        """Convert nested lists. The fast path checks lengths and types as sets, and converts pixels with `bytes`."""
        height, width, channels = self.shape
        if len(rows) != height:
            raise self._wrong_shape(f"{name} has {plural(len(rows), 'row')}")
        flat = self._level(rows, width, name, (height,))
        if channels > 1 or isinstance(flat[0], list):
            flat = self._level(flat, channels, name, (height, width))
        if set(map(type, flat)) == {int}:
            try:
                return np.frombuffer(bytes(flat), np.uint8).reshape(self.shape)
            except ValueError:
                pass
        return np.array([self._pixel(v, k, name) for k, v in enumerate(flat)], np.uint8).reshape(self.shape)

    def _level(self, parents: list[Any], size: int, name: str, shape: tuple[int, ...]) -> list[Any]:
        """Join the children of all parents, if each parent is a list of `size`. `shape` is that of the parents."""
        if set(map(type, parents)) == {list} and set(map(len, parents)) == {size}:
            return list(chain.from_iterable(parents))
        k, parent = next((k, p) for k, p in enumerate(parents) if not isinstance(p, list) or len(p) != size)
        problem = (
            f"has {plural(len(parent), 'value')}, not {size}"
            if isinstance(parent, list)
            else f"is {short(parent)}, not a list"
        )
        raise self._wrong_shape(f"{_place(name, k, shape)} {problem}")

    def _pixel(self, value: Any, position: int, name: str) -> int:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and 0 <= value <= 255 and value == int(value):
            return int(value)
        place = _place(name, position, self.shape)
        allowed = "allowed are whole numbers 0..255. Send pixels as they are, not scaled"
        raise _invalid(f"{place} is {short(value)}; {allowed}")

    def _wrong_shape(self, problem: str) -> InputError:
        return InputError("wrong_shape", f"{problem}; the model takes {shape_text(self.shape)}")


def shape_text(shape: tuple[int, int, int]) -> str:
    """Describe the shape of an image in words."""
    height, width, channels = shape
    plain = f", or {height} x {width}" if channels == 1 else ""
    return f"{height} x {width} x {channels} (rows x columns x channels){plain}"


def _characters(values: Sequence[Any]) -> int:
    count = 0
    for value in values:
        if type(value) is dict and type(text := value.get("b64")) is str:
            count += len(text)
    return count


def _base64(instance: dict[str, Any], key: str, name: str) -> bytes:
    text = instance.get(key)
    if len(instance) != 1 or not isinstance(text, str):
        raise _invalid(
            f'{name} has the keys {short(sorted(islice(instance, 5)))}; expected {{"b64": "<{ALLOWED}>"}}'
            ' or {"pixels_b64": "<raw bytes>"}'
        )
    try:
        return _decode(text)
    except (binascii.Error, ValueError) as error:
        cure = "; leave out the 'data:...,' prefix" if text.startswith("data:") else ""
        cure = cure or ("; leave out the line breaks" if "\n" in text else "")
        raise _invalid(f"{name}.{key} is not base64 ({error}){cure}") from None


def _decode(text: str) -> bytes:
    """Decode base64 as `base64.b64decode(text, validate=True)` does, in a fifth of its time.

    pydantic's decoder keeps the GIL. pybase64 is as fast but releases it, and waited .2 ms to get it back from the
    event loop. pydantic also takes the letters of URLs and missing padding, so such texts go to Python's decoder.
    """
    if len(text) % 4 == 0 and "-" not in text and "_" not in text:
        with contextlib.suppress(ValidationError):
            decoded: bytes = _BASE64.validate_strings(text)
            return decoded
    return base64.b64decode(text, validate=True)


def _place(name: str, position: int, shape: Sequence[int]) -> str:
    return name + "".join(f"[{int(i)}]" for i in np.unravel_index(position, tuple(shape)))


def _invalid(message: str) -> InputError:
    return InputError("invalid_instances", message)
