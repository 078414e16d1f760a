"""Perceptual hashes: hashes of images that look alike differ in few bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.data import mapped
from pipeline.data.raw import Images

EDGE = 8
"""Number of lowest frequencies of each axis in a hash: 8 x 8 bits."""
GRID = 32
"""Edge to which images are reduced first."""
GREY = {1: np.ones(1), 3: np.array([0.299, 0.587, 0.114])}
"""Number of channels -> weights of the channels (luma of ITU-R BT.601)."""
BLOCK = 2**21
"""Pairs of hashes compared at a time."""
Hashes = npt.NDArray[np.uint64]


def hashes(images_NHWC: Images) -> Hashes:
    """Return the pHash of each image, 64 bits.

    The grey image is reduced to 32 x 32 by means of areas. Each bit says whether one of the 8 x 8 lowest coefficients
    of its discrete cosine transform (type II) is above their median.

    References:
        Zauner (2010), Implementation and benchmarking of perceptual image hash functions.
    """
    height, width, channels = images_NHWC.shape[1:]
    of_rows, of_columns = _lowest(height), _lowest(width)
    parts = [np.zeros(0, np.uint64)]
    for block in mapped.blocks(images_NHWC):
        low_NF = (of_rows @ (block @ GREY[channels]) @ of_columns.T).reshape(len(block), -1).round(6)
        bits_NF = low_NF > np.median(low_NF, axis=1, keepdims=True)
        parts.append(np.packbits(bits_NF, axis=1).view(np.uint64)[:, 0])
    return np.concatenate(parts)


def nearest(hashes_N: Hashes, among_M: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each hash the index of the nearest of `among_M` (first of equals), and the count of different bits."""
    step = max(1, BLOCK // max(1, len(among_M)))
    places, bits = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for begin in range(0, len(hashes_N), step):
        differ_NM = np.bitwise_count(hashes_N[begin : begin + step, None] ^ among_M)
        places.append(differ_NM.argmin(axis=1))
        bits.append(differ_NM.min(axis=1).astype(np.int64))
    return np.concatenate(places), np.concatenate(bits)


def _lowest(size: int) -> npt.NDArray[np.float64]:
    """Return the matrix (EDGE, size) from the pixels of an axis to the lowest frequencies of its GRID means."""
    ends = np.arange(GRID + 1) * size / GRID
    pixel = np.arange(size)
    means = np.clip(np.minimum(ends[1:, None], pixel + 1) - np.maximum(ends[:-1, None], pixel), 0, None) * GRID / size
    cosines = np.cos(np.pi / GRID * np.arange(EDGE)[:, None] * (np.arange(GRID) + 0.5))
    return np.asarray(cosines @ means)
