"""A graph with its calibrator folded in: pixels in, calibrated probabilities out, for those who serve elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.raw import Images
from pipeline.export.onnx_graph import run
from trueodds.calibrators import Calibrator
from trueodds.errors import UserError

TOLERANCE = 1e-6
CHECKED_ROWS = 256


class FoldError(UserError, RuntimeError):
    """A calibrator that cannot be folded into a graph, or a folded graph that is not the calibrator."""


def fold(model: Path, calibrator: Calibrator, out: Path, images: Images) -> None:
    """Write `out`: the graph of `model` with the calibrator behind its logits; its one output is `probabilities`.

    softmax(W z + b) is computed in float64 and given as float32, for people who serve without this package. The result
    is compared with the calibrator itself on up to 256 of `images`.

    Raises:
        FoldError: a calibrator that is not affine in the logits, a graph without one output of C logits or folded
            already, no images, or a probability that differs by more than 1e-6.
    """
    import onnx

    if not len(images):
        raise FoldError("images is empty; the folded graph is checked on images: give at least one")
    graph_model = onnx.load(model)
    graph = graph_model.graph
    classes = _classes(graph, model)
    affine = calibrator.affine(classes)
    if affine is None:
        raise FoldError(
            f"calibrator {calibrator.name!r} is not of the form softmax(W z + b) and cannot be folded into a graph;"
            " serve it with calibrator.json, or fit 'temperature', 'vector', 'matrix' or a structured one"
        )
    if affine[0].shape != (classes, classes):
        raise FoldError(f"the calibrator was fitted on {len(affine[1])} classes; {model} has {classes}")
    logits_NC = run(model, graph.output[0].name, images[:CHECKED_ROWS])
    _append(graph, affine, classes)
    onnx.checker.check_model(graph_model)
    aside = out.with_name(out.name + ".part")
    try:
        aside.write_bytes(graph_model.SerializeToString(deterministic=True))
        folded_NC = run(aside, "probabilities", images[:CHECKED_ROWS])
        off = float(np.abs(folded_NC - calibrator(logits_NC)).max())
        if not off <= TOLERANCE:
            raise FoldError(f"the folded graph differs by {off:.2g} in a probability; allowed is {TOLERANCE}")
        aside.replace(out)
    finally:
        aside.unlink(missing_ok=True)


def _classes(graph: Any, model: Path) -> int:
    """C of a graph whose one output is logits (N, C).

    Raises:
        FoldError: any other graph.
    """
    names = [output.name for output in graph.output]
    if "probabilities" in names:
        raise FoldError(f"{model} gives probabilities: a calibrator is folded in already; give the graph of logits")
    if len(names) != 1:
        raise FoldError(f"{model} has {len(names)} outputs; expected one, logits of shape (N, classes)")
    size = [dim.dim_value or dim.dim_param or "?" for dim in graph.output[0].type.tensor_type.shape.dim]
    if len(size) != 2 or not isinstance(size[1], int):
        shape = ", ".join(map(str, size))
        raise FoldError(f"{model} has an output of shape ({shape}); expected (N, classes), the classes a fixed number")
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
