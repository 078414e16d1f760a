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

from pipeline.data.images import Normaliser
from pipeline.data.raw import Images
from trueodds.bundle import bundle
from trueodds.bundle.risk_coverage import RiskCoverage
from trueodds.calibrators import Calibrator
from trueodds.errors import UserError
from trueodds.files import sha256, write_json

TOLERANCE = 1e-4
FOLD_TOLERANCE = 1e-6
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
    risk_coverage: RiskCoverage | None = None,
    reference: bundle.Reference | None = None,
) -> None:
    """Write model.onnx, calibrator.json and card.json to `out`, and check the graph on real validation images.

    `reference`: the confidences of all validation rows after the calibrator.

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
        risk_coverage=risk_coverage,
        notes=metrics["notes"],
        data_sha256=training["data_sha256"],
        code_sha256=training["code_sha256"],
        files={name: sha256(out / name) for name in (bundle.MODEL, bundle.CALIBRATOR)},
        golden=bundle.Golden(
            input_b64=base64.b64encode(images[0].tobytes()).decode(),
            logits=logits_NC[0].tolist(),
            probabilities=calibrator(logits_NC[:1])[0].tolist(),
        ),
        reference=reference,
    )
    write_json(out / bundle.CARD, card.model_dump())


def fold(model: Path, calibrator: Calibrator, out: Path, images: Images) -> None:
    """Write `out`: the graph of `model` with the calibrator behind its logits; its one output is `probabilities`.

    softmax(W z + b) is computed in float64 and given as float32, for people who serve without this package. The result
    is compared with the calibrator itself on up to 256 of `images`.

    Raises:
        ExportError: a calibrator that is not affine in the logits, a graph without one output of C logits or folded
            already, no images, or a probability that differs by more than 1e-6.
    """
    import onnx

    if not len(images):
        raise ExportError("images is empty; the folded graph is checked on images: give at least one")
    graph_model = onnx.load(model)
    graph = graph_model.graph
    classes = _classes(graph, model)
    affine = calibrator.affine(classes)
    if affine is None:
        raise ExportError(
            f"calibrator {calibrator.name!r} is not of the form softmax(W z + b) and cannot be folded into a graph;"
            " serve it with calibrator.json, or fit 'temperature', 'vector', 'matrix' or a structured one"
        )
    if affine[0].shape != (classes, classes):
        raise ExportError(f"the calibrator was fitted on {len(affine[1])} classes; {model} has {classes}")
    logits_NC = run(model, graph.output[0].name, images[:CHECKED_ROWS])
    _append(graph, affine, classes)
    onnx.checker.check_model(graph_model)
    aside = out.with_name(out.name + ".part")
    try:
        aside.write_bytes(graph_model.SerializeToString(deterministic=True))
        found_NC = run(aside, "probabilities", images[:CHECKED_ROWS])
        off = float(np.abs(found_NC - calibrator(logits_NC)).max())
        if not off <= FOLD_TOLERANCE:
            raise ExportError(f"the folded graph differs by {off:.2g} in a probability; allowed is {FOLD_TOLERANCE}")
        aside.replace(out)
    finally:
        aside.unlink(missing_ok=True)


def _classes(graph: Any, model: Path) -> int:
    """C of a graph whose one output is logits (N, C).

    Raises:
        ExportError: any other graph.
    """
    names = [output.name for output in graph.output]
    if "probabilities" in names:
        raise ExportError(f"{model} gives probabilities: a calibrator is folded in already; give the graph of logits")
    if len(names) != 1:
        raise ExportError(f"{model} has {len(names)} outputs; expected one, logits of shape (N, classes)")
    size = [dim.dim_value or dim.dim_param or "?" for dim in graph.output[0].type.tensor_type.shape.dim]
    if len(size) != 2 or not isinstance(size[1], int):
        shape = ", ".join(map(str, size))
        raise ExportError(
            f"{model} has an output of shape ({shape}); expected (N, classes), the classes a fixed number"
        )
    return size[1]


def _append(graph: Any, affine: tuple[Any, Any], classes: int) -> None:
    """Cast, W z + b, softmax and cast behind the graph's only output."""
    from onnx import TensorProto, helper, numpy_helper

    matrix_CC, bias_C = affine
    plain = np.count_nonzero(matrix_CC) <= classes and np.array_equal(matrix_CC, np.diag(matrix_CC.diagonal()))
    factor = matrix_CC.diagonal().copy() if plain else np.ascontiguousarray(matrix_CC.T)
    logits = graph.output[0]
    batch = logits.type.tensor_type.shape.dim[0]
    graph.initializer.extend(
        [numpy_helper.from_array(factor, "calibrator_W"), numpy_helper.from_array(bias_C, "calibrator_b")]
    )
    graph.node.extend(
        [
            helper.make_node("Cast", [logits.name], ["calibrator_z"], to=TensorProto.DOUBLE),
            helper.make_node("Mul" if plain else "MatMul", ["calibrator_z", "calibrator_W"], ["calibrator_Wz"]),
            helper.make_node("Add", ["calibrator_Wz", "calibrator_b"], ["calibrator_eta"]),
            helper.make_node("Softmax", ["calibrator_eta"], ["calibrator_p"], axis=-1),
            helper.make_node("Cast", ["calibrator_p"], ["probabilities"], to=TensorProto.FLOAT),
        ]
    )
    shape = [batch.dim_param or batch.dim_value or "batch", classes]
    graph.output[0].CopyFrom(helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, shape))


def run(path: Path, output: str, images: Images) -> Any:
    """One output of a graph on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run([output], {session.get_inputs()[0].name: images})[0]


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
    found = run(path, "logits", images)
    with torch.inference_mode():
        expected = servable(torch.from_numpy(images)).numpy()
    off = float(np.abs(found - expected).max())
    if not off <= TOLERANCE:
        raise ExportError(
            f"onnxruntime and torch differ by {off:.2g} in a logit on {len(images)} validation images;"
            f" allowed is {TOLERANCE}"
        )
    return found
