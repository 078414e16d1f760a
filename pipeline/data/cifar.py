"""CIFAR-10 and CIFAR-100 from torchvision's official download, with a check of its checksum."""

from __future__ import annotations

from pathlib import Path
from urllib.error import URLError

import numpy as np
from filelock import FileLock

from pipeline.data.raw import DataError, Raw
from trueodds.files import is_full


def read(name: str, downloads: Path) -> Raw:
    """Return 50,000 training and 10,000 test images of 32 x 32 x 3, in the official order.

    Args:
        name: cifar10 or cifar100.
        downloads: Folder of the download.

    Raises:
        DataError: There is no network, or the download has a wrong checksum (the file is then removed).
    """
    from pipeline.data.vision import torchvision  # imports torch, so only here

    datasets = torchvision().datasets
    kind = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    archive = downloads / kind.filename
    downloads.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(downloads / f"{name}.lock"):  # of two simultaneous runs, one downloads and the other waits
            train, test = (kind(downloads, train=split, download=True) for split in (True, False))
    except (URLError, OSError) as error:
        if not datasets.utils.check_integrity(str(archive), kind.tgz_md5):
            archive.unlink(missing_ok=True)
        if is_full(error):
            raise OSError(error.errno, error.strerror, str(archive)) from None
        raise DataError(
            f"{name} could not be downloaded from {kind.url} ({error}). Without a network, put {name}.npz into a"
            " folder and set TRUEODDS_DATA=<folder>"
        ) from None
    except RuntimeError as error:
        archive.unlink(missing_ok=True)
        raise DataError(
            f"{name}: the download from {kind.url} is damaged ({error}); {archive} was removed. Run again"
        ) from None
    return Raw(
        np.ascontiguousarray(train.data),
        np.asarray(train.targets, dtype=np.int64),
        np.ascontiguousarray(test.data),
        np.asarray(test.targets, dtype=np.int64),
        tuple(train.classes),
    )
