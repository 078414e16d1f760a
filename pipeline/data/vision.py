"""The one place that imports torchvision.

PyPI's torchvision wheel for Linux is built for CUDA. Beside a CPU torch its import fails with "operator
torchvision::nms does not exist", because its compiled operators cannot be loaded. Declaring the two operators that
its Python code refers to lets everything else (datasets, models, transforms.v2) work; detection operators and
torchvision.io do not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import cast

import torch
from torch import Tensor

CROP_RATIOS = (3 / 4, 4 / 3)
"""Width to height of a random resized crop: torchvision's, as of ImageNet's usual recipes."""

_library: torch.library.Library | None = None


def torchvision() -> ModuleType:
    """The torchvision package, importable beside any torch build."""
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


def random_crop(size: tuple[int, int], crop_scale: float) -> Callable[[Tensor], Tensor]:
    """A random crop of at least `crop_scale` of the area of one image C x H x W, scaled to `size` (height, width).

    It draws from torch's global generator.
    """
    torchvision()
    from torchvision.transforms import v2

    crop = v2.RandomResizedCrop(size, scale=(crop_scale, 1.0), ratio=CROP_RATIOS, antialias=True)
    return cast(Callable[[Tensor], Tensor], crop)
