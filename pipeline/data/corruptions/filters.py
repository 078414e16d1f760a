"""Filters and warps that several corruptions share, for N x H x W x C or one image H x W [x C], in float64."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import fft, ndimage

Floats = npt.NDArray[np.float64]
Generators = list[np.random.Generator]
"""One random generator per image, so that an image's result does not depend on the other images."""


def gaussian(images_NHWC: Floats, sigma: float, *, mode: str = "nearest", truncate: float = 4.0) -> Floats:
    """Blur by a Gaussian of `sigma` pixels, cut at `truncate` sigmas, as skimage.filters.gaussian does."""
    if sigma <= 0:
        return images_NHWC
    blurred: Floats = ndimage.gaussian_filter(images_NHWC, (0, sigma, sigma, 0), mode=mode, truncate=truncate)
    return blurred


def disk(radius: float, sigma: float) -> Floats:
    """Return a disk of sum 1, its edge smoothed by a Gaussian of 3 x 3 pixels (5 x 5 above radius 8).

    For radius 8 and 10 the sum is 1.013 and 1.011 after smoothing by .5. There the disk touches the kernel's edge,
    where the published code mirrors it.
    """
    edge = 8 if radius <= 8 else math.ceil(radius)
    at = np.arange(-edge, edge + 1)
    inside = (at[:, None] ** 2 + at**2 <= radius**2).astype(np.float64)
    reach = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    weights = np.exp(-(reach**2) / (2 * sigma**2))
    weights /= weights.sum()
    kernel: Floats = inside / inside.sum()
    for axis in (0, 1):
        kernel = ndimage.correlate1d(kernel, weights, axis, mode="mirror")
    return kernel


def correlate(images_NHWC: Floats, kernel_KK: Floats) -> Floats:
    """Filter each channel with a symmetric kernel of odd edge; mirror the image at the centres of its outer pixels."""
    reach = len(kernel_KK) // 2
    height, width = images_NHWC.shape[1:3]
    padded = np.pad(images_NHWC, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="reflect")
    shape = [fft.next_fast_len(edge + 2 * reach, real=True) for edge in (height, width)]
    spectrum = fft.rfft2(padded, shape, axes=(1, 2)) * fft.rfft2(kernel_KK, shape)[None, :, :, None]
    whole: Floats = fft.irfft2(spectrum, shape, axes=(1, 2))
    return whole[:, 2 * reach : 2 * reach + height, 2 * reach : 2 * reach + width]


def motion(image: Floats, radius: float, sigma: float, degrees: float) -> Floats:
    """Blur one image along a line: sum_i k_i x(. shifted by i), k_i ~ exp(-i^2 / (2 sigma^2)), i = 0 .. 2 radius.

    This is ImageMagick's MotionBlurImage, with the outer pixels repeated beyond the edge.
    """
    height, width = image.shape[:2]
    taps = np.arange(int(radius) * 2 + 1)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    weights /= weights.sum()
    angle = math.radians(degrees)
    rows, columns = np.arange(height), np.arange(width)
    out = np.zeros_like(image)
    for tap, weight in zip(taps.tolist(), weights.tolist(), strict=True):
        down, right = (-math.ceil(tap * part - 0.5) for part in (math.sin(angle), math.cos(angle)))
        if abs(down) >= height or abs(right) >= width:
            break  # as in the published code: shifts from entirely outside the image are left out
        at_row, at_column = (rows - down).clip(0, height - 1), (columns - right).clip(0, width - 1)
        out += weight * image[at_row][:, at_column]
    return out


@cache
def zoom_matrix(size: int, factor: float) -> Floats:
    """Return the matrix (size, size) that enlarges the middle of `size` values by `factor`, by linear interpolation.

    The middle ceil(size / factor) values are stretched to round(that * factor), end on end (scipy.ndimage.zoom of order
    1). The middle `size` of these are taken.
    """
    inside = math.ceil(size / factor)
    begin, outside = (size - inside) // 2, round(inside * factor)
    at = np.arange(outside) * ((inside - 1) / max(outside - 1, 1))
    low = np.minimum(at.astype(int), max(inside - 2, 0))
    matrix = np.zeros((outside, size))
    rows = np.arange(outside)
    matrix[rows, begin + low] += 1 - (at - low)
    matrix[rows, begin + np.minimum(low + 1, inside - 1)] += at - low
    trim = (outside - size) // 2
    return matrix[trim : trim + size]


def zoom(images_NHWC: Floats, factor: float) -> Floats:
    """Enlarge the middle of each image by `factor`, at the image's own size."""
    across = np.einsum("ij,njwc->niwc", zoom_matrix(images_NHWC.shape[1], factor), images_NHWC, optimize=True)
    out: Floats = np.einsum("ij,nhjc->nhic", zoom_matrix(images_NHWC.shape[2], factor), across, optimize=True)
    return out
