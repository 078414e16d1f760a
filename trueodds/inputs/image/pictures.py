"""Decoding of images to uint8 pixels. Training and the service share it, so that both see the same pixels."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from trueodds.errors import MissingExtraError
from trueodds.inputs.image import formats, png

Pixels = npt.NDArray[np.uint8]
MAX_PIXELS = 4096 * 4096
CUT_SHORT = re.compile("premature end|instead of RST|bad Huffman code", re.IGNORECASE)
"""libjpeg's warnings about missing or invalid image data."""
ORIENTATION = 0x0112  # the EXIF tag; values from 5 on exchange width and height


Interpolation = Literal["bilinear", "bicubic"]
_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class Scaling:
    """Crop the centre square, `crop` of the shorter edge, and scale it to `side` pixels.

    The result is that of Resize(side / crop) and CenterCrop(side) in torchvision and timm, except for their rounding of
    the intermediate size.
    """

    side: int
    crop: float = 1.0
    interpolation: Interpolation = "bilinear"

    def __call__(self, image: Image.Image) -> Image.Image:
        if image.size == (self.side, self.side) and self.crop == 1.0:
            return image
        # Crop and scale in one step: scaling first would turn 1 x 16,000,000 pixels into 224 x 3,600,000,000.
        edge = min(image.size) * self.crop
        left, top = (image.width - edge) / 2, (image.height - edge) / 2
        box = (left, top, left + edge, top + edge)
        return image.resize((self.side, self.side), _FILTERS[self.interpolation], box=box)


class PictureError(ValueError):
    """Error for bytes that are not a readable image. The message states what is allowed."""


class PictureTooLargeError(PictureError):
    """Error for too many pixels, by the header alone."""


def read(
    source: bytes | Path,
    channels: int,
    scaling: Scaling | None = None,
    *,
    max_pixels: int = MAX_PIXELS,
    accept: Callable[[int, int], None] | None = None,
) -> Pixels:
    """Decode an image into H x W x C uint8 (C = 1: luminance, 3: RGB; alpha is dropped, 16 bits keep the high 8).

    PNG, JPEG, WebP, GIF, TIFF and BMP are read, and AVIF and HEIC if Pillow or its plugin reads them. The size comes
    from the header and is checked before a pixel is decoded, so a decompression bomb costs nothing. `accept` gets the
    upright width and height at that point and may raise an error. An EXIF orientation is applied, as in every viewer,
    so a phone's photo is upright in training and in service.

    Raises:
        PictureError: The bytes are not such an image, it has several frames or pages or pixels of more than 16 bits, or
            it is damaged or incomplete.
        PictureTooLargeError: It has more than `max_pixels` pixels.
        MissingExtraError: It is a JPEG, and simplejpeg is not installed.
        OSError: The path cannot be read.
    """
    data, mode = source if isinstance(source, bytes) else source.read_bytes(), "L" if channels == 1 else "RGB"
    flat: Image.Image | None = None
    if plain := png.plain(data):
        _check_size(*plain.size, max_pixels)
        if accept:
            accept(*plain.size)
        if (pixels := plain.pixels()) is not None:
            if plain.mode == mode and not scaling:
                return pixels
            flat = Image.fromarray(pixels[..., 0] if plain.mode == "L" else pixels)
    if flat is None:
        with _open_image(data, max_pixels) as image:
            if accept and not plain:
                accept(*upright_size(image))
            _check_whole(data, image)
            ImageOps.exif_transpose(image, in_place=True)  # without an orientation to apply, no copy
            flat = _eight_bit(image).convert(mode)
    if flat.mode != mode:
        flat = flat.convert(mode)
    if scaling:
        flat = scaling(flat)
    return np.frombuffer(flat.tobytes(), np.uint8).reshape(flat.height, flat.width, channels)


@contextmanager
def _open_image(data: bytes, max_pixels: int) -> Iterator[Image.Image]:
    """Yield Pillow's image before decoding. Pillow's errors become PictureError, also those in the block."""
    try:
        if size := formats.webp_size(data):
            _check_size(*size, max_pixels)
        with Image.open(io.BytesIO(png.pixels_only(data)), formats=formats.readable()) as image:
            _check_size(*image.size, max_pixels)
            _check_still(image)
            yield image
    except PictureError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):  # Pillow's own limit, if it is lower
        message = f"the image has too many pixels; the limit is {max_pixels:,}. Scale it down first"
        raise PictureTooLargeError(message) from None
    except UnidentifiedImageError:
        raise PictureError(formats.unreadable(data)) from None
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's errors for damaged data
        raise PictureError(
            f"the image is damaged or cut short ({error}); allowed is a whole {formats.ALLOWED}"
        ) from None


def _check_still(image: Image.Image) -> None:
    """Refuse several frames or pages, because it is unknown which of them the label describes."""
    if image.format not in ("PNG", "JPEG", "MPO") and getattr(image, "is_animated", False):
        what = "pages" if image.format == "TIFF" else "frames"
        raise PictureError(
            f"the {image.format} has several {what}; expected one: save the right one as a separate file"
        )
    if image.format == "TIFF" and image.mode in ("F", "I"):
        raise PictureError(f"the TIFF has pixels of 32 bits (mode {image.mode}); convert it to 8 or 16 bits")


def _check_whole(data: bytes, image: Image.Image) -> None:
    """Check that the image data are complete. Pillow fills missing data with black or grey."""
    if image.format == "PNG":
        png.check_whole(data)
        return
    if image.format not in ("JPEG", "MPO"):
        return  # Pillow itself reports missing data in other formats
    try:
        import simplejpeg
    except ModuleNotFoundError:
        raise MissingExtraError("reading a JPEG", "simplejpeg", "serve") from None
    try:
        # Decode at an eighth of the size, which reads all data at little cost.
        simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1, min_factor=1)
    except ValueError as error:
        if CUT_SHORT.search(str(error)):  # other warnings, such as extra bytes between markers, affect no pixel
            raise


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        size = f"{width} x {height} = {width * height:,} pixels"
        raise PictureTooLargeError(f"the image has {size}; the limit is {max_pixels:,}. Scale it down first")


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return (width, height) after EXIF orientation, from the header alone."""
    exif = image.info.get("exif")  # getexif() would read a PNG to its end
    sideways = exif is not None and image.getexif().get(ORIENTATION, 1) >= 5
    return (image.height, image.width) if sideways else image.size


def encode_png(pixels_HWC: Pixels) -> bytes:
    """Encode one H x W x C uint8 image, C = 1 or 3, as lossless PNG."""
    out = io.BytesIO()
    Image.fromarray(pixels_HWC.squeeze(2) if pixels_HWC.shape[2] == 1 else pixels_HWC).save(out, "PNG")
    return out.getvalue()


def _eight_bit(image: Image.Image) -> Image.Image:
    """Reduce 16-bit grey to 8 bits. Pillow's convert clips instead, so that everything above 255 would be white."""
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
