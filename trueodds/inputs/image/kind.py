"""The card's entry for images, and all forms in which an image may be sent."""

from __future__ import annotations

import base64
import importlib.util
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from trueodds.errors import MissingExtraError
from trueodds.inputs import npy
from trueodds.inputs.errors import InputError
from trueodds.inputs.image import json_images, pictures
from trueodds.inputs.image.formats import ALLOWED, media_type_of
from trueodds.inputs.image.json_images import ImageReading
from trueodds.inputs.image.pictures import Interpolation, Pixels, Scaling
from trueodds.inputs.kind import NO_LIMITS, SMALL, Format, InputKind, Limits
from trueodds.texts import plural, short


def _is(default: object) -> Any:
    """Return a predicate that leaves a field with its default out of the card.

    So the hashes of cards from before the field existed stay valid.
    """
    return lambda value: value == default


class ImageInput(InputKind):
    """uint8 pixels, N x height x width x channels. The graph itself normalises them.

    Examples:
        >>> ImageInput(height=224, width=224, channels=3, resized=True, crop=0.875).shape
        (224, 224, 3)
    """

    noun: ClassVar[str] = "image"
    task: ClassVar[str] = "image-classification"
    tensor: ClassVar[str] = "images"
    datatype: ClassVar[str] = "UINT8"
    onnx_type: ClassVar[str] = "uint8"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.uint8)
    formats: ClassVar[Mapping[Format, str]] = {
        "npy": "N x rows x columns x channels; numbers of any type, as long as they are 0..255",
        "bytes": "one byte a value, whole images one after the other",
    }
    files: ClassVar[str] = ALLOWED
    schemas: ClassVar[Sequence[Mapping[str, Any]]] = json_images.SCHEMAS
    instance: ClassVar[str] = f'a nested list of pixels, {{"b64": "<{ALLOWED}>"}} or {{"pixels_b64": "<raw bytes>"}}'

    kind: Literal["image"] = "image"
    height: int = Field(ge=1)
    width: int = Field(ge=1)
    channels: Literal[1, 3]
    resized: bool = False
    """Whether encoded images of any size are scaled and cropped to this size, as in training."""
    crop: float = Field(1.0, gt=0, le=1, exclude_if=_is(1.0))
    """Share of a resized image's shorter edge that the centre square covers (timm's crop_pct)."""
    interpolation: Interpolation = Field("bilinear", exclude_if=_is("bilinear"))
    """Pillow's filter for scaling."""

    @model_validator(mode="after")
    def _square_if_resized(self) -> Self:
        if self.resized and self.height != self.width:
            raise ValueError(f"resized images are square; the card says {self.height} x {self.width}")
        if not self.resized and (self.crop, self.interpolation) != (1.0, "bilinear"):
            raise ValueError("crop and interpolation are of resized images; set resized to true, or leave them out")
        return self

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.height, self.width, self.channels

    @property
    def missing_packages(self) -> str:
        if importlib.util.find_spec("simplejpeg") is None:
            return str(MissingExtraError("reading a JPEG", "simplejpeg", "serve"))
        return ""

    def from_json(self, instances: Sequence[Any], limits: Limits) -> Pixels:
        """Read images from nested lists, {"b64": an image file} and {"pixels_b64": raw bytes}."""
        return self._reading(limits).images(instances)

    def from_files(self, files: Sequence[tuple[str, bytes]], limits: Limits) -> Pixels:
        """Read images from encoded files."""
        self.check_count(len(files), limits)
        reading = self._reading(limits)
        return np.stack([reading.decode(data, name) for name, data in files])

    def read(self, body: bytes, form: Format, limits: Limits) -> Pixels:
        return self._raw(body, limits) if form == "bytes" else self._npy(body, limits)

    def from_values(self, numbers: Sequence[Any], rows: int, name: str, limits: Limits = NO_LIMITS) -> Pixels:
        shape, kinds = (rows, *self.shape), set(map(type, numbers))
        if kinds == {int}:
            try:
                return np.frombuffer(bytes(numbers), np.uint8).reshape(shape)
            except ValueError:  # find the value here: numpy would round one beyond 64 bits
                first = next(n for n, value in enumerate(numbers) if not 0 <= value <= 255)
                place = [int(i) for i in np.unravel_index(first, shape)]
                message = f"the input {name!r} holds {numbers[first]} at {place}; allowed are whole numbers 0..255"
                raise InputError("invalid_tensor", message) from None
        if not kinds <= {int, float}:
            wrong = next(value for value in numbers if type(value) not in (int, float))
            raise InputError(
                "invalid_tensor", f"the input's data holds {short(wrong)}; allowed are whole numbers 0..255"
            )
        return self.check_rows(np.array(numbers, np.float64).reshape(shape), f"the input {name!r}")

    def check_rows(self, rows: npt.NDArray[Any], name: str) -> Pixels:
        if rows.dtype == np.uint8:
            return rows
        with np.errstate(invalid="ignore"):
            pixels = rows.astype(np.uint8)
            wrong = pixels != rows
        if wrong.any():
            place = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), rows.shape))
            message = f"{name} holds {rows[place]} at {list(place)}; allowed are whole numbers 0..255"
            scaled = ". Send pixels as they are, not scaled" if rows.dtype.kind == "f" else ""
            raise InputError("invalid_instances", message + scaled)
        return pixels

    def made_up(self) -> list[Any]:
        return self.values(self._noise())

    def examples(self) -> dict[str, Any]:
        row = self._noise()
        encoded: dict[str, Any] = {"a picture": {"b64": base64.b64encode(pictures.encode_png(row)).decode()}}
        if row.size > SMALL:
            return encoded
        raw = base64.b64encode(self.encode(row)).decode()
        return {**encoded, "pixels": row.tolist(), "raw bytes": {"pixels_b64": raw}}

    def _noise(self) -> npt.NDArray[np.uint8]:
        """Return a picture of up to 8 x 8 random squares. Even a large one has few bytes as PNG."""
        height, width, channels = self.shape
        squares = np.random.default_rng(0).integers(0, 256, (min(height, 8), min(width, 8), channels), np.uint8)
        down, across = np.arange(height) * len(squares) // height, np.arange(width) * squares.shape[1] // width
        return squares[down][:, across]

    @cached_property
    def scaling(self) -> Scaling | None:
        """Scaling of encoded images to the size; None: they must have the size."""
        return Scaling(self.height, self.crop, self.interpolation) if self.resized else None

    def _reading(self, limits: Limits) -> ImageReading:
        return ImageReading(self.shape, self.scaling, limits)

    def _raw(self, body: bytes, limits: Limits) -> Pixels:
        """One byte a pixel value, images one after the other, each in rows x columns x channels."""
        size = math.prod(self.shape)
        if named := media_type_of(body):
            problem = "the body is an image file, and raw bytes are pixels without a file around them"
            raise InputError("wrong_shape", f"{problem}. Send it with the content type {named}")
        if len(body) % size:
            problem = f"the body has {plural(len(body), 'byte')}"
            one = f"an image has {size:,} ({json_images.shape_text(self.shape)})"
            raise InputError("wrong_shape", f"{problem}; {one}, and only whole ones are taken")
        self.check_count(len(body) // size, limits)
        return np.frombuffer(body, np.uint8).reshape(-1, *self.shape)

    def _npy(self, body: bytes, limits: Limits) -> Pixels:
        """Read a .npy file with one or several images."""

        def rows_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
            """Return N x H x W x C for an array of images, for one image, or for grey images without a channel axis."""
            for one in {self.shape, self.shape[:2] if self.channels == 1 else self.shape}:
                if shape == one or (len(shape) == len(one) + 1 and shape[1:] == one):
                    count = 1 if shape == one else shape[0]
                    self.check_count(count, limits)
                    return (count, *self.shape)
            wanted = f"the model takes N x {json_images.shape_text(self.shape)}"
            raise InputError("wrong_shape", f"the array has the shape {short(list(shape))}; {wanted}")

        # A boolean mask may mean 0 and 1, or 0 and 255; only the sender knows.
        of_bools = "Send a mask as the pixels it stands for: mask * numpy.uint8(255)"
        return self.check_rows(npy.read(body, rows_shape, best="uint8", of_bools=of_bools), "the array")
