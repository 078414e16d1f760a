"""Test images under corruptions, passed through the network: the logits that the shift's figures are computed from."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from pipeline.config import Data, Evaluation
from pipeline.data.corruptions import COMMON, NAMES, check
from pipeline.data.corruptions.source import find, source_of
from pipeline.data.dataset import DataSet
from pipeline.data.raw import DataError, Images
from trueodds.evaluation import shifted_logits
from trueodds.evaluation.splits import balanced
from trueodds.logits import Logits
from trueodds.processes import progress

log = logging.getLogger("pipeline.shift")

ALL = "all"
BLOCK = 1 << 26
"""Bytes of images that are corrupted and scored at a time."""
Score = Callable[[Images], npt.NDArray[np.floating]]
"""uint8 N x H x W x C -> logits N x K."""


def names_of(settings: Evaluation) -> tuple[str, ...]:
    """The corruptions that the settings ask for, in the published order.

    Raises:
        ConfigError: one that is not there.
    """
    chosen = settings.shift_corruptions
    check(name for name in chosen if name != ALL)
    if not chosen:
        return COMMON
    return tuple(name for name in NAMES if ALL in chosen or name in chosen)


def check_kind(kind: str) -> None:
    """Raises DataError for rows that are no images."""
    if kind != "image":
        raise DataError(
            f"evaluation.shift is cifar-c, which corrupts images, and the rows are of kind {kind}; set it to null"
        )


@dataclass(frozen=True)
class Rows:
    """Which test rows, with their labels and their logits as they are."""

    index_N: npt.NDArray[np.intp]
    clean: Logits


def rows_of(settings: Evaluation, test: Logits) -> Rows:
    """`shift_rows` of the test rows, class-balanced, or all if there are no more."""
    index, size = np.arange(len(test.labels_N)), settings.shift_rows
    if size is not None and size < len(index):
        index, _ = balanced(test.labels_N.astype(np.int64), size, settings.shift_seed)
    return Rows(index, Logits(test.logits_NC[index], test.labels_N[index]))


def write(settings: Evaluation, data: Data, dataset: DataSet, test: Logits, score: Score, folder: Path) -> None:
    """Corrupts the test images, or reads the published files, and writes what the network makes of them.

    Raises:
        ConfigError: a corruption that is not there.
        DataError: rows that are no images; published files that are not those of the test rows.
    """
    names, severities = names_of(settings), sorted(set(settings.shift_severities))
    check_kind(dataset.card["input"]["kind"])
    rows, published = rows_of(settings, test), find(data.dataset, data.path)
    images, labels_N = dataset.arrays["test"]
    images_NHWC = cast(Images, images)  # by their kind
    source = source_of(published, (images_NHWC, labels_N), names, settings.shift_seed)
    log.info("%s%s", source.origin["note"], "" if published is None else f" They are in {published}.")
    step = max(1, BLOCK // images_NHWC[0].nbytes)
    parts = [rows.index_N[begin : begin + step] for begin in range(0, len(rows.index_N), step)]
    with progress.bar(len(names) * len(severities), "shift", "set") as bar:

        def logits_of(name: str, severity: int) -> npt.NDArray[np.floating]:
            logits_NK = np.concatenate([score(source.images(name, severity, part)) for part in parts])
            bar.update()
            return logits_NK

        description = {"shift": settings.shift, "seed": settings.shift_seed, **source.origin}
        shifted_logits.write(folder, description, rows.index_N, rows.clean, names, severities, logits_of)
