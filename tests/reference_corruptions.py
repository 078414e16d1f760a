"""Corruptions the slow and obvious way: one image at a time, by the functions that the published code calls."""

from __future__ import annotations

import colorsys
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Floats = npt.NDArray[Any]


def clipped_zoom(image_HWC: Floats, factor: float) -> Floats:
    """make_cifar_c.py's, with scipy.ndimage.zoom itself."""
    edge = image_HWC.shape[0]
    inside = math.ceil(edge / factor)
    top = (edge - inside) // 2
    part = image_HWC[top : top + inside, top : top + inside]
    larger = ndimage.zoom(part, (factor, factor, 1), order=1)
    trim = (larger.shape[0] - edge) // 2
    whole: Floats = larger[trim : trim + edge, trim : trim + edge]
    return whole


def saturated(image_HWC: npt.NDArray[np.uint8], factor: float, added: float) -> Floats:
    """By way of hue, saturation and value, pixel by pixel."""
    out = np.empty(image_HWC.shape)
    for at in np.ndindex(image_HWC.shape[:2]):
        hue, saturation, value = colorsys.rgb_to_hsv(*(image_HWC[at] / 255))
        out[at] = colorsys.hsv_to_rgb(hue, min(max(saturation * factor + added, 0), 1), value)
    return out * 255


def brighter(image_HWC: npt.NDArray[np.uint8], raised: float) -> Floats:
    """By way of hue, saturation and value, pixel by pixel."""
    out = np.empty(image_HWC.shape)
    for at in np.ndindex(image_HWC.shape[:2]):
        hue, saturation, value = colorsys.rgb_to_hsv(*(image_HWC[at] / 255))
        out[at] = colorsys.hsv_to_rgb(hue, saturation, min(value + raised, 1))
    return out * 255


def correlated(image_HWC: Floats, kernel_KK: Floats) -> Floats:
    """The sum over the kernel, pixel by pixel, with mirrored edges."""
    kernel = kernel_KK[..., None]
    out: Floats = ndimage.correlate(image_HWC, kernel, mode="mirror")
    return out


def motion(image_HW: Floats, radius: int, sigma: float, degrees: float) -> Floats:
    """Every pixel by itself: the weighted mean of those along the line, the outer ones repeated."""
    height, width = image_HW.shape
    taps = [math.exp(-(tap**2) / (2 * sigma**2)) for tap in range(2 * radius + 1)]
    out = np.zeros(image_HW.shape)
    for row, column in np.ndindex(image_HW.shape):
        for tap, weight in enumerate(taps):
            down = -math.ceil(tap * math.sin(math.radians(degrees)) - 0.5)
            right = -math.ceil(tap * math.cos(math.radians(degrees)) - 0.5)
            if abs(down) >= height or abs(right) >= width:
                break
            at = min(max(row - down, 0), height - 1), min(max(column - right, 0), width - 1)
            out[row, column] += weight / sum(taps) * image_HW[at]
    return out
