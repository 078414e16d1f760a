"""Parts that the peers' servers share: the same ONNX model, inputs from the same bodies, and the same answer."""

from __future__ import annotations

import base64
import io
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from PIL import Image

Pixels = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.uint8] | npt.NDArray[np.float32]
WORKERS, BATCH = int(os.environ.get("WORKERS", "1")), int(os.environ.get("BATCH", "1"))
WAIT_MS = float(os.environ.get("WAIT_MS", "0"))


class Classifier:
    """The model named by MODEL, on the cores of one of WORKERS processes."""

    def __init__(self) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = max(1, len(os.sched_getaffinity(0)) // WORKERS)
        if os.environ.get("SPINNING", "0") == "0":
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = ort.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0]
        self._temperature = float(os.environ.get("TEMPERATURE", "1"))

    def row(self, instance: Any) -> Rows:
        """Return an image, or a vector if the model takes floats."""
        return np.asarray(instance, np.float32) if self._input.type == "tensor(float)" else image(instance)

    def logits(self, rows: Rows) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = self._session.run(["logits"], {self._input.name: rows})[0]
        return found

    def probabilities(self, rows: Rows) -> npt.NDArray[np.float64]:
        scaled_NC = self.logits(rows).astype(np.float64) / self._temperature
        exp_NC = np.exp(scaled_NC - scaled_NC.max(axis=1, keepdims=True))
        found: npt.NDArray[np.float64] = exp_NC / exp_NC.sum(axis=1, keepdims=True)
        return found


def image(instance: Any) -> Pixels:
    """Return nested lists of pixels, or an object with a base64 PNG, as H x W x C."""
    if isinstance(instance, dict):
        with Image.open(io.BytesIO(base64.b64decode(instance["b64"]))) as picture:
            return np.asarray(picture.convert("RGB"), np.uint8)
    return np.asarray(instance, np.uint8)


def answer(probabilities_C: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Return the service's answer for one image, without an id."""
    index = int(probabilities_C.argmax())
    probabilities = probabilities_C.tolist()
    return {
        "label": f"class {index}",
        "index": index,
        "confidence": probabilities[index],
        "probabilities": probabilities,
    }
