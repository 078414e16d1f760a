"""The shift stage: passes corrupted test images through the network and writes the logits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pipeline.config import Data, Evaluation
from pipeline.data.corruptions import COMMON, NAMES, SEVERITIES, check
from pipeline.data.corruptions.image_source import find, source_of
from pipeline.data.dataset import DataSet
from pipeline.data.raw import PIXELS, DataError, Images
from trueodds.errors import ConfigError, unknown
from trueodds.evaluation import shifted_logits
from trueodds.evaluation.splits import balanced_split
from trueodds.logits import Logits
from trueodds.processes import progress

log = logging.getLogger("pipeline.shift")

ALL = "all"
BLOCK = 1 << 26
"""Number of bytes of images that are corrupted and scored at a time."""
LISTS = ("corruptions", "severities")
ALLOWED = {
    "corruptions": "a list of names, such as [fog, snow], or [all]",
    "severities": "a list of whole numbers from 1 to 5",
    "rows": "a whole number from 2",
    "seed": "a whole number from 0",
}
Score = Callable[[Images], npt.NDArray[np.floating]]
"""Function from images (uint8, N x H x W x C) to logits (N x K)."""


@dataclass(frozen=True)
class ShiftOptions:
    """The validated `evaluation.shift_options`."""

    corruptions: tuple[str, ...] = COMMON
    severities: tuple[int, ...] = SEVERITIES
    rows: int | None = None
    """Number of test rows; None: all."""
    seed: int = 0

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> ShiftOptions:
        """Validate the options. Corruptions are put into the published order, severities into ascending order.

        Raises:
            ConfigError: An unknown option or corruption, or a value that is not allowed.
        """
        values: dict[str, Any] = {}
        for name, value in settings.items():
            if name not in ALLOWED:
                raise unknown("option in evaluation.shift_options", name, ALLOWED)
            kind = str if name == "corruptions" else int
            entries = value if name in LISTS else [value]
            least = {"rows": 2, "seed": 0}.get(name)
            if (
                not isinstance(entries, list)
                or not entries
                or any(not isinstance(entry, kind) or isinstance(entry, bool) for entry in entries)
                or (least is not None and entries[0] < least)
            ):
                raise ConfigError(f"evaluation.shift_options.{name} = {value!r}; allowed is {ALLOWED[name]}")
            values[name] = entries if name in LISTS else value
        chosen, severities = values.get("corruptions", COMMON), values.get("severities", SEVERITIES)
        check((name for name in chosen if name != ALL), severities)
        values["corruptions"] = tuple(name for name in NAMES if ALL in chosen or name in chosen)
        return cls(**values | {"severities": tuple(sorted(set(severities)))})


def check_kind(kind: str) -> None:
    """Raise DataError for rows that are not images."""
    if kind not in PIXELS:
        raise DataError(
            f"evaluation.shift is cifar-c, which corrupts images, and the rows are of kind {kind}; set it to null"
        )


def write(settings: Evaluation, data: Data, dataset: DataSet, test: Logits, score: Score, folder: Path) -> None:
    """Corrupt the test images, or read the published files, and write the network's logits.

    Raises:
        ConfigError: The options are not valid.
        DataError: The rows are not images, or the published files do not belong to the test rows.
    """
    options = ShiftOptions.of(settings.shift_options)
    check_kind(dataset.card["input"]["kind"])
    published, (images, labels_N) = find(data.dataset, data.path), dataset.arrays["test"]
    images_NHWC, index_N = cast(Images, images), np.arange(len(labels_N))  # check_kind accepts images only
    if options.rows is not None and options.rows < len(index_N):
        index_N, _ = balanced_split(labels_N, options.rows, options.seed)
    source = source_of(published, (images_NHWC, labels_N), options.corruptions, options.seed)
    log.info("%s%s", source.origin["note"], "" if published is None else f" They are in {published}.")
    step = max(1, BLOCK // images_NHWC[0].nbytes)
    parts = [index_N[begin : begin + step] for begin in range(0, len(index_N), step)]
    with progress.bar(len(options.corruptions) * len(options.severities), "shift", "set") as bar:

        def logits_of(name: str, severity: int) -> npt.NDArray[np.floating]:
            logits_NK = np.concatenate([score(source.images(name, severity, part)) for part in parts])
            bar.update()
            return logits_NK

        description = {"shift": settings.shift, "seed": options.seed, **source.origin}
        clean = test.only(index_N)
        shifted_logits.write(folder, description, index_N, clean, options.corruptions, options.severities, logits_of)
