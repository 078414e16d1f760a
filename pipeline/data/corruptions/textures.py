"""Random textures: fog as a height map, and ice, in place of the photographs that the published frost is made of."""

from __future__ import annotations

from functools import cache

import numpy as np

from pipeline.data.corruptions.filters import Floats

WIBBLE = 100.0
TEXTURES = 5
"""Of ice. The published code draws among five photographs, too."""
ROUGHNESS = 1.8
ICE = (
    ((78, 149, 166), (27, 16, 15)),
    ((201, 205, 214), (21, 22, 23)),
    ((201, 205, 214), (21, 22, 23)),
    ((138, 153, 165), (28, 28, 30)),
    ((112, 123, 135), (44, 43, 42)),
)
"""Mean and standard deviation of red, green and blue (0 to 255) of the five photographs of the published code."""


def power_of_two(size: int) -> int:
    """The smallest power of two that is not below `size`."""
    return 1 << max(size - 1, 1).bit_length()


def plasma(size: int, decay: float, generator: np.random.Generator) -> Floats:
    """A height map in 0 to 1, size x size, size a power of two, that goes on over its edges (diamond-square).

    decay: by how much each halving of the grid's step lowers the random part; the smaller, the rougher.
    """
    heights = np.empty((size, size))
    heights[0, 0] = 0.0
    step, wibble = size, WIBBLE

    def mean(sums: Floats, wibble: float) -> Floats:
        # `wibble` twice, as in the published code; divided by the maximum, only its ratios matter.
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
    """TEXTURES of ice needles on glass, size x size x 3, size a power of two, in 0 to 255; always the same.

    Ridges, 1 - |2 h - 1| of a rough height map h, stretched in a direction of their own, two maps over each other;
    shifted and scaled to the mean and standard deviation of ICE, colour by colour.
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
