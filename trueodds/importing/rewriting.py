"""Rewrites a model for the service: rows of a kind are its input, one row of logits its output.

Nodes before the file's graph compute its input from rows. Nodes behind it compute logits from its output. The result is
compared with the file's own answers on some of the rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, compose, helper, numpy_helper

from trueodds.importing.errors import ModelFileError
from trueodds.importing.import_options import PIXEL, Preprocessing
from trueodds.importing.inference import (
    INTO,
    PREFIX,
    PROBABILITIES,
    ROUNDING,
    Sample,
    ServableModel,
    run_sample,
    try_rewritten,
)
from trueodds.importing.onnx_file import CURRENT, Model
from trueodds.importing.signature import BATCH, ModelFile, TensorInfo
from trueodds.importing.understanding import Interpretation
from trueodds.inputs import ImageInput, TextInput

SINGLE = ("logit", "probability")
"""Forms of an output with one column."""
LOGITS = "logits"
BEFORE, BEHIND = "before/", "behind/"
"""Prefixes of the names before the graph and behind it."""
TOKENS = "L"
SMALLEST = float(np.finfo(np.float32).tiny)
"""Smallest probability. A smaller one, above all 0, gets its logarithm, because a logit must be finite."""
HALF_STEP: dict[int, float] = {TensorProto.FLOAT16: 2.0**-12, TensorProto.FLOAT: 2.0**-25, TensorProto.DOUBLE: 2.0**-54}
"""Smallest p and 1 - p of a sigmoid, by type: half the distance from 1 to the number before it.

A p nearer to 1 does not exist in the type. onnxruntime's float32 sigmoid is 0 from -18 on.
"""


def rewrite(meaning: Interpretation, *, spinning: bool = True) -> ServableModel:
    """Combine a model with its preprocessing and its logits, and check the result on some of the rows.

    `spinning` is that of `inference.session`.

    Raises:
        ModelFileError: The model cannot be combined or run, or its answers change.
    """
    ready = _with_preprocessing(meaning)
    sample = run_sample(meaning, ready)
    return try_rewritten(sample, _with_logits(ready, sample), spinning=spinning)


@contextlib.contextmanager
def _composing(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the exceptions of onnx's checker and composer have no common base
        problem = f"{path} cannot be composed with its preprocessing: {' '.join(str(error).split())}"
        raise ModelFileError(f"{problem}; export it again with a current exporter") from None


class _Nodes:
    """A chain of nodes, each with the output of the one before as its input. All names begin with `prefix`."""

    def __init__(self, start: str, prefix: str) -> None:
        self.last, self.nodes, self.constants, self._prefix = start, list[Any](), list[Any](), prefix

    def __call__(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Append a node with the last value and `inputs`. Return the name of its output."""
        output = name or f"{self._prefix}value{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [self.last, *inputs], [output], **attributes))
        self.last = output
        return output

    def into(self, tensor: TensorInfo) -> None:
        """Connect the last value to an input of the file's graph."""
        self.nodes[-1].output[0] = INTO + tensor.name

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """Add a constant and return its name."""
        name = f"{self._prefix}constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name


def _with_preprocessing(meaning: Interpretation) -> Model:
    """Return the model behind the nodes that compute its inputs from rows. These inputs are outputs as well."""
    file, kind = meaning.file, meaning.kind
    tensors, nodes = file.signature.inputs, _Nodes(kind.tensor, BEFORE)
    with _composing(file.path):
        if isinstance(kind, TextInput):
            taken = _cast_tokens(nodes, kind, tensors)
        elif isinstance(kind, ImageInput):
            taken = _order_pixels(nodes, meaning)
        else:
            taken = _split_features(nodes, meaning)
        given = [helper.make_tensor_value_info(INTO + tensor.name, tensor.type, None) for tensor in tensors]
        graph = helper.make_graph(nodes.nodes, "preprocessing", taken, given, nodes.constants)
        mapping = [(INTO + tensor.name, tensor.name) for tensor in tensors]
        ready = compose.merge_models(_model(graph, file), file.model, mapping, prefix2=PREFIX)
    ready.graph.output.extend(given)
    return ready


