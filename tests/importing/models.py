"""Tiny ONNX files of every signature that importing meets, with the logits that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

SIDE = 4
CLASSES = 3
TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "uint8": TensorProto.UINT8}
TYPES |= {"float16": TensorProto.FLOAT16, "int64": TensorProto.INT64}
DIGITS_MEAN, DIGITS_SCALE = 0.3, 4.0
DIGITS_OPTIONS = f"model_options={{preprocess: '{{mean: {DIGITS_MEAN}}}'}}"
"""The leaf of params.yaml that goes with `save_digits_regression`."""
HEADS = {"logits": [], "probabilities": ["Softmax"], "logit": [], "probability": ["Sigmoid"]}


@dataclass(frozen=True)
class Linear:
    """x -> (x W + b), flat, with a head; images of `channels` x 4 x 4, or vectors of `features`."""

    layout: str = ""
    """NCHW or NHWC; empty: vectors."""
    channels: int = 1
    features: int = 5
    type: str = "float32"
    batch: int | str = "batch"
    head: str = "logits"
    columns: tuple[str, ...] = ()
    """Of vectors: an input for each."""
    opset: int = 17
    ir: int = 9
    more_outputs: dict[str, list[Any]] = field(default_factory=dict)
    """Names of further outputs, which hold the logits too, and their shapes."""

    @property
    def size(self) -> int:
        return self.channels * SIDE * SIDE if self.layout else self.features

    @property
    def outputs(self) -> int:
        return 1 if self.head in ("logit", "probability") else CLASSES

    def weights(self) -> npt.NDArray[np.float64]:
        """(size, outputs), a bit uneven from class to class."""
        return np.random.default_rng(3).normal(0, 3 / np.sqrt(self.size), (self.size, self.outputs))

    def logits(self, taken: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """What the graph makes of its own input (N, ...), before its head; of one column z, (0, z)."""
        z_NC = taken.reshape(len(taken), -1).astype(np.float64) @ self.weights()
        return np.column_stack([np.zeros(len(z_NC)), z_NC]) if self.outputs == 1 else z_NC

    def write(self, path: Path) -> Path:
        own = TYPES[self.type]
        shape = [self.channels, SIDE, SIDE] if self.layout == "NCHW" else [SIDE, SIDE, self.channels]
        names = self.columns or ("x",)
        sizes: Sequence[Any] = shape if self.layout else [1 if self.columns else self.features]
        inputs = [helper.make_tensor_value_info(name, own, [self.batch, *sizes]) for name in names]
        nodes = [helper.make_node("Cast", [name], [f"{name}_float"], to=TensorProto.FLOAT) for name in names]
        joined = f"{names[0]}_float"
        if self.columns:
            nodes.append(helper.make_node("Concat", [f"{name}_float" for name in names], ["joined"], axis=1))
            joined = "joined"
        nodes += [helper.make_node("Flatten", [joined], ["flat"]), helper.make_node("MatMul", ["flat", "W"], ["z"])]
        last = "z"
        for operator in HEADS[self.head]:
            nodes.append(helper.make_node(operator, [last], ["p"]))
            last = "p"
        outputs = [helper.make_tensor_value_info(last, TensorProto.FLOAT, [self.batch, self.outputs])]
        for name, of in self.more_outputs.items():
            nodes.append(helper.make_node("Identity", ["z"], [name]))
            outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, of))
        graph = helper.make_graph(
            nodes, "linear", inputs, outputs, [numpy_helper.from_array(self.weights().astype(np.float32), "W")]
        )
        opsets = [helper.make_opsetid("", self.opset)]
        path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=self.ir).SerializeToString())
        return path


def images(count: int, channels: int = 1) -> npt.NDArray[np.uint8]:
    """Random pixels, N x 4 x 4 x channels."""
    return np.random.default_rng(8).integers(0, 256, (count, SIDE, SIDE, channels), np.uint8)


def vectors(count: int, features: int = 5) -> npt.NDArray[np.float32]:
    return np.random.default_rng(9).normal(0, 2, (count, features)).astype(np.float32)


def labels_of(logits_NC: npt.NDArray[np.float64], temperature: float = 2.0) -> npt.NDArray[np.int64]:
    """Labels drawn from softmax(z / temperature): that temperature is the right calibrator."""
    scaled_NC = np.exp((logits_NC - logits_NC.max(axis=1, keepdims=True)) / temperature)
    p_NC = scaled_NC / scaled_NC.sum(axis=1, keepdims=True)
    draws_N1 = np.random.default_rng(4).random((len(p_NC), 1))
    labels_N: npt.NDArray[np.int64] = (p_NC.cumsum(axis=1) < draws_N1).sum(axis=1).clip(max=logits_NC.shape[1] - 1)
    return labels_N


def graph_of(
    nodes: list[Any],
    taken: list[Any],
    given: list[Any],
    constants: Sequence[Any] = (),
    opsets: Mapping[str, int] = MappingProxyType({"": 17}),
) -> bytes:
    """The bytes of any other model; opsets by domain."""
    model = helper.make_model(
        helper.make_graph(nodes, "any", taken, given, constants),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in opsets.items()],
        ir_version=9,
    )
    data: bytes = model.SerializeToString()
    return data


def float_tensor(name: str, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def save_digits_regression(path: Path) -> Path:
    """A regression on normalised digits, N x 1 x 8 x 8, four times too sure, with a fixed batch."""
    data = load_digits()
    fitted = LogisticRegression(max_iter=500).fit((data.data * 255 // 16 / 255 - DIGITS_MEAN)[::2], data.target[::2])
    constants = [
        numpy_helper.from_array((DIGITS_SCALE * fitted.coef_.T).astype(np.float32), "W"),
        numpy_helper.from_array((DIGITS_SCALE * fitted.intercept_).astype(np.float32), "b"),
    ]
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("Gemm", ["flat", "W", "b"], ["scores"])]
    pixels, scores = float_tensor("x", [1, 1, 8, 8]), float_tensor("scores", [1, 10])
    graph = helper.make_graph(nodes, "digits", [pixels], [scores], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path
