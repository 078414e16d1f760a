"""Weather. Each function takes uint8 N x H x W x C, its parameters and a generator per image, and returns 0 to 255."""

from __future__ import annotations

import numpy as np

from pipeline.data.corruptions.filters import Floats, Generators, motion, zoom
from pipeline.data.corruptions.tables import Parameters
from pipeline.data.corruptions.textures import ice, plasma, power_of_two
from pipeline.data.raw import Images

LUMA = np.array([0.299, 0.587, 0.114])
"""Weights of red, green and blue in grey (ITU-R BT.601), as in Pillow and OpenCV."""


def grey(images_NHWC: Floats) -> Floats:
    """Return grey images N x H x W x 1."""
    return images_NHWC if images_NHWC.shape[3] == 1 else (images_NHWC @ LUMA)[..., None]


def snow(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Add falling snowflakes over a whiter image.

    Parameters: mean and standard deviation of a field of noise, its enlargement, the value below which it is no flake;
    radius and standard deviation of the flakes' fall in pixels; the share of the image that is not whitened.
    """
    mean, spread, enlargement, least, radius, sigma, kept = parameters
    x_NHWC = images_NHWC / 255.0
    fields, angles = [], []
    for generator in generators:
        fields.append(generator.normal(mean, spread, images_NHWC.shape[1:3]))
        angles.append(generator.uniform(-135, -45))
    flakes_NHW1 = zoom(np.stack(fields)[..., None], enlargement)
    flakes_NHW1[flakes_NHW1 < least] = 0
    flakes_NHW1 = np.floor(flakes_NHW1.clip(0, 1) * 255)
    fallen = [motion(image, radius, sigma, angle) for image, angle in zip(flakes_NHW1, angles, strict=True)]
    layer_NHW1 = np.round(np.stack(fallen)) / 255
    x_NHWC = kept * x_NHWC + (1 - kept) * np.maximum(x_NHWC, grey(x_NHWC) * 1.5 + 0.5)
    whole: Floats = (x_NHWC + layer_NHW1 + layer_NHW1[:, ::-1, ::-1]).clip(0, 1) * 255
    return whole


def frost(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Mix image and ice: a x + b ice; parameters: a and b.

    The ice is generated (`pipeline.data.corruptions.textures.ice`). The published files cut it from photographs.
    """
    of_image, of_ice = parameters
    height, width, channels = images_NHWC.shape[1:]
    textures = ice(4 * power_of_two(max(height, width)))
    out = np.empty(images_NHWC.shape)
    for image, generator, frozen in zip(images_NHWC, generators, out, strict=True):
        texture = textures[int(generator.integers(len(textures)))]
        top, left = (int(generator.integers(0, len(texture) - edge + 1)) for edge in (height, width))
        crystals = texture[top : top + height, left : left + width]
        frozen[:] = of_image * image + of_ice * (crystals if channels == 3 else (crystals @ LUMA)[..., None])
    return out.clip(0, 255)


def fog(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Add fog: (x + a h) m / (m + a) with h a random height map in [0, 1] and m the image's maximum.

    Parameters: a, and the decay of h.
    """
    thickness, decay = parameters
    height, width = images_NHWC.shape[1:3]
    size = power_of_two(max(height, width))
    maps = [plasma(size, decay, generator)[:height, :width] for generator in generators]
    x_NHWC = images_NHWC / 255.0
    most = x_NHWC.max((1, 2, 3), keepdims=True)
    out: Floats = ((x_NHWC + thickness * np.stack(maps)[..., None]) * most / (most + thickness)).clip(0, 1) * 255
    return out
