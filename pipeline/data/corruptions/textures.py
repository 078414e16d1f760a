"""Random textures: a height map for fog, and ice in place of the photographs of the published frost."""

from __future__ import annotations

from functools import cache

import numpy as np

from pipeline.data.corruptions.filters import Floats

WIBBLE = 100.0
TEXTURES = 5
"""Number of ice textures. The published code has five photographs."""
ROUGHNESS = 1.8
ICE = (
    ((78, 149, 166), (27, 16, 15)),
    ((201, 205, 214), (21, 22, 23)),
    ((201, 205, 214), (21, 22, 23)),
    ((138, 153, 165), (28, 28, 30)),
    ((112, 123, 135), (44, 43, 42)),
)
"""Mean and standard deviation of red, green and blue (0 to 255) of the published code's five photographs."""


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is at least `size`."""
    return 1 << max(size - 1, 1).bit_length()


def plasma(size: int, decay: float, generator: np.random.Generator) -> Floats:
    """Return a periodic height map in [0, 1], size x size with size a power of two, by the diamond-square algorithm.

    decay is the factor by which each halving of the grid reduces the random part. A smaller decay gives a rougher map.
    """
    heights = np.empty((size, size))
    heights[0, 0] = 0.0
    step, wibble = size, WIBBLE

    def mean(sums: Floats, wibble: float) -> Floats:
        """Return the mean of four neighbours plus noise."""
        # `wibble` enters twice, as in the published code; after division by the maximum only its ratios matter.
        return sums / 4 + wibble * generator.uniform(-wibble, wibble, sums.shape)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        sums = corners + np.roll(corners, -1, 0)
        heights[half::step, half::step] = mean(sums + np.roll(sums, -1, 1), wibble)
        middles, corners = heights[half::step, half::step], heights[::step, ::step]
        heights[::step, half::step] = mean(middles + np.roll(middles, 1, 0) + corners + np.roll(corners, -1, 1), wibble)
        heights[half::step, ::step] = mean(middles + np.roll(middles, 1, 1) + corners + np.roll(corners, -1, 0), wibble)
        step, wibble = half, wibble / decay
    heights -= heights.min()
    heights /= heights.max()
    return heights


@cache
def ice(size: int) -> tuple[Floats, ...]:
    """Return TEXTURES textures of ice needles, size x size x 3 in 0 to 255, size a power of two; always the same.

    Each has two maps of ridges, 1 - |2 h - 1| of a rough height map h, stretched in a direction of their own. They are
    shifted and scaled to mean and standard deviation of ICE, colour by colour.
    """
    textures = []
    for number, (mean, spread) in enumerate(ICE):
        generator = np.random.default_rng([number, size])
        needles = np.zeros((size, size))
        for _ in range(2):
            ridges = 1 - np.abs(2 * plasma(size, ROUGHNESS, generator) - 1)
            slant = int(generator.integers(1, 4)) * (1 if generator.random() < 0.5 else -1)
            for row in range(size):
                ridges[row] = np.roll(ridges[row], slant * row)
            needles = np.maximum(needles, ridges**4)
        standard = (needles - needles.mean()) / max(needles.std(), 1e-12)
        textures.append((np.array(mean) + standard[..., None] * np.array(spread)).clip(0, 255))
    return tuple(textures)
