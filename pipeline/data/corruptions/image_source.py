"""Sources of corrupted test images: published files of CIFAR-10-C and CIFAR-100-C if present, else computed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.data.corruptions.corrupt import corrupt
from pipeline.data.corruptions.tables import SEVERITIES, table_of
from pipeline.data.raw import DataError, Images, Labels

FOLDERS = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}
"""Data set -> folder of its published files, searched in <TRUEODDS_DATA>/ and data.path/."""
LABELS = "labels.npy"
SOURCE = "zenodo.org/records/2535967 (CIFAR-10-C) or 3555552 (CIFAR-100-C)"
Index = npt.NDArray[np.intp]


class ImageSource(Protocol):
    """Protocol of a source of corrupted images."""

    @property
    def origin(self) -> dict[str, Any]:
        """`source` (published or computed), `note` (a sentence about the difference), and `table` if computed."""

    def images(self, name: str, severity: int, rows_N: Index) -> Images:
        """Return some of the test rows after one corruption, uint8 N x H x W x C."""


@dataclass(frozen=True)
class PublishedImages:
    """The published files: <corruption>.npy with five blocks of all test images, one block per severity."""

    folder: Path
    test_rows: int

    @property
    def origin(self) -> dict[str, Any]:
        """Source and note for the card."""
        return {"source": "published", "note": f"The corrupted images are the published files of {self.folder.name}."}

    def images(self, name: str, severity: int, rows_N: Index) -> Images:
        """Return some of the test rows after one corruption."""
        array = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return np.asarray(array[(severity - 1) * self.test_rows + rows_N])


@dataclass(frozen=True)
class ComputedImages:
    """Corruptions computed by `corrupt`, with the table for the images' size."""

    clean_NHWC: Images
    seed: int

    @property
    def origin(self) -> dict[str, Any]:
        """Source, table and note for the card."""
        table = table_of(*self.clean_NHWC.shape[1:3]).name
        words = {"cifar": "CIFAR-10-C and CIFAR-100-C", "imagenet": "ImageNet-C"}[table]
        return {
            "source": "computed",
            "table": table,
            "note": f"The corrupted images were computed here, with the parameters of {words}; frost uses generated"
            " textures instead of photographs. Figures differ from those on the published files.",
        }

    def images(self, name: str, severity: int, rows_N: Index) -> Images:
        """Return some of the test rows after one corruption."""
        return corrupt(self.clean_NHWC[rows_N], name, severity, seed=self.seed, rows_N=rows_N)


def find(dataset: str, data_path: str) -> Path | None:
    """Return the folder with the published files of this data set, or None if there is none."""
    if dataset not in FOLDERS:
        return None
    places = [Path(place) for place in (os.environ.get("TRUEODDS_DATA"), data_path) if place]
    return next((folder for place in places if (folder := place / FOLDERS[dataset]).is_dir()), None)


def source_of(folder: Path | None, test: tuple[Images, Labels], names: Sequence[str], seed: int) -> ImageSource:
    """Return the published files in `folder`, after a check, or the computed corruptions if `folder` is None.

    Raises:
        DataError: A file is missing or has another shape, or its labels are not those of the test rows.
    """
    images_NHWC, labels_N = test
    if folder is None:
        return ComputedImages(images_NHWC, seed)
    shape = (len(SEVERITIES) * len(labels_N), *images_NHWC.shape[1:])
    stored = _read(folder / LABELS)
    _check(folder / LABELS, stored, shape[:1])
    if not np.issubdtype(stored.dtype, np.integer) or (stored.reshape(len(SEVERITIES), -1) != labels_N).any():
        raise DataError(
            f"{folder / LABELS} does not hold the labels of the test rows, five times in their order; use the files of"
            f" {SOURCE}, or move the folder away to compute the corruptions"
        )
    for name in names:
        _check(folder / f"{name}.npy", _read(folder / f"{name}.npy"), shape, np.dtype(np.uint8))
    return PublishedImages(folder, len(labels_N))


def _read(path: Path) -> npt.NDArray[Any]:
    """Open an .npy file without loading it; raise DataError if it is missing or damaged."""
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        problem = "does not exist"
    except (OSError, ValueError, EOFError) as error:
        problem = f"is not a whole .npy file ({error})"
    else:
        return array
    raise DataError(
        f"{path} {problem}; get it from {SOURCE}, leave its corruption out of evaluation.shift_options.corruptions, or"
        " move the folder away to compute all corruptions"
    )


def _check(path: Path, array: npt.NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any] | None = None) -> None:
    """Raise DataError if an array has another shape or dtype than expected."""
    if array.shape != shape or array.dtype != (dtype or array.dtype):
        wanted = f"{dtype or 'integers'} of shape {shape}"
        raise DataError(
            f"{path} is {array.dtype} of shape {array.shape}; expected {wanted}: severities 1 to 5 of the"
            f" {shape[0] // len(SEVERITIES):,} test rows, one after the other. Get it from {SOURCE}. If"
            " data.duplicates leaves test rows out, move the folder away to compute the corruptions"
        )
