"""Corruptions of images by name."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from pipeline.data.corruptions import blur, digital, noise, spatter, weather
from pipeline.data.corruptions.filters import Floats, Generators
from pipeline.data.corruptions.tables import COMMON, EXTRA, SEVERITIES, Parameters, Table, table_of
from pipeline.data.raw import Images
from trueodds.errors import ConfigError, unknown

NAMES = (*COMMON, *EXTRA)
VALUES = 1 << 22
"""Pixels times channels in a block: 32 MB as float64."""
_MODULES = (noise, blur, weather, digital, spatter)
FUNCTIONS: dict[str, Callable[[Images, Parameters, Generators], Floats | Images]] = {
    name: next(getattr(module, name) for module in _MODULES if hasattr(module, name)) for name in NAMES
}
"""The function of each corruption, which has its name."""


def check(names: Iterable[str], severities: Iterable[int] = SEVERITIES) -> None:
    """Raise ConfigError for an unknown corruption or severity.

    Raises:
        ConfigError: The message has the value, the allowed values and the nearest one.
    """
    for name in names:
        if name not in NAMES:
            raise unknown("corruption", name, NAMES)
    for severity in severities:
        if severity not in SEVERITIES:
            raise ConfigError(
                f"severity {severity} of a corruption is unknown; allowed are {SEVERITIES[0]} to {SEVERITIES[-1]}"
                " (severity 0, the unchanged images, is always measured)"
            )


def corrupt(
    images_NHWC: Images,
    name: str,
    severity: int,
    *,
    seed: int = 0,
    rows_N: npt.NDArray[np.integer] | None = None,
    table: Table | None = None,
) -> Images:
    """Corrupt images at one severity.

    The random numbers of row n depend on the seed, the name, the severity and the row's number alone, not on other
    rows.

    Args:
        images_NHWC: uint8 images of any size, with 1 or 3 channels.
        name: One of NAMES.
        severity: 1 to 5.
        seed: Seed of the random numbers.
        rows_N: Numbers of the rows; None means 0, 1, ...
        table: The parameters; None selects them by the images' size.

    Returns:
        uint8 images of the same shape.

    Raises:
        ConfigError: The name or the severity is unknown.

    Examples:
        >>> corrupt(np.full((1, 8, 8, 1), 100, np.uint8), "brightness", 1)[0, 0, 0]
        array([112], dtype=uint8)
    """
    check([name], [severity])
    _, height, width, channels = images_NHWC.shape
    parameters = (table or table_of(height, width)).rows[name][severity - 1]
    numbers = np.arange(len(images_NHWC)) if rows_N is None else rows_N
    out, step = np.empty_like(images_NHWC), max(1, VALUES // (height * width * channels))
    for begin in range(0, len(images_NHWC), step):
        part = slice(begin, begin + step)
        generators = [
            np.random.default_rng([seed, zlib.crc32(name.encode()), severity, int(row)]) for row in numbers[part]
        ]
        # Truncated, not rounded, as the published files were.
        out[part] = FUNCTIONS[name](images_NHWC[part], parameters, generators).astype(np.uint8)
    return out
