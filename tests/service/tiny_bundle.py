"""Real, tiny bundles: an ONNX graph that is one matrix product, with card, calibrator and golden prediction."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from trueodds import files
from trueodds.bundle import CARD, MODEL, Bundle, Description
from trueodds.calibrators import Calibrator, Temperature
from trueodds.inputs import ImageInput

SHAPE = (4, 4, 1)
CLASSES = ("cat", "dog", "3", "hare")
OFFLINE = {"before": {"ece": 0.2}, "after": {"ece": 0.021, "accuracy": 0.9, "nll": 0.3}, "n": 600}


def write_model(
    path: Path, shape: tuple[int, int, int], classes: int, seed: int = 0, batch: Any = "N", relative: bool = False
) -> None:
    """uint8 N x H x W x C -> (x / 255) W -> logits N x K, with weights large enough for varied confidences.

    `relative`: x / (its brightest pixel) in place of x / 255, so that the logits of a black image are NaN.
    """
    size = int(np.prod(shape))
    weights = np.random.default_rng(seed).normal(0, 6 / np.sqrt(size), (size, classes)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["images"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["float"], ["brightest"], axes=[1, 2, 3]),
        helper.make_node("Div", ["float", "brightest" if relative else "top"], ["scaled"]),
        helper.make_node("Flatten", ["scaled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, [batch, *shape])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, classes])],
        [numpy_helper.from_array(np.array(255, np.float32), "top"), numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def write_bundle(
    folder: Path,
    *,
    shape: tuple[int, int, int] = SHAPE,
    classes: tuple[str, ...] = CLASSES,
    calibrator: Calibrator | None = None,
    name: str = "tiny",
    resized: bool = False,
    metrics: dict[str, Any] = OFFLINE,
    seed: int = 0,
    relative: bool = False,
) -> Path:
    """A whole, valid bundle in `folder`."""
    height, width, channels = shape
    description = Description(
        name=name,
        classes=list(classes),
        input=ImageInput.model_validate({"height": height, "width": width, "channels": channels, "resized": resized}),
        method="ce",
        training={},
        metrics=metrics,
        data_sha256="0" * 64,
        code_sha256="0" * 64,
    )
    pixels_NHWC = np.random.default_rng(seed + 1).integers(0, 256, (1, *shape), np.uint8)
    with tempfile.TemporaryDirectory() as aside:
        model = Path(aside) / MODEL
        write_model(model, shape, len(classes), seed, relative=relative)
        logits_NC = ort.InferenceSession(str(model)).run(None, {"images": pixels_NHWC})[0]
        Bundle.write(
            folder,
            model,
            calibrator or Temperature(1.7),
            description,
            golden_input=pixels_NHWC[0],
            golden_logits=logits_NC[0],
        )
    return folder


def change_card(folder: Path, **fields: Any) -> None:
    """Overwrite fields of a bundle's card."""
    card = json.loads((folder / CARD).read_text())
    files.write_json(folder / CARD, card | fields)


def pictures(count: int, shape: tuple[int, int, int] = SHAPE, seed: int = 5) -> Any:
    """Nested lists of random pixels."""
    return np.random.default_rng(seed).integers(0, 256, (count, *shape)).tolist()
