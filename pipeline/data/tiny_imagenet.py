"""Tiny-ImageNet in its official layout: 200 classes, 500 training and 50 labelled val images of 64 x 64 each."""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.error import URLError

import numpy as np
from filelock import FileLock

from pipeline.data.folder import images_in, raw_of
from pipeline.data.raw import DataError, Labels, Raw
from trueodds.files import is_full

NAME = "tiny-imagenet-200"
URL = f"http://cs231n.stanford.edu/{NAME}.zip"
MD5 = "90528d7ca1a48142e341f4ef8d21d0de"
ANNOTATIONS = "val_annotations.txt"


def download(downloads: Path) -> Path:
    """The folder of the official archive, which is fetched and unpacked where it is not there yet.

    Raises:
        DataError: no network, or a download whose checksum is wrong (what was fetched is removed).
    """
    from pipeline.data.vision import torchvision  # torch with it, which no other image folder needs

    downloads.mkdir(parents=True, exist_ok=True)
    archive, folder = downloads / f"{NAME}.zip", downloads / NAME
    with FileLock(downloads / f"{NAME}.lock"):  # two runs at once: one downloads, the other finds it there
        if folder.is_dir():
            return folder
        aside = downloads / f"{NAME}.part"
        try:
            torchvision().datasets.utils.download_and_extract_archive(URL, downloads, aside, archive.name, MD5)
        except (URLError, OSError) as error:
            shutil.rmtree(aside, ignore_errors=True)
            if not torchvision().datasets.utils.check_integrity(str(archive), MD5):
                archive.unlink(missing_ok=True)
            if is_full(error):
                raise OSError(error.errno, error.strerror, str(archive)) from None
            raise DataError(
                f"{NAME} could not be downloaded from {URL} ({error}). Without a network, put the unpacked folder"
                f" {NAME}/ into a folder and name that folder: TRUEODDS_DATA=<folder>"
            ) from None
        except RuntimeError as error:
            archive.unlink(missing_ok=True)
            raise DataError(
                f"{NAME}: the download from {URL} is damaged ({error}); {archive} was removed. Run again"
            ) from None
        (aside / NAME).rename(folder)
        aside.rmdir()
    return folder


def is_layout(folder: Path) -> bool:
    """Whether the val images of a folder are named by a table instead of by folders of classes."""
    return (folder / "val" / ANNOTATIONS).is_file()


def read(folder: Path, image_size: int | None) -> Raw:
    """train/<wnid>/images and val/images, whose classes are in val_annotations.txt; test/, without labels, is not read.

    Classes are the folders of train/ in sorted order, each named by the first word of words.txt: "goldfish" instead of
    n01443537; by the wnid as well where two have one word. The val images are the test rows.

    Raises:
        DataError: a val image of an unknown class or without a file; as `pipeline.data.folder.raw_of`.
    """
    wnids = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir())
    images = [images_in(folder / "train" / wnid / "images") for wnid in wnids]
    if empty := [wnid for wnid, files in zip(wnids, images, strict=True) if not files]:
        raise DataError(f"{folder / 'train' / empty[0] / 'images'} holds no image; remove that class or fill it")
    labels = np.repeat(np.arange(len(wnids)), [len(files) for files in images])
    train = [path for files in images for path in files], labels
    return raw_of(folder, {"train": train, "val": _val(folder / "val", wnids)}, _names(folder, wnids), image_size)


def _val(folder: Path, wnids: Sequence[str]) -> tuple[list[Path], Labels]:
    with (folder / ANNOTATIONS).open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.reader(file, delimiter="\t") if line]
    place = {wnid: k for k, wnid in enumerate(wnids)}
    for number, line in enumerate(lines, start=1):
        if len(line) < 2 or line[1] not in place:
            expected = "an image's file name and the class of one of the folders in train/, with a tab between"
            raise DataError(f"{folder / ANNOTATIONS}, line {number} is {chr(9).join(line)[:80]!r}; expected {expected}")
    if not lines:
        raise DataError(f"{folder / ANNOTATIONS} is empty; unpack the archive again")
    files = [folder / "images" / name for name, *_ in lines]
    return files, np.array([place[wnid] for _, wnid, *_ in lines], dtype=np.int64)


def _names(folder: Path, wnids: Sequence[str]) -> tuple[str, ...]:
    path = folder / "words.txt"
    if not path.is_file():
        return tuple(wnids)
    lines = (line.partition("\t") for line in path.read_text(encoding="utf-8").splitlines())
    words = {wnid: synonyms.partition(",")[0].strip() for wnid, _, synonyms in lines}
    names = [words.get(wnid) or wnid for wnid in wnids]
    counts = Counter(names)
    return tuple(name if counts[name] == 1 else f"{name} ({wnid})" for name, wnid in zip(names, wnids, strict=True))
