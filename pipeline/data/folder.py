"""Image folders: train/<class>/*.png and, optionally, test/<class>/*.png."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from pipeline.data.raw import DataError, Images, Labels, Raw, checked
from pipeline.pictures import PictureError, upright_size
from pipeline.pictures import read as read_picture

log = logging.getLogger("pipeline.data")

SUFFIXES = {".png", ".jpg", ".jpeg"}


def read(folder: Path, image_size: int | None) -> Raw:
    """All PNG and JPEG files below each class folder, in sorted order; classes are the folder names, sorted.

    Grey only if every file is; else RGB. With `image_size` each image is scaled and cut to a centre square, else all
    must have one size.

    Raises:
        DataError: no train/ folder, an empty class, a file that is not an image, sizes that differ.
    """
    if not (folder / "train").is_dir():
        raise DataError(
            f"{folder} has no folder train/; expected {folder}/train/<class>/*.png (and test/<class>/*.png)"
        )
    classes = tuple(sorted(path.name for path in (folder / "train").iterdir() if path.is_dir()))
    if not classes:
        raise DataError(f"{folder / 'train'} has no class folder; expected {folder}/train/<class>/*.png")
    splits = {split: _files(folder / split, classes) for split in ("train", "test") if (folder / split).is_dir()}
    channels, resized = _survey([path for files, _ in splits.values() for path in files], image_size)
    side = image_size if resized else None
    x_train, y_train = _read_split(*splits["train"], channels, side)
    x_test, y_test = _read_split(*splits["test"], channels, side) if "test" in splits else (None, None)
    return checked(Raw(x_train, y_train, x_test, y_test, classes, resized), str(folder))


def _files(folder: Path, classes: tuple[str, ...]) -> tuple[list[Path], Labels]:
    files: list[Path] = []
    labels: list[int] = []
    strange = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name not in classes)
    if strange:
        raise DataError(
            f"{folder} has the class {strange[0]!r}, which train/ does not have; it has {', '.join(classes[:10])}"
        )
    for label, name in enumerate(classes):
        every = [path for path in (folder / name).rglob("*") if path.is_file()]
        found = sorted(path for path in every if path.suffix.lower() in SUFFIXES)
        if len(found) < len(every):
            left_out = len(every) - len(found)
            log.warning("%s: files left out: %d; read are %s", folder / name, left_out, ", ".join(sorted(SUFFIXES)))
        if not found and folder.name == "train":
            raise DataError(
                f"{folder / name} holds no image; allowed are {', '.join(sorted(SUFFIXES))}. Remove it or fill it"
            )
        files += found
        labels += [label] * len(found)
    return files, np.asarray(labels, dtype=np.int64)


def _survey(files: list[Path], image_size: int | None) -> tuple[int, bool]:
    """(channels, whether images are brought to `image_size`), from the files' headers."""
    sizes: dict[tuple[int, int], Path] = {}
    grey = True
    for path in files:
        try:
            with Image.open(path, formats=["PNG", "JPEG"]) as image:
                sizes.setdefault(upright_size(image), path)
                grey &= image.mode in ("1", "L", "LA", "I", "I;16")
        except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
            raise DataError(f"{path} cannot be read as PNG or JPEG ({error}); mend or remove it") from None
    if image_size is None and len(sizes) > 1:
        (a, first), (b, second) = list(sizes.items())[:2]
        raise DataError(
            f"images have {len(sizes)} sizes ({first}: {a[0]} x {a[1]}, {second}: {b[0]} x {b[1]}, ...);"
            " set image_size in params.yaml to bring all to one square"
        )
    return (1 if grey else 3), image_size is not None


def _read_split(files: list[Path], labels: Labels, channels: int, side: int | None) -> tuple[Images, Labels]:
    if not files:
        raise DataError("test/ holds no image; fill it, or remove it to have test rows held out from train/")
    first = _read(files[0], channels, side)
    images = np.empty((len(files), *first.shape), dtype=np.uint8)
    for row, path in enumerate(files):
        images[row] = _read(path, channels, side)
    return images, labels


def _read(path: Path, channels: int, side: int | None) -> Images:
    try:
        return read_picture(path, channels, side=side)
    except PictureError as error:
        raise DataError(f"{path}: {error}") from None
