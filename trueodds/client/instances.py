"""Converts inputs of any form to the instances of /predict: arrays, files, lists, texts, objects, data frames."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.errors import ConfigError
from trueodds.sums.inputs import check_no_mask, without_tensors
from trueodds.texts import short

LARGE = 50_000
"""Values from which on an image is sent alone, as .npy. As JSON it would take longer to parse than to classify."""
EXPECTED = (
    "uint8 images (N x H x W x C, or one), images of Pillow, paths or bytes of image files, or vectors (an array N x"
    " F, lists of numbers, objects with a number for each feature, or a data frame), or texts"
)
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".tif", ".tiff", ".bmp", ".npy")
"""Suffixes of a name that means a file, never a text, if it has no blanks."""


@dataclass(frozen=True)
class Instance:
    """One encoded row."""

    body: bytes
    is_npy: bool = False
    """True if the row is a request's whole body, in .npy format. Otherwise it is JSON, for a list of instances."""


def instances_of(inputs: Any) -> Iterator[Instance]:
    """Yield the rows of the inputs. Each is encoded when it is reached.

    Raises:
        ConfigError: A row is no input. The message names the row.
        OSError: A file cannot be read.
    """
    for n, row in enumerate(_rows(inputs)):
        try:
            check_no_mask(row, f"row {n}")
        except ValueError as error:
            raise ConfigError(str(error)) from None
        try:
            yield _instance(row)
        except ConfigError as error:
            raise ConfigError(f"row {n} {error}; expected {EXPECTED}") from None


def _rows(inputs: Any) -> Iterable[Any]:
    """Split the inputs into rows; a single row becomes a list of one."""
    inputs = without_tensors(inputs)
    if hasattr(inputs, "columns") and (hasattr(inputs, "itertuples") or hasattr(inputs, "iter_rows")):
        return _frame_rows(inputs)
    if isinstance(inputs, np.ndarray):
        return _array_rows(inputs)
    if hasattr(inputs, "to_frame") and hasattr(inputs, "index") and _is_frame_row(inputs):
        return [dict(inputs.items())]
    if isinstance(inputs, bytes | bytearray | str | Path | Mapping) or _is_picture(inputs):
        return [inputs]
    if not isinstance(inputs, Iterable):
        raise ConfigError(f"the inputs are {short(inputs)}; expected {EXPECTED}")
    if isinstance(inputs, Sequence) and inputs and all(_is_number(value) for value in inputs):
        return [inputs]
    return inputs


def _frame_rows(frame: Any) -> Iterator[dict[str, Any]]:
    """Return the rows of a data frame of pandas or Polars as objects, by its columns' names. The index is left out."""
    names = [str(name) for name in frame.columns]
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise ConfigError(f"the data frame has the column {twice[0]!r} twice; give each feature one column")
    rows = frame.itertuples(index=False, name=None) if hasattr(frame, "itertuples") else frame.iter_rows()
    return ({name: _cell(value) for name, value in zip(names, row, strict=True)} for row in rows)


def _is_frame_row(series: Any) -> bool:
    """Return whether a series of pandas is one row of a data frame, by the names of its columns, and not many texts."""
    return len(series) > 0 and all(isinstance(name, str) and _is_number(value) for name, value in series.items())


def _cell(value: Any) -> Any:
    """Return None for a missing value of pandas, which is equal to nothing."""
    try:
        return value if value == value else None
    except TypeError:  # pandas' NA has no truth value
        return None


def _array_rows(array: npt.NDArray[Any]) -> Iterable[Any]:
    """Split an array into rows; a single image or vector becomes a list of one."""
    if array.dtype.kind in "OU":
        return array.tolist() if array.ndim == 1 else [array]
    is_image = array.dtype == np.uint8 and array.ndim in (2, 3, 4)
    is_one = array.ndim == (2 if is_image else 1) or (array.ndim == 3 and array.shape[2] in (1, 3))
    return [array] if is_one or array.ndim == 0 else array


def _instance(row: Any) -> Instance:
    """Encode one row."""
    row = _file_of(row) if _is_picture(row) else without_tensors(row)
    if isinstance(row, np.ndarray) and row.dtype.kind in "uif" and row.ndim:
        return _of_array(row)
    if isinstance(row, bytes | bytearray):
        return _json({"b64": base64.b64encode(row).decode()})
    if isinstance(row, str) and not _is_file(row):
        if row.lower().endswith(PICTURES) and not any(map(str.isspace, row)):
            cure = 'check the path, or send {"text": ".."} if it is a text'
            raise ConfigError(f"is {short(row)}, which is not a file on this machine; {cure}")
        return _json({"text": str(row)})
    if isinstance(row, str | Path):
        return _json({"b64": base64.b64encode(Path(row).read_bytes()).decode()})
    if isinstance(row, Mapping) and row.keys() == {"text"} and isinstance(row["text"], str):
        return _json({"text": row["text"]})
    if isinstance(row, Mapping):
        return _json({str(name): _number(value, f"feature {name!r}") for name, value in row.items()})
    if isinstance(row, Sequence):
        return _json([_number(value, f"value {k}") for k, value in enumerate(row)])
    raise ConfigError(f"is {short(row)}")


def _is_picture(value: Any) -> bool:
    """Return whether this is an image of Pillow, which is not imported for it."""
    return all(hasattr(value, name) for name in ("mode", "save", "getexif"))


def _file_of(picture: Any) -> bytes:
    """Return an image of Pillow as PNG, so that the service scales, turns and converts it as it does a file."""
    file = io.BytesIO()
    try:
        picture.save(file, "PNG", compress_level=1, exif=picture.getexif())
    except OSError:  # PNG has no such mode
        raise ConfigError(f"is an image of mode {picture.mode!r}; convert it: image.convert('RGB')") from None
    return file.getvalue()


def _of_array(row: npt.NDArray[Any]) -> Instance:
    """Encode pixels or features in the array's shape. A service that requires another shape reports it."""
    if row.ndim > 1 and row.dtype != np.uint8:
        raise ConfigError(
            f"is an image of {row.dtype}; pixels are uint8, 0 to 255, not scaled: (x * 255).round().astype(numpy.uint8)"
            " where x is 0 to 1"
        )
    if row.ndim > 1 and row.size >= LARGE:
        file = io.BytesIO()
        np.save(file, row)
        return Instance(file.getvalue(), is_npy=True)
    if row.ndim > 1 or row.dtype.kind != "f" or np.isfinite(row).all():
        return _json(row.tolist())
    return _json([_number(value, f"value {k}") for k, value in enumerate(row.tolist())])


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # the text is too long for a file name
        return False


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool))


def _number(value: Any, name: str) -> float | int | None:
    """Return a feature as a JSON number; None if it is missing (None or NaN)."""
    if not _is_number(value):
        raise ConfigError(f"has {short(value)} as {name}, which is not a number")
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        raise ConfigError(f"has {value} as {name}; allowed are finite numbers, and NaN or None for a missing value")
    return int(value) if isinstance(value, int | np.integer) else float(value)


def _json(value: Any) -> Instance:
    return Instance(json.dumps(value, separators=(",", ":")).encode())
