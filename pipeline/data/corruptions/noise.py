"""Sensor noise.

Each function takes uint8 N x H x W x C, its parameters and a generator per image, and returns 0 to 255.
"""

from __future__ import annotations

import numpy as np

from pipeline.data.corruptions.filters import Floats, Generators
from pipeline.data.corruptions.tables import Parameters
from pipeline.data.raw import Images


def _normal(generators: Generators, shape: tuple[int, ...], scale: float) -> Floats:
    """Draw normal noise for each image from its own generator."""
    return np.stack([generator.normal(size=shape, scale=scale) for generator in generators])


def gaussian_noise(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Add noise: x + e with e ~ N(0, s^2); parameter: s, a fraction of white."""
    noise_NHWC = _normal(generators, images_NHWC.shape[1:], *parameters)
    return (images_NHWC / 255.0 + noise_NHWC).clip(0, 1) * 255


def shot_noise(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Count photons: Poisson(c x) / c; parameter: c, the photons of a white pixel."""
    (quanta,) = parameters
    counts = [
        generator.poisson(image / 255.0 * quanta) for image, generator in zip(images_NHWC, generators, strict=True)
    ]
    return (np.stack(counts) / quanta).clip(0, 1) * 255


def impulse_noise(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Add salt and pepper: each value becomes 0 or 255, with equal chance, with probability a; parameter: a."""
    (amount,) = parameters
    noisy = images_NHWC.astype(np.float64)
    for image, generator in zip(noisy, generators, strict=True):
        lost, white = generator.random(image.shape) <= amount, generator.random(image.shape) <= 0.5
        image[lost] = np.where(white[lost], 255.0, 0.0)
    return noisy


def speckle_noise(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Add noise to brighter pixels more: x + x e with e ~ N(0, s^2); parameter: s."""
    x_NHWC = images_NHWC / 255.0
    return (x_NHWC + x_NHWC * _normal(generators, images_NHWC.shape[1:], *parameters)).clip(0, 1) * 255
