"""A data set as it comes: named arrays, checked, before any validation split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from trueodds import files
from trueodds.errors import UserError

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
KEYS = ("x_train", "y_train", "x_test", "y_test", "class_names")


@dataclass(frozen=True)
class ImageFiles:
    """Images that are still files, a row each: what its array will be, height x width x channels, without the array.

    side: the edge to which each image is brought (`trueodds.inputs.image.pictures.Scaling`); None: they
        have that size already.
    """

    paths: Sequence[Path]
    height: int
    width: int
    channels: int
    side: int | None = None
    dtype = np.dtype(np.uint8)
    ndim = 4

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.paths), self.height, self.width, self.channels


Rows: TypeAlias = Images | ImageFiles
"""Images as an array, or as files that are still to be decoded (`pipeline.data.image_files.gather`)."""


class DataError(UserError, ValueError):
    """Data that cannot be used; the message names the file, what was found, what is allowed and the cure."""


@dataclass(frozen=True)
class Raw:
    """Training and test rows. Images are uint8 N x H x W x C, labels int64 0..len(classes)-1."""

    x_train: Rows
    y_train: Labels
    x_test: Rows | None
    y_test: Labels | None
    classes: tuple[str, ...]
    resized: bool = False


def checked(raw: Raw, source: str) -> Raw:
    """`raw`, if its arrays fit together.

    Raises:
        DataError: naming the source and the array.
    """
    if len(raw.classes) < 2 or len(set(raw.classes)) != len(raw.classes):
        raise DataError(f"{source}: class_names must be at least two different names; found {list(raw.classes)[:10]}")
    _check_split(source, "train", raw.x_train, raw.y_train, raw.classes)
    if raw.x_test is None or raw.y_test is None:
        return raw
    _check_split(source, "test", raw.x_test, raw.y_test, raw.classes)
    if raw.x_test.shape[1:] != raw.x_train.shape[1:]:
        raise DataError(
            f"{source}: test images are {_size(raw.x_test)}, training images {_size(raw.x_train)};"
            " bring both to one size"
        )
    return raw


def read_npz(path: Path) -> Raw:
    """x_train, y_train, class_names and, if there is a test split, x_test and y_test; uint8 N x H x W x C.

    Raises:
        DataError: damaged file, missing array, wrong dtype or shape, labels outside the classes.
    """
    try:
        arrays = files.read_npz(path)
    except files.FileError as error:
        raise DataError(str(error)) from None
    missing = {"x_train", "y_train", "class_names"} - arrays.keys()
    if ("x_test" in arrays) != ("y_test" in arrays):
        missing |= {"x_test", "y_test"} - arrays.keys()
    if missing:
        held = f"it holds {', '.join(arrays) or 'nothing'}; needed are {', '.join(KEYS)}"
        raise DataError(f"{path}: no array {', '.join(sorted(missing))}; {held} (a test split is optional)")
    names = np.atleast_1d(arrays["class_names"])
    if names.dtype.kind == "S":
        names = np.char.decode(names, "utf-8")
    for key in ("y_train", "y_test"):
        if key in arrays and arrays[key].dtype.kind not in "iu":
            raise DataError(
                f"{path}: {key} has dtype {arrays[key].dtype}; expected integers, the index of each row's class"
            )
    return checked(
        Raw(
            arrays["x_train"],
            arrays["y_train"].astype(np.int64),
            arrays.get("x_test"),
            arrays["y_test"].astype(np.int64) if "y_test" in arrays else None,
            tuple(str(name) for name in names),
        ),
        str(path),
    )


def _check_split(source: str, split: str, x: Rows, y: Labels, classes: tuple[str, ...]) -> None:
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] not in (1, 3) or 0 in x.shape:
        raise DataError(
            f"{source}: x_{split} is {x.dtype} of shape {x.shape}; expected uint8 (rows, height, width, channels)"
            " with 1 or 3 channels"
        )
    if y.shape != x.shape[:1]:
        raise DataError(
            f"{source}: y_{split} has shape {y.shape}; expected ({x.shape[0]},), one label for each of x_{split}"
        )
    if y.min() < 0 or y.max() >= len(classes):
        bad = int(y[(y < 0) | (y >= len(classes))][0])
        raise DataError(
            f"{source}: y_{split} holds the label {bad}; allowed are 0..{len(classes) - 1}, one for each of class_names"
        )


def _size(x: Rows) -> str:
    return " x ".join(map(str, x.shape[1:]))
