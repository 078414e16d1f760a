"""Images with labels to replay: an .npz file, or a folder with one folder for each class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from service.cli.replay import ReplayError
from trueodds import files
from trueodds.inputs.image import pictures
from trueodds.inputs.image.pictures import PictureError, Pixels, Scaling

SPLITS = ("test", "val", "train", "held_out")
"""The first one that is there is taken: a model should be watched on what it has not learnt from."""
SUFFIXES = {".png", ".jpg", ".jpeg"}
KEPT_IMAGES = 4096


@dataclass(frozen=True)
class Shape:
    """The inputs and the number of classes of the served model, as the service says."""

    height: int
    width: int
    channels: int
    classes: int

    def __str__(self) -> str:
        return f"{self.height} x {self.width} x {self.channels}"


@dataclass(frozen=True)
class Source:
    """Rows to draw from; `image` gives one as H x W x C uint8."""

    name: str
    image: Callable[[int], Pixels]
    labels_N: npt.NDArray[np.int64]
    classes: tuple[str, ...] | None
    """Names of the labels; without them labels are sent as indices."""

    def __len__(self) -> int:
        return len(self.labels_N)

    def label(self, index: int) -> str | int:
        """A label as it is sent."""
        return index if self.classes is None else self.classes[index]


def read(path: Path, shape: Shape, split: str | None = None) -> Source:
    """`path`: an .npz with x_<split>, y_<split> and maybe class_names, or a folder <split>/<class>/*.png.

    `artifacts/data/arrays.npz`, which `dvc repro` writes, is one. `split`: left out, the first of SPLITS that is
    there. A folder's images are scaled and cut as the service does, to the size that the model takes.

    Raises:
        ReplayError: what is missing, damaged, or does not fit the model; the message says what is allowed.
    """
    if not path.exists():
        raise ReplayError(f"{path} does not exist; give an .npz file or a folder of images (dvc repro writes one)")
    try:
        return _folder(path, shape, split) if path.is_dir() else _npz(path, shape, split)
    except files.FileError as error:
        raise ReplayError(str(error)) from None


def _npz(path: Path, shape: Shape, split: str | None) -> Source:
    arrays = files.read_npz(path)
    there = [name.removeprefix("x_") for name in arrays if name.startswith("x_") and f"y_{name[2:]}" in arrays]
    split = _split(path, split, there, "x_<split> and y_<split>")
    images_NHWC, labels_N = arrays[f"x_{split}"], arrays[f"y_{split}"]
    if images_NHWC.ndim == 3:
        images_NHWC = images_NHWC[..., None]
    model_shape = (shape.height, shape.width, shape.channels)
    if images_NHWC.dtype != np.uint8 or images_NHWC.shape[1:] != model_shape or not len(images_NHWC):
        array = f"{images_NHWC.dtype} of shape {images_NHWC.shape}"
        raise ReplayError(f"{path}: x_{split} is {array}; the model takes uint8, N x {shape}, N from 1 on")
    if labels_N.dtype.kind not in "iu" or labels_N.shape != (len(images_NHWC),):
        array = f"{labels_N.dtype} of shape {labels_N.shape}"
        raise ReplayError(f"{path}: y_{split} is {array}; expected {len(images_NHWC)} integers, one for each image")
    classes = None
    if "class_names" in arrays:
        names = np.atleast_1d(arrays["class_names"])
        classes = tuple(str(n) for n in (np.char.decode(names, "utf-8") if names.dtype.kind == "S" else names))
    _check_labels(f"{path}: y_{split}", labels_N, shape.classes if classes is None else len(classes))
    return Source(f"{path} ({split})", images_NHWC.__getitem__, labels_N.astype(np.int64), classes)


def _folder(path: Path, shape: Shape, split: str | None) -> Source:
    there = [name for name in SPLITS if (path / name).is_dir()]
    top, name = path, str(path)
    if there or split:
        split = _split(path, split, there, "<split>/<class>/*.png")
        top, name = path / split, f"{path} ({split})"
    classes = tuple(sorted(folder.name for folder in top.iterdir() if folder.is_dir()))
    images = [
        (file, label)
        for label, class_ in enumerate(classes)
        for file in sorted((top / class_).rglob("*"))
        if file.suffix.lower() in SUFFIXES
    ]
    if not images:
        raise ReplayError(f"{top} holds no image; expected {top}/<class>/*.png, .jpg or .jpeg")
    scaling = Scaling(shape.height) if shape.height == shape.width else None

    @lru_cache(KEPT_IMAGES)
    def image(row: int) -> Pixels:
        try:
            pixels_HWC = pictures.read(images[row][0], shape.channels, scaling)
        except (PictureError, OSError) as error:
            raise ReplayError(f"{images[row][0]}: {error}") from None
        if pixels_HWC.shape != (shape.height, shape.width, shape.channels):
            size = " x ".join(map(str, pixels_HWC.shape))
            raise ReplayError(f"{images[row][0]} has {size} pixels; the model takes {shape}")
        return pixels_HWC

    image(0)
    return Source(name, image, np.array([label for _, label in images]), classes)


def _split(path: Path, split: str | None, there: list[str], expected: str) -> str:
    known = [name for name in SPLITS if name in there] + sorted(set(there) - set(SPLITS))
    if not known or (split is not None and split not in known):
        problem = f"no split {split!r}" if split else "no split"
        raise ReplayError(f"{path} has {problem}; it has {', '.join(known) or 'none'}, expected is {expected}")
    return split or known[0]


def _check_labels(name: str, labels_N: npt.NDArray[np.generic], classes: int) -> None:
    low, high = int(labels_N.min()), int(labels_N.max())
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise ReplayError(f"{name} holds the label {wrong}; allowed are 0..{classes - 1}, one for each class")
