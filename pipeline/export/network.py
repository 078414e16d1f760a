"""From a trained net to a bundle: an ONNX graph that stops at logits, the calibrator beside it, and a card."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.data.raw import Images
from pipeline.export.onnx_graph import run
from pipeline.training.batches import Normaliser
from trueodds.bundle import METRICS, MODEL, Bundle, Description, Reference, RiskCoverage
from trueodds.calibrators import Calibrator
from trueodds.errors import UserError
from trueodds.inputs import ImageInput
from trueodds.logits import Logits
from trueodds.metrics import CalibrationSums

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
    *,
    validation: Logits | None = None,
    test: Logits | None = None,
) -> Bundle:
    """Export a net to the bundle `out`, after checking its graph on real validation images.

    The card's reference is of the confidences of the `validation` rows, its risk and coverage of the `test` rows.

    Raises:
        ExportError: onnxruntime and torch differ by more than 1e-4 in any logit.
    """
    servable = Servable(net, data_card["normalise"]).eval()
    images = validation_images[:CHECKED_ROWS]
    with tempfile.TemporaryDirectory(prefix="trueodds-export-") as folder:
        model = Path(folder) / MODEL
        _write_onnx(servable, images[:2], model)
        logits_C = _checked(servable, images, model)[0]
        card = describe(data_card, training, metrics, calibrator, test)
        return _write(model, logits_C, calibrator, card, images[0], out, validation)


def export_imported(
    model: Path,
    calibrator: Calibrator,
    data_card: dict[str, Any],
    training: dict[str, Any],
    metrics: dict[str, Any],
    validation_images: Images,
    out: Path,
    *,
    validation: Logits | None = None,
    test: Logits | None = None,
) -> Bundle:
    """As `export`, of a graph that is servable already: what the train stage made of `training.model`."""
    logits_C = run(model, "logits", validation_images[:1])[0]
    card = describe(data_card, training, metrics, calibrator, test)
    return _write(model, logits_C, calibrator, card, validation_images[0], out, validation)


def describe(
    data_card: dict[str, Any],
    training: dict[str, Any],
    metrics: dict[str, Any],
    calibrator: Calibrator,
    test: Logits | None,
) -> Description:
    """The card's parts that data, training and evaluation state."""
    return Description(
        name=data_card["name"],
        classes=data_card["classes"],
        input=ImageInput(**data_card["input"]),
        method=training["method"]["name"],
        training=training,
        metrics={key: metrics[key] for key in METRICS},
        risk_coverage=None if test is None else _risk_coverage(calibrator, test),
        notes=metrics["notes"],
        data_sha256=training["data_sha256"],
        code_sha256=training["code_sha256"],
    )


def _write(
    model: Path,
    logits_C: Any,
    calibrator: Calibrator,
    description: Description,
    image_HWC: Images,
    out: Path,
    validation: Logits | None,
) -> Bundle:
    return Bundle.write(
        out,
        model,
        calibrator,
        description,
        golden_input=image_HWC,
        golden_logits=logits_C,
        reference=None if validation is None else Reference.of(calibrator(validation.logits_NC).max(axis=1)),
    )


def _risk_coverage(calibrator: Calibrator, test: Logits) -> RiskCoverage:
    p_NC = calibrator(test.logits_NC)
    return RiskCoverage.of(CalibrationSums.from_probabilities(p_NC, test.labels_N, scores=False), "test")


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
    logits_NC = run(path, "logits", images)
    with torch.inference_mode():
        expected_NC = servable(torch.from_numpy(images)).numpy()
    off = float(np.abs(logits_NC - expected_NC).max())
    if not off <= TOLERANCE:
        raise ExportError(
            f"onnxruntime and torch differ by {off:.2g} in a logit on {len(images)} validation images;"
            f" allowed is {TOLERANCE}"
        )
    return logits_NC
