"""From a trained net to a bundle: an ONNX graph that stops at logits, the calibrator beside it, and a card."""

from __future__ import annotations

import base64
import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline import bundle
from pipeline.calibrators import Calibrator
from pipeline.data.images import Normaliser
from pipeline.data.raw import Images
from pipeline.errors import UserError
from pipeline.files import sha256, write_json

TOLERANCE = 1e-4
CHECKED_ROWS = 256
OPSET = 18


class ExportError(UserError, RuntimeError):
    """The exported graph is not the trained net."""


class Servable(nn.Module):
    """uint8 pixels N x H x W x C -> logits N x K, normalisation inside."""

    mean_C: Tensor
    std_C: Tensor

    def __init__(self, net: nn.Module, moments: dict[str, list[float]]) -> None:
        super().__init__()
        self.net = net
        normaliser = Normaliser.of(moments, torch.device("cpu"))
        self.register_buffer("mean_C", normaliser.mean_C)
        self.register_buffer("std_C", normaliser.std_C)

    def forward(self, images: Tensor) -> Tensor:
        scaled = (images.float() / 255 - self.mean_C) / self.std_C
        logits: Tensor = self.net(scaled.permute(0, 3, 1, 2))
        return logits


def export(
    net: nn.Module,
    calibrator: Calibrator,
    data_card: dict[str, Any],
    training: dict[str, Any],
    metrics: dict[str, Any],
    validation_images: Images,
    out: Path,
) -> None:
    """Write model.onnx, calibrator.json and card.json to `out`, and check the graph on real validation images.

    Raises:
        ExportError: onnxruntime and torch differ by more than 1e-4 in any logit.
    """
    out.mkdir(parents=True, exist_ok=True)
    servable = Servable(net, data_card["normalise"]).eval()
    images = validation_images[:CHECKED_ROWS]
    _write_onnx(servable, images[:2], out / bundle.MODEL)
    logits_NC = _checked(servable, images, out / bundle.MODEL)
    write_json(out / bundle.CALIBRATOR, calibrator.to_json())
    card = bundle.Card(
        name=data_card["name"],
        classes=data_card["classes"],
        input=bundle.ImageInput(**data_card["input"]),
        method=training["method"]["name"],
        training=training,
        metrics={key: metrics[key] for key in ("n", "bins", "level", "before", "after")},
        notes=metrics["notes"],
        data_sha256=training["data_sha256"],
        code_sha256=training["code_sha256"],
        files={name: sha256(out / name) for name in (bundle.MODEL, bundle.CALIBRATOR)},
        golden=bundle.Golden(
            input_b64=base64.b64encode(images[0].tobytes()).decode(),
            logits=logits_NC[0].tolist(),
            probabilities=calibrator(logits_NC[:1])[0].tolist(),
        ),
    )
    write_json(out / bundle.CARD, card.model_dump())


def _write_onnx(servable: nn.Module, example: Images, path: Path) -> None:
    # The exporter prints its steps, and warns of deprecations inside torch and onnxscript that are not ours to mend.
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        quiet.setLevel(logging.ERROR)
        try:
            program = torch.onnx.export(
                servable,
                (torch.from_numpy(example),),
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        finally:
            quiet.setLevel(level)
    if program is None:
        raise ExportError("torch.onnx.export returned no program")
    path.write_bytes(_without_metadata(program.model_proto).SerializeToString(deterministic=True))


def _without_metadata(model: Any) -> Any:
    """The exporter notes Python stack traces, with the paths of this machine, at every node: not for others to read."""
    for part in (*model.graph.node, *model.graph.input, *model.graph.output, *model.graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    return model


def _checked(servable: nn.Module, images: Images, path: Path) -> Any:
    """onnxruntime's logits for `images`, after comparing them with torch's."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = session.run(["logits"], {"images": images})[0]
    with torch.inference_mode():
        expected = servable(torch.from_numpy(images)).numpy()
    off = float(np.abs(found - expected).max())
    if not off <= TOLERANCE:
        raise ExportError(
            f"onnxruntime and torch differ by {off:.2g} in a logit on {len(images)} validation images;"
            f" allowed is {TOLERANCE}"
        )
    return found
