"""How many people labelled each test row as what: CIFAR-10H (Peterson et al. 2019), or counts of one's own."""

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
"""Share of rows whose commonest vote is their label; CIFAR-10H's people chose it in .99 of them."""
KEY = "counts"
Counts = npt.NDArray[np.int64]


def load(source: str, data: DataSet, folder: Path, downloads: Path) -> Counts:
    """Counts (N, C) of the data set's test rows, in their order and that of its classes.

    source: a .npy file, or cifar10h, which is taken from $TRUEODDS_DATA or `folder`, or downloaded. No checksum of it
    is published; what it holds is checked.

    Raises:
        DataError: no such file, no network, counts of another shape, that are none, or of rows in another order.
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
            f" test row of {data.card['name']}, in their order, the votes for each class, and none for"
            " rows that data.duplicates leaves out"
        )
    try:
        counts = check_counts(held, str(path))
    except ValueError as error:
        raise DataError(str(error)) from None
    agreement = float((counts.argmax(axis=1) == labels).mean())
    if agreement < LEAST_AGREEMENT:
        raise DataError(
            f"{path}: the commonest vote is the label of {agreement:.1%} of the test rows; allowed is"
            f" {LEAST_AGREEMENT:.0%} and more. Bring its rows into the order of the test rows, and its columns into"
            f" that of the classes: {', '.join(data.card['classes'][:10])}"
        )
    log.info("%s: %.1f votes a test row, the commonest is the label of %.1f%%", path, _votes(counts), 100 * agreement)
    return counts


def write(path: Path, counts: Counts | None) -> None:
    """A file that holds the counts, or none."""
    write_npz(path, {} if counts is None else {KEY: counts})


def read(path: Path) -> Counts | None:
    """What `write` wrote."""
    return read_npz(path).get(KEY)


def _votes(counts: Counts) -> float:
    return float(counts.sum(axis=1).mean())


def _cifar10h(folder: Path, downloads: Path) -> Path:
    mirror = os.environ.get("TRUEODDS_DATA")
    for place in [*([Path(mirror)] if mirror else []), folder, downloads]:
        if (place / FILE).is_file():
            return place / FILE
    downloads.mkdir(parents=True, exist_ok=True)
    path = downloads / FILE
    with FileLock(downloads / f"{CIFAR10H}.lock"):
        if path.is_file():  # two runs at once: one downloads, the other finds it there
            return path
        try:
            with urllib.request.urlopen(URL, timeout=60) as answer:
                content = answer.read()
        except OSError as error:
            raise DataError(
                f"{CIFAR10H} could not be downloaded from {URL} ({error}). Without a network, put {FILE} into a folder"
                " and name that folder: TRUEODDS_DATA=<folder>"
            ) from None
        _check_download(content)
        write_bytes(path, content)
    return path


def _check_download(content: bytes) -> None:
    """In place of a checksum, which is not published: the shape, and the fewest votes of a row."""
    try:
        votes_N = check_counts(np.load(io.BytesIO(content), allow_pickle=False), FILE).sum(axis=1)
        sound = votes_N.shape == (CIFAR10H_ROWS,) and votes_N.min() >= CIFAR10H_LEAST_VOTES
    except (ValueError, OSError, EOFError):
        sound = False
    if not sound:
        expected = f"{CIFAR10H_ROWS:,} rows of counts with {CIFAR10H_LEAST_VOTES} votes and more each"
        raise DataError(f"{CIFAR10H}: the download from {URL} is damaged; expected are {expected}. Run again")
