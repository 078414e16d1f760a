"""Drops of water or mud on the lens, and the edge detector that they need (OpenCV's, in numpy)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pipeline.data.corruptions.filters import Floats, Generators, gaussian
from pipeline.data.corruptions.tables import Parameters
from pipeline.data.corruptions.weather import LUMA
from pipeline.data.raw import Images

WATER = np.array([175, 238, 238]) / 255
MUD = np.array([63, 42, 20]) / 255
EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
WEAK, STRONG = 50, 150
"""Thresholds of the gradient |dx| + |dy| (Sobel): of every pixel of an edge, and of at least one pixel of it."""
FARTHEST = 20.0
LEAST_MUD = 0.8

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


def spatter(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Add water, which is bright along the edges of its drops, or mud, which covers the image.

    Parameters: mean and standard deviation of a field of noise; standard deviation of its smoothing in pixels; the
    value from which it is liquid; the strength of water, or the standard deviation of the mud's edge in pixels; 0 for
    water and 1 for mud.
    """
    mean, spread, smoothing, least, strength, mud = parameters
    fields = [generator.normal(mean, spread, images_NHWC.shape[1:3]) for generator in generators]
    liquid_NHW1 = gaussian(np.stack(fields)[..., None], smoothing)
    liquid_NHW1[liquid_NHW1 < least] = 0
    x_NHWC = images_NHWC / 255.0
    colour_C = MUD if mud else WATER
    if x_NHWC.shape[3] == 1:
        colour_C = np.array([colour_C @ LUMA])
    if mud:
        cover_NHW1 = gaussian((liquid_NHW1 > least).astype(np.float64), strength)
        cover_NHW1[cover_NHW1 < LEAST_MUD] = 0
        return (x_NHWC * (1 - cover_NHW1) + cover_NHW1 * colour_C).clip(0, 1) * 255
    light_NHW = np.stack([_light((layer[..., 0] * 255).astype(np.uint8)) for layer in liquid_NHW1])
    return (x_NHWC + strength * light_NHW[..., None] * colour_C).clip(0, 1) * 255


def _light(liquid_HW: Bytes) -> Floats:
    """Return the brightness of water, 0 to 1: liquid times an embossed map of the distance to the drops' edges.

    The distance is Euclidean; OpenCV's is within 2% of it.
    """
    edge_HW = edges(liquid_HW)
    far = ndimage.distance_transform_edt(~edge_HW) if edge_HW.any() else np.full(liquid_HW.shape, FARTHEST)
    distance_HW = np.floor(_box(np.minimum(far, FARTHEST))).astype(np.uint8)
    embossed = ndimage.correlate(equalise(distance_HW).astype(np.float64), EMBOSS, mode="mirror").clip(0, 255)
    light: Floats = liquid_HW * np.round(_box(embossed))
    return light / light.max() if light.any() else light


def _box(values_HW: Floats) -> Floats:
    """Return the mean of 3 x 3 pixels."""
    mean: Floats = ndimage.uniform_filter(values_HW, 3, mode="mirror")
    return mean


def equalise(values_HW: Bytes) -> Bytes:
    """Equalise grey levels, so that their cumulative counts rise evenly from 0 to 255; keep a single level."""
    counts = np.bincount(values_HW.ravel(), minlength=256)
    rising = np.cumsum(counts) - counts[counts > 0][0]
    if rising[-1] == 0:
        return values_HW
    levels: Bytes = np.round(rising.clip(0) * (255 / rising[-1])).astype(np.uint8)
    return levels[values_HW]


def edges(image_HW: Bytes, weak: int = WEAK, strong: int = STRONG) -> Mask:
    """Return Canny's edges: ridges of the gradient above `weak` that are connected to one above `strong` (Canny 1986).

    The details are OpenCV's: Sobel's 3 x 3 kernels, the norm |dx| + |dy|, four directions, 0 beyond the image.
    """
    values = image_HW.astype(np.int64)
    across, down = (ndimage.sobel(values, axis, mode="nearest") for axis in (1, 0))
    norm = np.abs(across) + np.abs(down)
    padded = np.pad(norm, 1)
    height, width = norm.shape

    def beside(rows: int, columns: int) -> npt.NDArray[np.int64]:
        """Return the gradient of the neighbours at this offset."""
        return padded[1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    # tan 22.5 and tan 67.5 degrees in 15 binary digits, as OpenCV computes them.
    rise, flat = np.abs(down) << 15, np.abs(across) * 13573
    steep = flat + (np.abs(across) << 16)
    level, upright = rise < flat, rise > steep
    falling = (across ^ down) >= 0
    ridge = np.select(
        [level, upright, falling],
        [
            (norm > beside(0, -1)) & (norm >= beside(0, 1)),
            (norm > beside(-1, 0)) & (norm >= beside(1, 0)),
            (norm > beside(-1, -1)) & (norm > beside(1, 1)),
        ],
        (norm > beside(-1, 1)) & (norm > beside(1, -1)),
    ).astype(bool)
    ridge &= norm > weak
    joined, _ = ndimage.label(ridge, np.ones((3, 3)))
    kept: Mask = np.isin(joined, np.unique(joined[ridge & (norm > strong)])) & ridge
    return kept
