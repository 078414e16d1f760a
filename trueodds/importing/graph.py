"""Graphs before and behind a model, composed with it: from the rows of a kind to the model's input, and from its output
to logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from onnx import TensorProto, compose, helper, numpy_helper

from trueodds.importing.onnx_file import CURRENT, Model, opset
from trueodds.importing.preprocessing import PIXEL, Layout, Preprocessing
from trueodds.importing.signature import BATCH, TensorInfo
from trueodds.inputs import ImageInput, VectorInput

Form = Literal["logits", "probabilities", "logit", "probability"]
"""What an output holds: a column for each of several classes, or one column, of the second of two classes."""
LOGITS = "logits"
PREFIX = "model/"
"""Of all names of the imported graph: none is one of those that are put around it."""
BEFORE, BEHIND, INTO = "before/", "behind/", "into/"
"""Of the names in front of it, behind it, and of what is given to its inputs."""
TOKENS = "L"
ROUNDING = 1e-6
"""By which a probability may miss the range 0 to 1."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""A probability below it, 0 above all, has the logarithm of this one: a logit must be finite."""
HALF_STEP: dict[int, float] = {TensorProto.FLOAT16: 2.0**-12, TensorProto.FLOAT: 2.0**-25, TensorProto.DOUBLE: 2.0**-54}
"""The same of a sigmoid's p and 1 - p, by its type: half the distance from 1 to the number before it. Nearer to 1 no p
says how near, and onnxruntime's float32 sigmoid is 0 from -18 on."""


