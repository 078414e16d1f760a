"""Tiny-ImageNet in its official layout: 200 classes with 500 training and 50 labelled val images of 64 x 64 each."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock

from pipeline.data.folder import images_in, raw_of
from pipeline.data.raw import DataError, Labels, Raw
from trueodds.files import class_folders

NAME = "tiny-imagenet-200"
URL = f"http://cs231n.stanford.edu/{NAME}.zip"
MD5 = "90528d7ca1a48142e341f4ef8d21d0de"
ANNOTATIONS = "val_annotations.txt"


def download(downloads: Path) -> Path:
    """Return the folder of the official archive; download and unpack it if it is missing.

    Raises:
        DataError: There is no network, or the download has a wrong checksum (the file is then removed).
    """
    from pipeline.data.vision import download_of, torchvision  # imports torch, so only here

    downloads.mkdir(parents=True, exist_ok=True)
    archive, folder = downloads / f"{NAME}.zip", downloads / NAME
    with FileLock(downloads / f"{NAME}.lock"):  # of two simultaneous runs, one downloads and the other waits
        if folder.is_dir():
            return folder
        aside = downloads / f"{NAME}.part"
        with download_of(NAME, URL, archive, MD5, f"put the unpacked folder {NAME}/", aside):
            torchvision().datasets.utils.download_and_extract_archive(URL, downloads, aside, archive.name, MD5)
        (aside / NAME).rename(folder)
        aside.rmdir()
    return folder


def is_layout(folder: Path) -> bool:
    """Return whether a table instead of class folders labels the val images of a folder."""
    return (folder / "val" / ANNOTATIONS).is_file()


def read(folder: Path, image_size: int | None) -> Raw:
    """Read train/<wnid>/images and val/images; skip test/, which has no labels.

    The classes of the val images are in val_annotations.txt. Classes are the sorted folders of train/, each named
    by the first word of words.txt: "goldfish" instead of n01443537. Two classes with the same word are named by word
    and wnid. The val images are the test rows.

    Raises:
        DataError: A val image has an unknown class or no file; also as `pipeline.data.folder.raw_of`.
    """
    wnids = class_folders(folder / "train")
    images = [images_in(folder / "train" / wnid / "images") for wnid in wnids]
    if empty := [wnid for wnid, files in zip(wnids, images, strict=True) if not files]:
        raise DataError(f"{folder / 'train' / empty[0] / 'images'} holds no image; add images or remove the class")
    labels = np.repeat(np.arange(len(wnids)), [len(files) for files in images])
    train = [path for files in images for path in files], labels
    return raw_of(folder, {"train": train, "val": _val(folder / "val", wnids)}, _names(folder, wnids), image_size)


def _val(folder: Path, wnids: Sequence[str]) -> tuple[list[Path], Labels]:
    """Return the val images with their labels."""
    with (folder / ANNOTATIONS).open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.reader(file, delimiter="\t") if line]
    place = {wnid: k for k, wnid in enumerate(wnids)}
    for number, line in enumerate(lines, start=1):
        if len(line) < 2 or line[1] not in place:
            expected = "an image's file name and the class of one of the folders in train/, separated by a tab"
            raise DataError(f"{folder / ANNOTATIONS}, line {number} is {chr(9).join(line)[:80]!r}; expected {expected}")
    if not lines:
        raise DataError(f"{folder / ANNOTATIONS} is empty; unpack the archive again")
    files = [folder / "images" / name for name, *_ in lines]
    return files, np.array([place[wnid] for _, wnid, *_ in lines], dtype=np.int64)


def _names(folder: Path, wnids: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes."""
    path = folder / "words.txt"
    if not path.is_file():
        return tuple(wnids)
    lines = (line.partition("\t") for line in path.read_text(encoding="utf-8").splitlines())
    words = {wnid: synonyms.partition(",")[0].strip() for wnid, _, synonyms in lines}
    names = [words.get(wnid) or wnid for wnid in wnids]
    counts = Counter(names)
    return tuple(name if counts[name] == 1 else f"{name} ({wnid})" for name, wnid in zip(names, wnids, strict=True))
