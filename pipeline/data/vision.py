"""The one place that imports torchvision.

PyPI's torchvision wheel for Linux is built for CUDA. Beside a CPU torch its import fails with "operator
torchvision::nms does not exist", because its compiled operators cannot be loaded. Declaring the two operators that
its Python code refers to lets everything else (datasets, models, transforms.v2) work; detection operators and
torchvision.io do not.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import cast

import torch

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
