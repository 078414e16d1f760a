"""Image folders: train/<class>/*.png and, optionally, val/<class>/*.png and test/<class>/*.png."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.data.raw import DataError, ImageFiles, Labels, Raw, check_raw
from trueodds.files import class_folders, files_below
from trueodds.inputs.image.formats import ALLOWED, SUFFIXES, readable
from trueodds.inputs.image.pictures import upright_size
from trueodds.processes.progress import bar

log = logging.getLogger("pipeline.data")

SPLITS = ("train", "val", "test")


def read(folder: Path, image_size: int | None) -> Raw:
    """Read all image files below each class folder, in sorted order; classes are the sorted folder names.

    If there is a folder test/, the rows of val/ are validation rows. Without test/ they are the test rows, as in
    ImageNet.

    Args:
        folder: Folder with train/.
        image_size: Edge of the square to which images are scaled; None requires one size.

    Raises:
        DataError: There is no train/ folder, a class is empty, sizes differ, or no image has a readable header.
    """
    if not (folder / "train").is_dir():
        raise DataError(
            f"{folder} has no folder train/; expected {folder}/train/<class>/*.png (and test/<class>/*.png)"
        )
    classes = class_folders(folder / "train")
    if not classes:
        raise DataError(f"{folder / 'train'} has no class folder; expected {folder}/train/<class>/*.png")
    splits = {split: _files(folder / split, classes) for split in SPLITS if (folder / split).is_dir()}
    for split, (files, _) in splits.items():
        if not files:
            cure = "add images, or remove the folder to split rows off train/ instead"
            raise DataError(f"{folder / split} holds no image in a folder of a class; {cure}")
    return raw_of(folder, splits, classes, image_size)


def raw_of(
    folder: Path, splits: Mapping[str, tuple[Sequence[Path], Labels]], classes: tuple[str, ...], image_size: int | None
) -> Raw:
    """Return the rows of image files and their labels; without a test split, val is the test split.

    Images are grey only if every file is, otherwise RGB. With `image_size` each image is scaled and cut to a centre
    square; otherwise all must have one size. This reads headers only. Pixels are read when the rows of a split are
    gathered.

    Raises:
        DataError: Sizes differ, or no image has a readable header.
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
    return check_raw(raw, str(folder))


def images_in(folder: Path) -> list[Path]:
    """Return the image files below a folder, sorted; log a warning about other files."""
    images = files_below(folder, SUFFIXES)
    every = sum(path.is_file() for path in folder.rglob("*"))
    if len(images) < every:
        left_out = every - len(images)
        log.warning("%s: files ignored: %d; images are %s", folder, left_out, ", ".join(sorted(SUFFIXES)))
    return images


def _files(folder: Path, classes: tuple[str, ...]) -> tuple[list[Path], Labels]:
    """Return the image files of a split with their labels."""
    files: list[Path] = []
    labels: list[int] = []
    strange = [name for name in class_folders(folder) if name not in classes]
    if strange:
        raise DataError(
            f"{folder} has the class {strange[0]!r}, and train/ does not; train/ has {', '.join(classes[:10])}"
        )
    for label, name in enumerate(classes):
        images = images_in(folder / name)
        if not images and folder.name == "train":
            raise DataError(
                f"{folder / name} holds no image; allowed are {', '.join(sorted(SUFFIXES))}. Add images or remove it"
            )
        files += images
        labels += [label] * len(images)
    return files, np.asarray(labels, dtype=np.int64)


def _survey(folder: Path, files: Sequence[Path], image_size: int | None) -> tuple[int, int, int]:
    """Return (height, width, channels) of the rows, from the headers; unreadable files are reported later."""
    sizes: dict[tuple[int, int], Path] = {}
    grey = True
    with bar(len(files), "look at headers", "image") as progress:
        for path in files:
            try:
                with Image.open(path, formats=readable()) as image:
                    sizes.setdefault(upright_size(image), path)
                    grey &= image.mode in ("1", "L", "LA", "I", "I;16")
            except (OSError, Image.DecompressionBombError):
                pass
            progress.update()
    if not sizes:
        raise DataError(f"{folder}: none of its {len(files):,} images can be read; allowed is a whole {ALLOWED}")
    if image_size is None and len(sizes) > 1:
        (a, first), (b, second) = list(sizes.items())[:2]
        raise DataError(
            f"images have {len(sizes)} sizes ({first}: {a[0]} x {a[1]}, {second}: {b[0]} x {b[1]}, ...);"
            " set image_size in params.yaml to scale all to one square"
        )
    width, height = (image_size, image_size) if image_size is not None else next(iter(sizes))
    return height, width, 1 if grey else 3
