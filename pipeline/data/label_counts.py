"""Counts of human votes per class for each test row: CIFAR-10H (Peterson et al. 2019), or a file of your own."""

from __future__ import annotations

import io
import logging
import os
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from pipeline.data.dataset import DataSet
from pipeline.data.raw import DataError
from trueodds.files import read_npz, write_bytes, write_npz
from trueodds.sums.inputs import check_counts

log = logging.getLogger("pipeline.data")

CIFAR10H = "cifar10h"
FILE = "cifar10h-counts.npy"
URL = f"https://raw.githubusercontent.com/jcpeterson/cifar-10h/master/data/{FILE}"
CIFAR10H_ROWS, CIFAR10H_LEAST_VOTES = 10_000, 40
LEAST_AGREEMENT = 0.8
"""Smallest allowed share of rows whose most frequent vote is their label; in CIFAR-10H it is .99."""
KEY = "counts"
Counts = npt.NDArray[np.int64]


def load(source: str, data: DataSet, folder: Path, downloads: Path) -> Counts:
    """Return vote counts (N, C) of the data set's test rows, in the order of its rows and classes.

    Args:
        source: A .npy file, or cifar10h, which is read from $TRUEODDS_DATA or `folder`, or downloaded. It has no
            published checksum, so its content is checked instead.
        data: The data set.
        folder: A folder to search for cifar10h.
        downloads: Folder of downloads.

    Raises:
        DataError: The file does not exist, there is no network, or the counts have another shape, invalid values, or
            rows in another order.
    """
    path = _cifar10h(folder, downloads) if source == CIFAR10H else Path(source)
    if not path.is_file():
        allowed = f"the path of a .npy file, or {CIFAR10H}"
        raise DataError(f"data.label_counts is {source!r}, which does not exist; give {allowed}")
    try:
        held: Any = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path} is not a .npy file of numbers ({error}); write it with np.save") from None
    labels, classes = data.arrays["test"][1], len(data.card["classes"])
    if not isinstance(held, np.ndarray) or held.shape != (len(labels), classes):
        raise DataError(
            f"{path} holds {getattr(held, 'shape', 'several arrays')}; expected ({len(labels)}, {classes}): for each"
            f" test row of {data.card['name']}, in their order, the votes for each class, without"
            " rows that data.duplicates leaves out"
        )
    try:
        counts = check_counts(held, str(path))
    except ValueError as error:
        raise DataError(str(error)) from None
    agreement = float((counts.argmax(axis=1) == labels).mean())
    if agreement < LEAST_AGREEMENT:
        raise DataError(
            f"{path}: the most frequent vote is the label of {agreement:.1%} of the test rows; allowed is"
            f" at least {LEAST_AGREEMENT:.0%}. Order its rows as the test rows, and its columns as"
            f" the classes: {', '.join(data.card['classes'][:10])}"
        )
    log.info(
        "%s: %.1f votes per test row; the most frequent is the label of %.1f%%",
        path,
        counts.sum(axis=1).mean(),
        100 * agreement,
    )
    return counts


def write(path: Path, counts: Counts | None) -> None:
    """Write the counts, or an empty file if there are none."""
    write_npz(path, {} if counts is None else {KEY: counts})


def read(path: Path) -> Counts | None:
    """Read counts that `write` wrote; None if there are none."""
    return read_npz(path).get(KEY)


def _cifar10h(folder: Path, downloads: Path) -> Path:
    """Return the file of CIFAR-10H, downloaded if it is not at hand."""
    mirror = os.environ.get("TRUEODDS_DATA")
    for place in [*([Path(mirror)] if mirror else []), folder, downloads]:
        if (place / FILE).is_file():
            return place / FILE
    downloads.mkdir(parents=True, exist_ok=True)
    path = downloads / FILE
    with FileLock(downloads / f"{CIFAR10H}.lock"):
        if path.is_file():  # of two simultaneous runs, one downloads and the other waits
            return path
        try:
            with urllib.request.urlopen(URL, timeout=60) as answer:
                content = answer.read()
        except OSError as error:
            raise DataError(
                f"{CIFAR10H} could not be downloaded from {URL} ({error}). Without a network, put {FILE} into a folder"
                " and set TRUEODDS_DATA=<folder>"
            ) from None
        _check_download(content)
        write_bytes(path, content)
    return path


def _check_download(content: bytes) -> None:
    """Raise DataError unless shape and smallest vote count are those of CIFAR-10H, which has no published checksum."""
    try:
        votes_N = check_counts(np.load(io.BytesIO(content), allow_pickle=False), FILE).sum(axis=1)
        sound = votes_N.shape == (CIFAR10H_ROWS,) and votes_N.min() >= CIFAR10H_LEAST_VOTES
    except (ValueError, OSError, EOFError):
        sound = False
    if not sound:
        expected = f"{CIFAR10H_ROWS:,} rows of counts with at least {CIFAR10H_LEAST_VOTES} votes each"
        raise DataError(f"{CIFAR10H}: the download from {URL} is damaged; expected are {expected}. Run again")