class _Nodes:
    """Nodes in a row, each taking what the one before gives; the names of all begin with `prefix`."""

    def __init__(self, start: str, prefix: str) -> None:
        self.last, self.nodes, self.constants, self._prefix = start, list[Any](), list[Any](), prefix

    def __call__(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Appends a node on the last value and `inputs`; returns the name of what it gives."""
        output = name or f"{self._prefix}value{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [self.last, *inputs], [output], **attributes))
        self.last = output
        return output

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """The name of a new constant."""
        name = f"{self._prefix}constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name


def with_images(
    model: Model, tensor: TensorInfo, kind: ImageInput, preprocessing: Preprocessing | None, layout: Layout
) -> Model:
    """The model behind a graph that takes uint8 pixels N x H x W x C; no preprocessing: it takes them as they are."""
    nodes = _Nodes(kind.tensor, BEFORE)
    if preprocessing is not None:
        nodes("Cast", to=TensorProto.FLOAT)
        _normalise(nodes, preprocessing, PIXEL)
    if layout == "NCHW":
        nodes("Transpose", perm=[0, 3, 1, 2])
    if preprocessing is None or tensor.type != TensorProto.FLOAT:
        nodes("Cast", to=tensor.type)
    taken = helper.make_tensor_value_info(kind.tensor, TensorProto.UINT8, [BATCH, *kind.shape])
    return _before(model, nodes.nodes, nodes.constants, [taken], {nodes.last: tensor})


def with_features(
    model: Model, tensors: Sequence[TensorInfo], kind: VectorInput, preprocessing: Preprocessing | None
) -> Model:
    """The model behind a graph that takes float32 features N x F, and gives it each column where it takes them so."""
    nodes = _Nodes(kind.tensor, BEFORE)
    if preprocessing is not None:
        _normalise(nodes, preprocessing, 1.0)
    taken = helper.make_tensor_value_info(kind.tensor, TensorProto.FLOAT, [BATCH, *kind.shape])
    rows, sources = nodes.last, dict[str, TensorInfo]()
    for column, tensor in enumerate(tensors):
        nodes.last = rows
        if len(tensors) > 1 or tensor.name != tensors[0].name:
            nodes("Gather", nodes.constant([column], np.int64), axis=1)
        sources[nodes("Cast", to=tensor.type)] = tensor
    return _before(model, nodes.nodes, nodes.constants, [taken], sources)


def with_tokens(model: Model, tensors: Mapping[str, TensorInfo]) -> Model:
    """The model behind a graph that takes int64 ids N x L, and of these what else it takes, by the names here."""
    nodes = [helper.make_node("Cast", [name], [BEFORE + name], to=tensor.type) for name, tensor in tensors.items()]
    taken = [helper.make_tensor_value_info(name, TensorProto.INT64, [BATCH, TOKENS]) for name in tensors]
    return _before(model, nodes, [], taken, {BEFORE + name: tensor for name, tensor in tensors.items()})


def in_front(model: Model, tensors: Sequence[TensorInfo]) -> Model:
    """The nodes in front of a composed model alone: they make its own inputs of rows."""
    nodes = [node for node in model.graph.node if node.output[0].startswith((BEFORE, INTO))]
    constants = [tensor for tensor in model.graph.initializer if tensor.name.startswith(BEFORE)]
    outputs = [helper.make_tensor_value_info(INTO + tensor.name, tensor.type, None) for tensor in tensors]
    return _model(helper.make_graph(nodes, "preprocessing", list(model.graph.input), outputs, constants), model)


def with_logits(model: Model, output: TensorInfo, form: Form, classes: int) -> Model:
    """The model with one output, float32 logits N x C: its own, or the logarithms of its probabilities."""
    nodes = _Nodes(BEHIND + "output", BEHIND)
    nodes("Cast", to=TensorProto.DOUBLE)  # 1 - p of a p near 1 needs the digits
    nodes("Reshape", nodes.constant([-1, 1 if form in ("logit", "probability") else classes], np.int64))
    if form in ("logit", "probability"):  # z -> (0, z), p -> (1 - p, p), the latter as (-p, p) + (1, 0)
        nodes("Mul", nodes.constant([[0.0, 1.0] if form == "logit" else [-1.0, 1.0]], np.float64))
    if form == "probability":
        nodes("Add", nodes.constant([[1.0, 0.0]], np.float64))
    if form in ("probability", "probabilities"):
        least = SMALLEST if form == "probabilities" else HALF_STEP[output.type]
        own = nodes.last
        floored = nodes("Max", nodes.constant(least, np.float64))
        nodes.last = own
        nodes("Less", nodes.constant(-ROUNDING, np.float64))
        nodes("Where", nodes.constant(np.nan, np.float64), floored)  # no probability: not to be taken for a small one
        nodes("Log")
    nodes("Cast", name=LOGITS, to=TensorProto.FLOAT)
    logits = helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, [BATCH, classes])
    taken = helper.make_tensor_value_info(BEHIND + "output", output.type, None)
    graph = helper.make_graph(nodes.nodes, "logits", [taken], [logits], nodes.constants)
    return compose.merge_models(
        model, _model(graph, model), [(PREFIX + output.name, BEHIND + "output")], outputs=[LOGITS]
    )


def _normalise(nodes: _Nodes, preprocessing: Preprocessing, scale: float) -> None:
    """(scale * x - mean) / std, in the order of torchvision's transforms, without the steps that change nothing."""
    if (factor := preprocessing.factor(scale)) != 1:
        nodes("Mul", nodes.constant(factor))
    if any(preprocessing.mean):
        nodes("Sub", nodes.constant(preprocessing.mean))
    if set(preprocessing.std) != {1.0}:
        nodes("Div", nodes.constant(preprocessing.std))


def _before(
    model: Model, nodes: Sequence[Any], constants: Sequence[Any], taken: Sequence[Any], sources: dict[str, TensorInfo]
) -> Model:
    """The model behind the nodes; `sources`: which of their values goes to which of its inputs."""
    for node in nodes:
        if tensor := sources.get(node.output[0]):
            node.output[0] = INTO + tensor.name
    outputs = [helper.make_tensor_value_info(INTO + tensor.name, tensor.type, None) for tensor in sources.values()]
    graph = helper.make_graph(nodes, "preprocessing", taken, outputs, constants)
    mapping = [(INTO + tensor.name, tensor.name) for tensor in sources.values()]
    return compose.merge_models(_model(graph, model), model, mapping, prefix2=PREFIX)


def _model(graph: Any, beside: Model) -> Model:
    """A model that can be composed with another: of its opset and version of the format."""
    version = helper.make_opsetid("", opset(beside) or CURRENT)
    return helper.make_model(graph, opset_imports=[version], ir_version=beside.ir_version)
