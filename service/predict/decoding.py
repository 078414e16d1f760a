"""Request bodies to images: uint8 N x H x W x C, or an error that says which value is wrong and what is allowed."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from service.errors import ServiceError
from trueodds.bundle.bundle import ImageInput
from trueodds.inputs import pictures
from trueodds.inputs.pictures import PictureError, PictureTooLargeError, Pixels
from trueodds.texts import plural, short

EXPECTED = (
    '{"instances": [...]}, each a nested list of pixels, {"b64": "<PNG or JPEG>"} or {"pixels_b64": "<raw bytes>"};'
    " beside it ids, tags and propensities, with one entry for each instance"
)
PER_INSTANCE = ("ids", "tags", "propensities")


def instances(tree: Any, limit: int) -> list[Any]:
    """The instances of a /predict body.

    Raises:
        ServiceError: another shape, none, or more than `limit`.
    """
    if not isinstance(tree, dict) or not isinstance(tree.get("instances"), list):
        raise _invalid(f"the body must be {EXPECTED}")
    if extra := tree.keys() - {"instances", *PER_INSTANCE}:
        raise _invalid(f"unknown key {short(min(extra))} in the body; expected {EXPECTED}")
    values: list[Any] = tree["instances"]
    check_count(len(values), limit)
    return values


def check_count(count: int, limit: int) -> None:
    """Raise unless 1 <= count <= limit."""
    if not count:
        raise _invalid("no image was sent; send at least one")
    if count > limit:
        message = f"{count:,} images in one call; the limit is {limit:,}. Send them in several calls"
        raise ServiceError(413, "too_many_instances", message)


def images(values: Sequence[Any], spec: ImageInput, max_pixels: int) -> Pixels:
    """Instances (nested lists, or objects with b64) as one N x H x W x C array.

    Raises:
        ServiceError: 422 naming the instance and the value; 413 for more than `max_pixels` in all encoded images.
    """
    budget = Budget(max_pixels)

    def image(n: int) -> Pixels:
        name, instance = f"instances[{n}]", values[n]
        if isinstance(instance, list):
            return _from_lists(instance, name, spec)
        if isinstance(instance, dict) and "pixels_b64" in instance:
            return _from_bytes(_base64(instance, "pixels_b64", name), name, spec)
        if isinstance(instance, dict):
            return encoded_image(_base64(instance, "b64", name), name, spec, budget)
        raise _invalid(f"{name} is {short(instance)}; expected a nested list of pixels or an object with b64")

    if len(values) == 1:  # most calls; the copy would cost a turn of the GIL
        return image(0)[None]
    images_NHWC = np.empty((len(values), *spec.shape), np.uint8)
    for n in range(len(values)):
        images_NHWC[n] = image(n)
    return images_NHWC


def encoded_images(files: Iterable[tuple[str, bytes]], spec: ImageInput, max_pixels: int) -> Pixels:
    """Named PNG or JPEG files as one N x H x W x C array; errors as `images`."""
    budget = Budget(max_pixels)
    return np.stack([encoded_image(data, name, spec, budget) for name, data in files])


@dataclass
class Budget:
    """Pixels that the encoded images of one call may still have: a few bytes of PNG can hold millions."""

    limit: int
    used: int = 0

    def take(self, pixels: int, name: str) -> None:
        """Count an image. Raises ServiceError 413 past the limit."""
        self.used += pixels
        if self.used > self.limit:
            message = f"{name} takes the images of this call to {self.used:,} pixels; the limit is {self.limit:,}"
            raise ServiceError(413, "image_too_large", f"{message}. Send fewer or smaller images in one call")


def encoded_image(data: bytes, name: str, spec: ImageInput, budget: Budget) -> Pixels:
    """One PNG or JPEG as H x W x C, resized as in training if the model was trained so; errors as `images`.

    What its header says is judged before a pixel is decoded: a few bytes can hold gigabytes of nothing.
    """

    def accept(width: int, height: int) -> None:
        budget.take(width * height, name)
        if not spec.resized and (height, width) != (spec.height, spec.width):
            wanted = f"the model takes {spec.height} x {spec.width} (height x width). Scale it to that size first"
            raise ServiceError(422, "wrong_size", f"{name} is {height} x {width} pixels; {wanted}")

    try:
        side = spec.height if spec.resized else None
        return pictures.read(data, spec.channels, side=side, max_pixels=budget.limit, accept=accept)
    except PictureTooLargeError as error:
        raise ServiceError(413, "image_too_large", f"{name}: {error}") from None
    except PictureError as error:
        raise ServiceError(422, "invalid_image", f"{name}: {error}") from None


def _base64(instance: dict[str, Any], key: str, name: str) -> bytes:
    text = instance.get(key)
    if len(instance) != 1 or not isinstance(text, str):
        raise _invalid(
            f'{name} has the keys {short(sorted(islice(instance, 5)))}; expected {{"b64": "<PNG or JPEG bytes>"}}'
            ' or {"pixels_b64": "<raw bytes>"}'
        )
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        cure = "; leave out the 'data:...,' prefix" if text.startswith("data:") else ""
        raise _invalid(f"{name}.{key} is not base64 ({error}){cure}") from None


def _from_bytes(data: bytes, name: str, spec: ImageInput) -> Pixels:
    if len(data) != math.prod(spec.shape):
        raise _wrong_shape(f"{name}.pixels_b64 has {plural(len(data), 'byte')}, not {math.prod(spec.shape):,}", spec)
    return np.frombuffer(data, np.uint8).reshape(spec.shape)


def _from_lists(rows: list[Any], name: str, spec: ImageInput) -> Pixels:
    """The fast path never looks at a value in Python: lengths and types as sets, pixels by `bytes`."""
    height, width, channels = spec.shape
    if len(rows) != height:
        raise _wrong_shape(f"{name} has {plural(len(rows), 'row')}", spec)
    flat = _level(rows, width, name, (height,), spec)
    if channels > 1 or isinstance(flat[0], list):
        flat = _level(flat, channels, name, (height, width), spec)
    if set(map(type, flat)) == {int}:
        try:
            return np.frombuffer(bytes(flat), np.uint8).reshape(spec.shape)
        except ValueError:
            pass
    return np.array([_pixel(v, k, name, spec) for k, v in enumerate(flat)], np.uint8).reshape(spec.shape)


def _level(parents: list[Any], size: int, name: str, shape: tuple[int, ...], spec: ImageInput) -> list[Any]:
    """The children of all parents in one list, if every parent is a list of `size`; `shape` is that of the parents."""
    if set(map(type, parents)) == {list} and set(map(len, parents)) == {size}:
        return list(chain.from_iterable(parents))
    k, parent = next((k, p) for k, p in enumerate(parents) if not isinstance(p, list) or len(p) != size)
    problem = (
        f"has {plural(len(parent), 'value')}, not {size}"
        if isinstance(parent, list)
        else f"is {short(parent)}, not a list"
    )
    raise _wrong_shape(f"{_place(name, k, shape)} {problem}", spec)


def _pixel(value: Any, position: int, name: str, spec: ImageInput) -> int:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and 0 <= value <= 255 and value == int(value):
        return int(value)
    place = _place(name, position, spec.shape)
    raise _invalid(f"{place} is {short(value)}; allowed are whole numbers 0..255. Send pixels as they are, not scaled")


def _place(name: str, position: int, shape: Sequence[int]) -> str:
    return name + "".join(f"[{int(i)}]" for i in np.unravel_index(position, tuple(shape)))


def _wrong_shape(problem: str, spec: ImageInput) -> ServiceError:
    height, width, channels = spec.shape
    plain = f", or {height} x {width}" if channels == 1 else ""
    expected = f"{height} x {width} x {channels} (rows x columns x channels){plain}"
    return ServiceError(422, "wrong_shape", f"{problem}; the model takes {expected}")


def _invalid(message: str) -> ServiceError:
    return ServiceError(422, "invalid_instances", message)
