"""Adds a calibrator to an ONNX graph of logits, for models that another server serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from trueodds.calibrators import Calibrator
from trueodds.calibrators.base import LogAffine
from trueodds.errors import UserError
from trueodds.files import write_bytes
from trueodds.importing.onnx_file import raise_ir_version
from trueodds.sums.inputs import Array

TOLERANCE = 1e-6
CHECKED_ROWS = 256
PROBABILITIES = "probabilities"
PREFIX = "calibrator_"
"""Prefix of the names of nodes and weights behind the logits."""


class FoldError(UserError, RuntimeError):
    """The calibrator cannot be added to the graph, or the new graph does not reproduce the calibrator."""


def fold_graph(path: Path, calibrator: Calibrator) -> Any:
    """Return the graph of a file with the calibrator behind its logits. Its one output is `probabilities`.

    softmax(W z + b) is computed in float64 and returned as float32, so that a server without this package can use it.
    So is softmax(W ln q + b), where q is a softmax of the logits.

    Raises:
        FoldError: The calibrator is of neither form, the file is not ONNX, or the graph does not have one
            output of C logits, or it contains a calibrator already.
    """
    try:
        model = onnx.load(path)
    except (ValueError, DecodeError) as error:
        raise FoldError(f"{path} is not an ONNX model ({error}); export the model to ONNX first") from None
    raise_ir_version(model)
    classes = _classes(model.graph, path)
    if calibrator.classes not in (None, classes):
        raise FoldError(f"the calibrator was fitted on {calibrator.classes} classes; {path} has {classes}")
    of_logs, affine = calibrator.log_affine(), calibrator.affine(classes)
    if of_logs is not None:
        _append(model.graph, of_logs.weight_CC, of_logs.bias_C, of_logs)
    elif affine is not None:
        _append(model.graph, *affine)
    elif calibrator.known_groups:
        raise FoldError(
            f"calibrator {calibrator.name!r} has a temperature for each group, which is no input of a graph; serve it"
            " with calibrator.json, or fit 'temperature'"
        )
    else:
        raise FoldError(
            f"calibrator {calibrator.name!r} is not of the form softmax(W z + b), so it cannot be added to a graph;"
            " serve it with calibrator.json, or fit 'temperature', 'vector', 'matrix' or a structured one"
        )
    onnx.checker.check_model(model)
    return model


def check(calibrator: Calibrator, logits_NC: npt.NDArray[np.floating], probabilities_NC: npt.NDArray[Any]) -> None:
    """Compare the new graph's probabilities of some logits with those of the calibrator.

    Raises:
        FoldError: A probability differs by more than 1e-6.
    """
    off = float(np.abs(probabilities_NC - calibrator(logits_NC)).max())
    if not off <= TOLERANCE:
        raise FoldError(f"the new graph differs by {off:.2g} in a probability; allowed is {TOLERANCE}")


def fold(path: Path, calibrator: Calibrator, out: Path, logits_NC: npt.NDArray[np.floating]) -> None:
    """Write `out`, the graph of `path` with the calibrator.

    Its last nodes are run on up to 256 rows of logits and checked.

    Raises:
        FoldError: As in `fold_graph` and `check`.
    """
    model = fold_graph(path, calibrator)
    behind = [node for node in model.graph.node if node.name.startswith(PREFIX)]
    name, rows_NC = behind[0].input[0], logits_NC[:CHECKED_ROWS].astype(np.float32)
    logits = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", rows_NC.shape[1]])
    weights = [tensor for tensor in model.graph.initializer if tensor.name.startswith(PREFIX)]
    graph = helper.make_graph(behind, "calibrator", [logits], list(model.graph.output), weights)
    alone = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    session = onnxruntime.InferenceSession(alone.SerializeToString(), providers=["CPUExecutionProvider"])
    check(calibrator, rows_NC, session.run([PROBABILITIES], {name: rows_NC})[0])
    write_bytes(out, model.SerializeToString(deterministic=True))


def _classes(graph: Any, path: Path) -> int:
    """Return the number of classes C of a graph with one output of logits (N, C)."""
    names = [output.name for output in graph.output]
    if "probabilities" in names:
        raise FoldError(f"{path} gives probabilities, so it has a calibrator already; give the graph of logits")
    if len(names) != 1:
        raise FoldError(f"{path} has {len(names)} outputs; expected one, logits of shape (N, classes)")
    size = [dim.dim_value or dim.dim_param or "?" for dim in graph.output[0].type.tensor_type.shape.dim]
    if len(size) != 2 or not isinstance(size[1], int):
        shape = ", ".join(map(str, size))
        raise FoldError(f"{path} has an output of shape ({shape}); expected (N, classes), with fixed classes")
    return size[1]


def _append(graph: Any, matrix_CC: Array, bias_C: Array, of_logs: LogAffine | None = None) -> None:
    """Append cast, W z + b, softmax and cast to the graph's only output; with `of_logs`, ln q takes the place of z."""
    classes = len(bias_C)
    plain = np.count_nonzero(matrix_CC) <= classes and np.array_equal(matrix_CC, np.diag(matrix_CC.diagonal()))
    factor = matrix_CC.diagonal().copy() if plain else np.ascontiguousarray(matrix_CC.T)
    logits = graph.output[0]
    batch = logits.type.tensor_type.shape.dim[0]
    graph.initializer.extend(
        [numpy_helper.from_array(factor, "calibrator_W"), numpy_helper.from_array(bias_C, "calibrator_b")]
    )
    nodes, x = [helper.make_node("Cast", [logits.name], ["calibrator_z"], to=TensorProto.DOUBLE)], "calibrator_z"
    if of_logs is not None:
        shares = {"T": of_logs.temperature, "kept": 1 - of_logs.uniform, "added": of_logs.uniform / classes}
        graph.initializer.extend(
            numpy_helper.from_array(np.array(value, np.float64), f"calibrator_{name}") for name, value in shares.items()
        )
        nodes += [
            helper.make_node("Div", [x, "calibrator_T"], ["calibrator_zT"]),
            helper.make_node("Softmax", ["calibrator_zT"], ["calibrator_s"], axis=-1),
            helper.make_node("Mul", ["calibrator_s", "calibrator_kept"], ["calibrator_ks"]),
            helper.make_node("Add", ["calibrator_ks", "calibrator_added"], ["calibrator_q"]),
            helper.make_node("Log", ["calibrator_q"], ["calibrator_x"]),
        ]
        x = "calibrator_x"
    nodes += [
        helper.make_node("Mul" if plain else "MatMul", [x, "calibrator_W"], ["calibrator_Wz"]),
        helper.make_node("Add", ["calibrator_Wz", "calibrator_b"], ["calibrator_eta"]),
        helper.make_node("Softmax", ["calibrator_eta"], ["calibrator_p"], axis=-1),
        helper.make_node("Cast", ["calibrator_p"], ["probabilities"], to=TensorProto.FLOAT),
    ]
    for k, node in enumerate(nodes):
        node.name = f"{PREFIX}{k}"
    graph.node.extend(nodes)
    shape = [batch.dim_param or batch.dim_value or "batch", classes]
    graph.output[0].CopyFrom(helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, shape))
