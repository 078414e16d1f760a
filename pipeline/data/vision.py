"""The only module that imports torchvision.

PyPI's torchvision wheel for Linux is built for CUDA. With a CPU build of torch its import fails with "operator
torchvision::nms does not exist", because its compiled operators cannot be loaded. Declaring the two operators that
its Python code uses makes everything else work (datasets, models, transforms.v2). Detection operators and
torchvision.io do not work.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import cast
from urllib.error import URLError

import torch
from torch import Tensor

from pipeline.data.raw import DataError
from trueodds.files import is_full

CROP_RATIOS = (3 / 4, 4 / 3)
"""Aspect ratios of a random resized crop: torchvision's defaults, as in the usual ImageNet recipes."""

_library: torch.library.Library | None = None


def torchvision() -> ModuleType:
    """Return the torchvision package, importable with any build of torch."""
    global _library
    try:
        import torchvision as package
        import torchvision.datasets
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        for name in [m for m in sys.modules if m == "torchvision" or m.startswith("torchvision.")]:
            del sys.modules[name]
        _library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            _library.define(  # type: ignore[no-untyped-call]
                f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        import torchvision as package
        import torchvision.datasets
    return cast(ModuleType, package)


@contextmanager
def download_of(name: str, url: str, archive: Path, md5: str, cure: str, aside: Path | None = None) -> Iterator[None]:
    """Put the errors of torchvision's download of an official archive into words.

    A damaged archive is removed, and so is the folder `aside`. `cure` tells what to do without a network.

    Raises:
        DataError: There is no network, or the download has a wrong checksum.
    """
    try:
        yield
    except (URLError, OSError) as error:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
        if not torchvision().datasets.utils.check_integrity(str(archive), md5):
            archive.unlink(missing_ok=True)
        if is_full(error):
            raise OSError(error.errno, error.strerror, str(archive)) from None
        problem = f"{name} could not be downloaded from {url} ({error})"
        raise DataError(f"{problem}. Without a network, {cure} into a folder and set TRUEODDS_DATA=<folder>") from None
    except RuntimeError as error:
        archive.unlink(missing_ok=True)
        raise DataError(
            f"{name}: the download from {url} is damaged ({error}); {archive} was removed. Run again"
        ) from None


def random_crop(size: tuple[int, int], crop_scale: float) -> Callable[[Tensor], Tensor]:
    """Return a function that crops one image C x H x W at random and scales the crop to `size` (height, width).

    The crop has at least `crop_scale` of the area. It draws from torch's global generator.
    """
    torchvision()
    from torchvision.transforms import v2

    crop = v2.RandomResizedCrop(size, scale=(crop_scale, 1.0), ratio=CROP_RATIOS, antialias=True)
    return cast(Callable[[Tensor], Tensor], crop)
