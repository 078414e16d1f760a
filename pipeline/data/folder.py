"""Image folders: train/<class>/*.png and, optionally, test/<class>/*.png."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from pipeline.data.image_files import unreadable_files
from pipeline.data.raw import DataError, ImageFiles, Labels, Raw, checked
from trueodds.inputs.image.pictures import PictureError, upright_size
from trueodds.inputs.image.pictures import read as read_picture
from trueodds.processes.progress import bar

log = logging.getLogger("pipeline.data")

SUFFIXES = {".png", ".jpg", ".jpeg"}


def read(folder: Path, image_size: int | None) -> Raw:
    """All PNG and JPEG files below each class folder, in sorted order; classes are the folder names, sorted.

    Grey only if every file is; else RGB. With `image_size` each image is scaled and cut to a centre square, else all
    must have one size. Headers are read here, pixels when the rows of a split are gathered.

    Raises:
        DataError: no train/ folder, an empty class, files that are no images (all of them), sizes that differ.
    """
    if not (folder / "train").is_dir():
        raise DataError(
            f"{folder} has no folder train/; expected {folder}/train/<class>/*.png (and test/<class>/*.png)"
        )
    classes = tuple(sorted(path.name for path in (folder / "train").iterdir() if path.is_dir()))
    if not classes:
        raise DataError(f"{folder / 'train'} has no class folder; expected {folder}/train/<class>/*.png")
    splits = {split: _files(folder / split, classes) for split in ("train", "test") if (folder / split).is_dir()}
    if "test" in splits and not splits["test"][0]:
        raise DataError("test/ holds no image; fill it, or remove it to have test rows held out from train/")
    height, width, channels = _survey([path for files, _ in splits.values() for path in files], image_size)
    rows = {split: ImageFiles(files, height, width, channels, image_size) for split, (files, _) in splits.items()}
    y_test = splits["test"][1] if "test" in splits else None
    resized = image_size is not None
    raw = Raw(rows["train"], splits["train"][1], rows.get("test"), y_test, classes, resized)
    return checked(raw, str(folder))


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
        images = sorted(path for path in every if path.suffix.lower() in SUFFIXES)
        if len(images) < len(every):
            left_out = len(every) - len(images)
            log.warning("%s: files left out: %d; read are %s", folder / name, left_out, ", ".join(sorted(SUFFIXES)))
        if not images and folder.name == "train":
            raise DataError(
                f"{folder / name} holds no image; allowed are {', '.join(sorted(SUFFIXES))}. Remove it or fill it"
            )
        files += images
        labels += [label] * len(images)
    return files, np.asarray(labels, dtype=np.int64)


def _survey(files: list[Path], image_size: int | None) -> tuple[int, int, int]:
    """(height, width, channels) of the rows to be, from the files' headers."""
    sizes: dict[tuple[int, int], Path] = {}
    unreadable: dict[Path, str] = {}
    grey = True
    with bar(len(files), "look at headers", "image") as shown:
        for path in files:
            try:
                with Image.open(path, formats=["PNG", "JPEG"]) as image:
                    sizes.setdefault(upright_size(image), path)
                    grey &= image.mode in ("1", "L", "LA", "I", "I;16")
            except UnidentifiedImageError:
                unreadable[path] = "not a PNG or JPEG"
            except (OSError, Image.DecompressionBombError) as error:
                unreadable[path] = str(error)
            shown.update()
    if image_size is None and len(sizes) > 1:
        (a, first), (b, second) = list(sizes.items())[:2]
        raise DataError(
            f"images have {len(sizes)} sizes ({first}: {a[0]} x {a[1]}, {second}: {b[0]} x {b[1]}, ...);"
            " set image_size in params.yaml to bring all to one square"
        )
    if unreadable:
        raise unreadable_files(unreadable | _damaged([path for path in files if path not in unreadable]), len(files))
    width, height = (image_size, image_size) if image_size is not None else next(iter(sizes))
    return height, width, 1 if grey else 3


def _damaged(files: list[Path]) -> dict[Path, str]:
    """Why a file whose header is sound cannot be read all the same: beside bad headers all are named at once."""
    problems = {}
    with bar(len(files), "read images", "image") as shown:
        for path in files:
            try:
                read_picture(path, 3)
            except (PictureError, OSError) as error:
                problems[path] = str(error)
            shown.update()
    return problems
