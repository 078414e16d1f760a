"""Image folders: train/<class>/*.png and, optionally, val/<class>/*.png and test/<class>/*.png."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.data.raw import DataError, ImageFiles, Labels, Raw, checked
from trueodds.inputs.image.formats import ALLOWED, SUFFIXES, readable
from trueodds.inputs.image.pictures import upright_size
from trueodds.processes.progress import bar

log = logging.getLogger("pipeline.data")

SPLITS = ("train", "val", "test")


def read(folder: Path, image_size: int | None) -> Raw:
    """All image files below each class folder, in sorted order; classes are the folder names, sorted.

    Beside test/ the rows of val/ are validation rows; without it they are the test rows, as in ImageNet's layout.

    Raises:
        DataError: no train/ folder, an empty class, sizes that differ, no image whose header can be read.
    """
    if not (folder / "train").is_dir():
        raise DataError(
            f"{folder} has no folder train/; expected {folder}/train/<class>/*.png (and test/<class>/*.png)"
        )
    classes = tuple(sorted(path.name for path in (folder / "train").iterdir() if path.is_dir()))
    if not classes:
        raise DataError(f"{folder / 'train'} has no class folder; expected {folder}/train/<class>/*.png")
    splits = {split: _files(folder / split, classes) for split in SPLITS if (folder / split).is_dir()}
    for split, (files, _) in splits.items():
        if not files:
            cure = "fill it, or remove it to have rows held out from train/"
            raise DataError(f"{folder / split} holds no image in a folder of a class; {cure}")
    return raw_of(folder, splits, classes, image_size)


def raw_of(
    folder: Path, splits: Mapping[str, tuple[Sequence[Path], Labels]], classes: tuple[str, ...], image_size: int | None
) -> Raw:
    """Rows of the files of each of SPLITS that there are, with their labels; val without test is the test split.

    Grey only if every file is; else RGB. With `image_size` each image is scaled and cut to a centre square, else all
    must have one size. Headers are read here, pixels when the rows of a split are gathered.

    Raises:
        DataError: sizes that differ, no image whose header can be read.
    """
    height, width, channels = _survey(folder, [path for files, _ in splits.values() for path in files], image_size)
    rows = {
        split: (ImageFiles(folder, files, height, width, channels, image_size), labels)
        for split, (files, labels) in splits.items()
    }
    benchmark_val = "val" in rows and "test" not in rows
    if benchmark_val:
        rows["test"] = rows.pop("val")
    x_test, y_test = rows.get("test", (None, None))
    x_val, y_val = rows.get("val", (None, None))
    raw = Raw(
        *rows["train"], x_test, y_test, classes, image_size is not None,
        x_val=x_val, y_val=y_val, benchmark_val=benchmark_val,
    )  # fmt: skip
    return checked(raw, str(folder))


def images_in(folder: Path) -> list[Path]:
    """The image files below a folder, sorted; others are left out, with a warning."""
    every = [path for path in folder.rglob("*") if path.is_file()]
    images = sorted(path for path in every if path.suffix.lower() in SUFFIXES)
    if len(images) < len(every):
        left_out = len(every) - len(images)
        log.warning("%s: files left out: %d; read are %s", folder, left_out, ", ".join(sorted(SUFFIXES)))
    return images


def _files(folder: Path, classes: tuple[str, ...]) -> tuple[list[Path], Labels]:
    files: list[Path] = []
    labels: list[int] = []
    strange = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name not in classes)
    if strange:
        raise DataError(
            f"{folder} has the class {strange[0]!r}, which train/ does not have; it has {', '.join(classes[:10])}"
        )
    for label, name in enumerate(classes):
        images = images_in(folder / name)
        if not images and folder.name == "train":
            raise DataError(
                f"{folder / name} holds no image; allowed are {', '.join(sorted(SUFFIXES))}. Remove it or fill it"
            )
        files += images
        labels += [label] * len(images)
    return files, np.asarray(labels, dtype=np.int64)


def _survey(folder: Path, files: Sequence[Path], image_size: int | None) -> tuple[int, int, int]:
    """(height, width, channels) of the rows to be, from the headers; a file without one is told of when it is read."""
    sizes: dict[tuple[int, int], Path] = {}
    grey = True
    with bar(len(files), "look at headers", "image") as shown:
        for path in files:
            try:
                with Image.open(path, formats=readable()) as image:
                    sizes.setdefault(upright_size(image), path)
                    grey &= image.mode in ("1", "L", "LA", "I", "I;16")
            except (OSError, Image.DecompressionBombError):
                pass
            shown.update()
    if not sizes:
        raise DataError(f"{folder}: none of its {len(files):,} images can be read; allowed is a whole {ALLOWED}")
    if image_size is None and len(sizes) > 1:
        (a, first), (b, second) = list(sizes.items())[:2]
        raise DataError(
            f"images have {len(sizes)} sizes ({first}: {a[0]} x {a[1]}, {second}: {b[0]} x {b[1]}, ...);"
            " set image_size in params.yaml to bring all to one square"
        )
    width, height = (image_size, image_size) if image_size is not None else next(iter(sizes))
    return height, width, 1 if grey else 3
