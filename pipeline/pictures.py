"""Encoded images to uint8 pixels: one reading for training and for the service, so that both see the same pixels."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

Pixels = npt.NDArray[np.uint8]
FORMATS = {"PNG": ".png", "JPEG": ".jpg"}
MAX_PIXELS = 4096 * 4096
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_KEPT = (b"tRNS", b"eXIf")
"""Optional chunks that change pixels: transparency, which conversion looks at, and the orientation."""
ORIENTATION = 0x0112  # the EXIF tag; values from 5 on exchange width and height


class PictureError(ValueError):
    """Bytes that are not an image this project reads; the message says what is allowed."""


class PictureTooLargeError(PictureError):
    """More pixels than are allowed, by the header alone."""


def read(
    source: bytes | Path,
    channels: int,
    *,
    side: int | None = None,
    max_pixels: int = MAX_PIXELS,
    accept: Callable[[int, int], None] | None = None,
) -> Pixels:
    """Decode a PNG or JPEG into H x W x C uint8 (C = 1: luminance, 3: RGB; alpha is dropped, 16 bits keep the high 8).

    `side`: scale the shorter edge to that many pixels (Pillow's bilinear filter) and cut the centre square.
    The size is read from the header and checked before a pixel is decoded, so a decompression bomb costs nothing.
    `accept`, given its upright width and height, may refuse it then, by an error of its own.
    An EXIF orientation is applied, as every viewer does: a phone's photo is upright in training and in service.

    Raises:
        PictureError: not a PNG or JPEG, or damaged; PictureTooLargeError: more than `max_pixels` pixels.
        OSError: a path that cannot be read.
    """
    with _opened(source, max_pixels) as image:
        if accept:
            accept(*upright_size(image))
        ImageOps.exif_transpose(image, in_place=True)  # without an orientation to apply, no copy
        flat = _eight_bit(image).convert("L" if channels == 1 else "RGB")
    if side is not None and flat.size != (side, side):
        flat = _centre_square(flat, side)
    return np.asarray(flat, dtype=np.uint8).reshape(flat.height, flat.width, channels)


@contextmanager
def _opened(source: bytes | Path, max_pixels: int) -> Iterator[Image.Image]:
    """Pillow's image, nothing decoded yet; Pillow's errors, in the block too, as PictureError."""
    data = _pixels_only(source if isinstance(source, bytes) else source.read_bytes())
    try:
        with Image.open(io.BytesIO(data), formats=list(FORMATS)) as image:
            if image.width * image.height > max_pixels:
                size = f"{image.width} x {image.height} = {image.width * image.height:,} pixels"
                raise PictureTooLargeError(f"the image has {size}; the limit is {max_pixels:,}. Scale it down first")
            yield image
    except PictureError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):  # Pillow's own limit, where it comes first
        message = f"the image has too many pixels; the limit is {max_pixels:,}. Scale it down first"
        raise PictureTooLargeError(message) from None
    except UnidentifiedImageError:
        raise PictureError(f"not an image that can be read; allowed are {' and '.join(FORMATS)}") from None
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's words for damage
        raise PictureError(
            f"the image is damaged or cut short ({error}); allowed are whole PNG and JPEG files"
        ) from None


def _pixels_only(data: bytes) -> bytes:
    """A PNG without the chunks that change no pixel here: Pillow inflates texts and profiles as soon as it meets them.

    30 chunks of a megabyte of zeros in each of 256 PNGs, 10 MB in all, took 105 s. Anything else stays as it is.
    """
    if not data.startswith(PNG_SIGNATURE):
        return data
    kept, start = [PNG_SIGNATURE], len(PNG_SIGNATURE)
    while start < len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4])  # length, name, content, checksum
        name = data[start + 4 : start + 8]
        if not name[:1].islower() or name in PNG_KEPT:
            kept.append(data[start:end])
        start = end
    return b"".join(kept)


def upright_size(image: Image.Image) -> tuple[int, int]:
    """(width, height) after EXIF orientation, from the header alone."""
    exif = image.info.get("exif")  # getexif() would read a PNG to its end
    sideways = exif is not None and image.getexif().get(ORIENTATION, 1) >= 5
    return (image.height, image.width) if sideways else image.size


def encode_png(pixels_HWC: Pixels) -> bytes:
    """Lossless PNG bytes of one H x W x C uint8 image, C = 1 or 3."""
    out = io.BytesIO()
    Image.fromarray(pixels_HWC.squeeze(2) if pixels_HWC.shape[2] == 1 else pixels_HWC).save(out, "PNG")
    return out.getvalue()


def _eight_bit(image: Image.Image) -> Image.Image:
    """Grey with 16 bits brought to 8; Pillow's convert clips instead: everything above 255 would be white."""
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))


def _centre_square(image: Image.Image, side: int) -> Image.Image:
    # Cut and scale in one: scaling first would make 1 x 16,000,000 pixels into 224 x 3,600,000,000.
    edge = min(image.size)
    left, top = (image.width - edge) / 2, (image.height - edge) / 2
    return image.resize((side, side), Image.Resampling.BILINEAR, box=(left, top, left + edge, top + edge))
