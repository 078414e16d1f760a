"""CIFAR-10 and CIFAR-100 from torchvision's official download, with a check of its checksum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from filelock import FileLock

from pipeline.data.raw import Raw


def read(name: str, downloads: Path) -> Raw:
    """Return 50,000 training and 10,000 test images of 32 x 32 x 3, in the official order.

    Args:
        name: cifar10 or cifar100.
        downloads: Folder of the download.

    Raises:
        DataError: There is no network, or the download has a wrong checksum (the file is then removed).
    """
    from pipeline.data.vision import download_of, torchvision  # imports torch, so only here

    datasets = torchvision().datasets
    kind = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    archive = downloads / kind.filename
    downloads.mkdir(parents=True, exist_ok=True)
    with (
        download_of(name, kind.url, archive, kind.tgz_md5, f"put {name}.npz"),
        FileLock(downloads / f"{name}.lock"),  # of two simultaneous runs, one downloads and the other waits
    ):
        train, test = (kind(downloads, train=split, download=True) for split in (True, False))
    return Raw(
        np.ascontiguousarray(train.data),
        np.asarray(train.targets, dtype=np.int64),
        np.ascontiguousarray(test.data),
        np.asarray(test.targets, dtype=np.int64),
        tuple(train.classes),
    )