def _order_pixels(nodes: _Nodes, meaning: Interpretation) -> list[Any]:
    """Convert uint8 pixels N x H x W x C to the graph's layout. Without preprocessing the values do not change."""
    (tensor,), preprocessing = meaning.file.signature.inputs, meaning.file.options.preprocessing
    if preprocessing is not None:
        nodes("Cast", to=TensorProto.FLOAT)
        _normalise(nodes, preprocessing, PIXEL)
    if meaning.layout == "NCHW":
        nodes("Transpose", perm=[0, 3, 1, 2])
    if preprocessing is None or tensor.type != TensorProto.FLOAT:
        nodes("Cast", to=tensor.type)
    nodes.into(tensor)
    return [helper.make_tensor_value_info(meaning.kind.tensor, TensorProto.UINT8, [BATCH, *meaning.kind.shape])]


def _split_features(nodes: _Nodes, meaning: Interpretation) -> list[Any]:
    """Convert float32 features N x F. If the graph has an input for each feature, each gets its column."""
    tensors, preprocessing = meaning.file.signature.inputs, meaning.file.options.preprocessing
    if preprocessing is not None:
        _normalise(nodes, preprocessing, 1.0)
    rows = nodes.last
    for column, tensor in enumerate(tensors):
        nodes.last = rows
        if len(tensors) > 1:
            nodes("Gather", nodes.constant([column], np.int64), axis=1)
        nodes("Cast", to=tensor.type)
        nodes.into(tensor)
    return [helper.make_tensor_value_info(meaning.kind.tensor, TensorProto.FLOAT, [BATCH, *meaning.kind.shape])]


def _cast_tokens(nodes: _Nodes, kind: TextInput, tensors: Sequence[TensorInfo]) -> list[Any]:
    """Convert int64 ids N x L, and add the mask and the types, if the model takes them."""
    names = [name for name in (kind.ids, kind.mask, kind.types) if name is not None]
    for name, tensor in zip(names, tensors, strict=True):
        nodes.last = name
        nodes("Cast", to=tensor.type)
        nodes.into(tensor)
    return [helper.make_tensor_value_info(name, TensorProto.INT64, [BATCH, TOKENS]) for name in names]


def _normalise(nodes: _Nodes, preprocessing: Preprocessing, scale: float) -> None:
    """Append (scale * x - mean) / std, in the order of torchvision's transforms, without steps that change nothing."""
    if (factor := preprocessing.factor(scale)) != 1:
        nodes("Mul", nodes.constant(factor))
    if any(preprocessing.mean):
        nodes("Sub", nodes.constant(preprocessing.mean))
    if set(preprocessing.std) != {1.0}:
        nodes("Div", nodes.constant(preprocessing.std))


def _model(graph: Any, file: ModelFile) -> Model:
    """Return a model that can be combined with that of a file: with its opset and format version."""
    version = helper.make_opsetid("", file.origin["opset"] or CURRENT)
    return helper.make_model(graph, opset_imports=[version], ir_version=file.model.ir_version)


def _with_logits(ready: Model, sample: Sample) -> Model:
    """Return the model with one output, float32 logits N x C: its own, or the logarithms of its probabilities."""
    file, output, form = sample.meaning.file, sample.output, sample.form
    del ready.graph.output[len(file.signature.outputs) :]  # only the sample needed the inputs of the file's graph
    with _composing(file.path):
        nodes = _Nodes(BEHIND + "output", BEHIND)
        nodes("Cast", to=TensorProto.DOUBLE)  # 1 - p needs the digits if p is near 1
        nodes("Reshape", nodes.constant([-1, 1 if form in SINGLE else sample.classes], np.int64))
        if form in SINGLE:  # z -> (0, z), p -> (1 - p, p), the latter as (-p, p) + (1, 0)
            nodes("Mul", nodes.constant([[0.0, 1.0] if form == "logit" else [-1.0, 1.0]], np.float64))
        if form == "probability":
            nodes("Add", nodes.constant([[1.0, 0.0]], np.float64))
        if form in PROBABILITIES:
            least = SMALLEST if form == "probabilities" else HALF_STEP[output.type]
            own = nodes.last
            floored = nodes("Max", nodes.constant(least, np.float64))
            nodes.last = own
            nodes("Less", nodes.constant(-ROUNDING, np.float64))
            # A value that is not a probability becomes NaN, so that it does not look like a small one.
            nodes("Where", nodes.constant(np.nan, np.float64), floored)
            nodes("Log")
        nodes("Cast", name=LOGITS, to=TensorProto.FLOAT)
        logits = helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, [BATCH, sample.classes])
        taken = helper.make_tensor_value_info(BEHIND + "output", output.type, None)
        graph = helper.make_graph(nodes.nodes, "logits", [taken], [logits], nodes.constants)
        mapping = [(PREFIX + output.name, BEHIND + "output")]
        return compose.merge_models(ready, _model(graph, file), mapping, outputs=[LOGITS])
