"""Blurs. Each function takes uint8 N x H x W x C, its parameters and a generator per image, and returns 0 to 255."""

from __future__ import annotations

import numpy as np

from pipeline.data.corruptions.filters import Floats, Generators, correlate, disk, gaussian, motion, zoom
from pipeline.data.corruptions.tables import Parameters
from pipeline.data.raw import Images


def gaussian_blur(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Blur by a Gaussian; parameter: its standard deviation in pixels."""
    return gaussian(images_NHWC / 255.0, *parameters).clip(0, 1) * 255


def defocus_blur(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Blur as a defocused lens does.

    Parameters, in pixels: the radius of the disk that a point becomes, and the standard deviation of its edge.
    """
    return correlate(images_NHWC / 255.0, disk(*parameters)).clip(0, 1) * 255


def motion_blur(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Blur along a line within 45 degrees of horizontal.

    Parameters, in pixels: radius and standard deviation of the line.
    """
    radius, sigma = parameters
    blurred = [
        motion(image.astype(np.float64), radius, sigma, generator.uniform(-45, 45))
        for image, generator in zip(images_NHWC, generators, strict=True)
    ]
    return np.stack(blurred).clip(0, 255)


def zoom_blur(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Average the image and its enlargements by 1, 1 + step ..; parameters: the end (excluded) and the step."""
    end, step = parameters
    factors = np.arange(1, end, step)
    x_NHWC = images_NHWC / 255.0
    total_NHWC = x_NHWC + sum(zoom(x_NHWC, float(factor)) for factor in factors)
    return (total_NHWC / (len(factors) + 1)).clip(0, 1) * 255


def glass_blur(images_NHWC: Images, parameters: Parameters, generators: Generators) -> Floats:
    """Blur, move pixels at random, and blur again.

    Parameters: standard deviation of the blur, largest move in pixels, number of rounds. As in the published code, a
    move copies one pixel over the other: it swaps two views of numpy.
    """
    sigma, farthest, rounds = parameters[0], int(parameters[1]), int(parameters[2])
    blurred_NHWC = (gaussian(images_NHWC / 255.0, sigma) * 255).astype(np.uint8)
    height, width = blurred_NHWC.shape[1:3]
    rows, columns = (range(edge - farthest, farthest, -1) for edge in (height, width))
    moved = np.empty_like(blurred_NHWC)
    for image, generator, out in zip(blurred_NHWC, generators, moved, strict=True):
        steps = generator.integers(-farthest, farthest, size=(rounds * len(rows) * len(columns), 2)).tolist()
        source = list(range(height * width))
        step = iter(steps)
        for _ in range(rounds):
            for row in rows:
                for column in columns:
                    right, down = next(step)
                    source[row * width + column] = source[(row + down) * width + column + right]
        out[:] = image.reshape(height * width, -1)[source].reshape(image.shape)
    return gaussian(moved / 255.0, sigma).clip(0, 1) * 255
