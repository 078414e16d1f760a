"""Your own arrays in an .npz file: images or vectors, with or without a test split."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.data import mapped, vectors
from pipeline.data.raw import DataError, Kind, Raw, check_raw
from trueodds import files

KEYS = ("x_train", "y_train", "x_test", "y_test", "class_names")
WHOLE = {"x": "x_train", "y": "y_train"}
"""Names of arrays that hold all rows, as `trueodds import` uses them."""
_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read(path: Path) -> Raw:
    """Read x_train, y_train, class_names and optionally x_test and y_test; or x and y for rows without a test split.

    Images are uint8 N x H x W x C. Vectors are numbers of any dtype N x D, with NaN for a missing value. feature_names
    has the names of their columns (default x0, x1, ...).

    Raises:
        DataError: The file is damaged, an array is missing or has a wrong dtype or shape, or a label is not a class.
    """
    try:
        arrays = mapped.read_npz(path)
    except files.FileError as error:
        raise DataError(str(error)) from None
    if "x_train" not in arrays:
        arrays = {WHOLE.get(name, name): array for name, array in arrays.items()}
    missing = {"x_train", "y_train", "class_names"} - arrays.keys()
    if ("x_test" in arrays) != ("y_test" in arrays):
        missing |= {"x_test", "y_test"} - arrays.keys()
    if missing:
        held = f"the file has {', '.join(arrays) or 'no array'}; needed are {', '.join(KEYS)}"
        raise DataError(f"{path}: no array {', '.join(sorted(missing))}; {held} (a test split is optional)")
    for key in ("y_train", "y_test"):
        if key in arrays and arrays[key].dtype.kind not in "iu":
            raise DataError(
                f"{path}: {key} has dtype {arrays[key].dtype}; expected integers, the index of each row's class"
            )
    features = _features(path, arrays)
    x_train, x_test = arrays["x_train"], arrays.get("x_test")
    if features:
        x_train = vectors.to_vectors(x_train, features, f"{path}: x_train")
        x_test = None if x_test is None else vectors.to_vectors(x_test, features, f"{path}: x_test")
    return check_raw(
        Raw(
            x_train,
            arrays["y_train"].astype(np.int64),
            x_test,
            arrays["y_test"].astype(np.int64) if "y_test" in arrays else None,
            _texts(arrays["class_names"]),
            features=features,
        ),
        str(path),
    )


def kind_of(path: Path) -> Kind:
    """Return the kind of the rows, from the header of their array alone.

    Raises:
        DataError: As `read`, for a file without such a header.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in ("x_train.npy", "x.npy") if name in archive.namelist())
            with archive.open(name) as file:
                shape, _, _ = _READ_HEADER[np.lib.format.read_magic(file)](file)
    except (zipfile.BadZipFile, StopIteration, KeyError, ValueError, EOFError):
        shape = read(path).x_train.shape
    return "vector" if len(shape) == 2 else "image"


def _features(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> tuple[str, ...]:
    """Return the names of the columns of vectors; none for images."""
    x = arrays["x_train"]
    if x.ndim != 2:
        return ()
    names = _texts(arrays["feature_names"]) if "feature_names" in arrays else tuple(f"x{k}" for k in range(x.shape[1]))
    if len(names) != x.shape[1]:
        raise DataError(f"{path}: feature_names has {len(names)} names, x_train has shape {x.shape}; name each column")
    return names


def _texts(names: npt.NDArray[Any]) -> tuple[str, ...]:
    """Return names as texts; bytes are UTF-8."""
    names = np.atleast_1d(names)
    return tuple(str(name) for name in (np.char.decode(names, "utf-8") if names.dtype.kind == "S" else names))
