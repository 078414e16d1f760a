"""Images, and what the model in `conftest` answers to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from trueodds.bundle import MODEL
from trueodds.calibrators import Temperature
from trueodds.sums.inputs import Array

CLASSES, SHAPE = tuple("0123456789"), (8, 8, 1)
CALIBRATOR = Temperature(1.7)


def images(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, *SHAPE), np.uint8)


def expected(folder: Path, images_NHWC: Any) -> Array:
    """Straight from the graph and the calibrator."""
    session = ort.InferenceSession(str(folder / "bundle" / MODEL))
    return CALIBRATOR(session.run(None, {"images": images_NHWC})[0])
