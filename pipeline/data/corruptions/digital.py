"""Corruptions by cameras, screens and files.

Each function takes uint8 N x H x W x C, its parameters and a generator per image, and returns 0 to 255.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

from pipeline.data.corruptions.filters import Floats, Generators, gaussian
from pipeline.data.corruptions.tables import Parameters
from pipeline.data.raw import Images


def brightness(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Raise the value in HSV and keep hue and saturation; parameter: the increase, a fraction of white."""
    (raised,) = parameters
    x_NHWC = images_NHWC / 255.0
    value = x_NHWC.max(3, keepdims=True)
    brighter = (value + raised).clip(0, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        out: Floats = np.where(value > 0, x_NHWC * (brighter / value), brighter)
    return out.clip(0, 1) * 255


def saturate(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Change the saturation in HSV, s -> a s + b, and keep hue and value; parameters: a and b.

    A pixel without a hue counts as red, as in skimage. An image of one channel is returned unchanged.
    """
    if images_NHWC.shape[3] == 1:
        return images_NHWC.astype(np.float64)
    factor, added = parameters
    x_NHWC = images_NHWC / 255.0
    value, least = x_NHWC.max(3, keepdims=True), x_NHWC.min(3, keepdims=True)
    width = value - least
    with np.errstate(invalid="ignore", divide="ignore"):
        saturation = np.where(value > 0, width / value, 0.0)
        depth = np.where(width > 0, (value - x_NHWC) / width, np.array([0.0, 1.0, 1.0]))
    out: Floats = value * (1 - (saturation * factor + added).clip(0, 1) * depth)
    return out.clip(0, 1) * 255


def contrast(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Change the contrast: (x - m) c + m with m the mean of each channel; parameter: c."""
    (factor,) = parameters
    x_NHWC = images_NHWC / 255.0
    mean = x_NHWC.mean((1, 2), keepdims=True)
    out: Floats = ((x_NHWC - mean) * factor + mean).clip(0, 1) * 255
    return out


def jpeg_compression(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Images:
    """Write as JPEG and read again; parameter: the quality, 1 to 95."""
    (quality,) = parameters
    out = np.empty_like(images_NHWC)
    for image, target in zip(images_NHWC, out, strict=True):
        file = BytesIO()
        _picture(image).save(file, "JPEG", quality=int(quality))
        with Image.open(file) as opened:
            target[:] = np.asarray(opened).reshape(target.shape)
    return out


def pixelate(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Images:
    """Reduce the image by means of boxes and enlarge it again; parameter: the share of the edge length."""
    (share,) = parameters
    height, width = images_NHWC.shape[1:3]
    small = max(int(width * share), 1), max(int(height * share), 1)
    out = np.empty_like(images_NHWC)
    for image, target in zip(images_NHWC, out, strict=True):
        box = Image.Resampling.BOX
        target[:] = np.asarray(_picture(image).resize(small, box).resize((width, height), box)).reshape(target.shape)
    return out


def elastic_transform(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Apply a random affine map, then move every pixel by a smooth random field.

    Parameters, in units of the longer edge: factor of the field, standard deviation of its smoothing, and the largest
    move along either axis of each of the three points that define the affine map.
    """
    height, width = images_NHWC.shape[1:3]
    factor, smoothing, farthest = (parameter * max(height, width) for parameter in parameters)
    corners = _corners(height, width)
    maps, fields = [], []
    for generator in generators:
        maps.append(_backwards(corners, corners + generator.uniform(-farthest, farthest, corners.shape)))
        fields.append([generator.uniform(-1, 1, (height, width)) for _ in "xy"])
    field_NHW2 = factor * gaussian(np.moveaxis(np.array(fields), 1, -1), smoothing, mode="reflect", truncate=3)
    out = np.empty(images_NHWC.shape)
    rows, columns = np.indices((height, width), dtype=np.float64)
    for image, affine, field, target in zip(images_NHWC / 255.0, maps, field_NHW2, out, strict=True):
        right, down = affine[:, :2] @ np.stack([columns.ravel(), rows.ravel()]) + affine[:, 2:]
        moved_right, moved_down = columns + field[..., 0], rows + field[..., 1]
        for channel in range(image.shape[2]):
            turned = ndimage.map_coordinates(image[..., channel], [down, right], order=1, mode="mirror")
            target[..., channel] = ndimage.map_coordinates(
                turned.reshape(height, width), [moved_down, moved_right], order=1, mode="reflect"
            )
    return out.clip(0, 1) * 255


def _corners(height: int, width: int) -> Floats:
    """Return three corners (x, y) of a square around the middle, a third of the image's edge from it."""
    middle = np.array([height // 2, width // 2], dtype=np.float64)
    reach = min(height, width) // 3 or 1
    return np.array([middle + reach, [middle[0] + reach, middle[1] - reach], middle - reach])


def _backwards(corners_32: Floats, moved_32: Floats) -> Floats:
    """Return the inverse (2 x 3) of the affine map that moves the three corners.

    It maps (x, y, 1) of the result to the place in the source.
    If the moved corners lie on one line, no such map exists, and the identity is returned.
    """
    ones = np.ones((3, 1))
    try:
        solved = np.linalg.solve(np.hstack([moved_32, ones]), corners_32)
    except np.linalg.LinAlgError:
        return np.eye(2, 3)
    return solved.T.astype(np.float64)


def _picture(image_HWC: npt.NDArray[np.uint8]) -> Image.Image:
    """Return an image as Pillow's."""
    return Image.fromarray(image_HWC if image_HWC.shape[2] == 3 else image_HWC[..., 0])
