"""Reads a model: all facts in its file that need no rows.

Its signature holds the input, and the outputs that may be logits or probabilities. The batch size becomes dynamic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from trueodds.errors import nearest
from trueodds.importing.errors import ModelFileError
from trueodds.importing.hub_files import HubFiles
from trueodds.importing.import_options import ImportOptions, Kind
from trueodds.importing.onnx_file import LoadedModel, Model
from trueodds.inputs.vector.kind import WHOLE

FLOATS: dict[int, str] = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.FLOAT16: "float16"}
RANGES: dict[int, tuple[int, int]] = {
    TensorProto.BOOL: (0, 1),
    TensorProto.UINT8: (0, 2**8 - 1),
    TensorProto.INT8: (-(2**7), 2**7 - 1),
    TensorProto.UINT16: (0, 2**16 - 1),
    TensorProto.INT16: (-(2**15), 2**15 - 1),
    TensorProto.UINT32: (0, WHOLE),
    TensorProto.UINT64: (0, WHOLE),
}
"""Lowest and highest value of a vector's feature, of types that do not hold all whole numbers up to `WHOLE`."""
PIXELS: dict[int, str] = {**FLOATS, TensorProto.UINT8: "uint8", TensorProto.INT64: "int64", TensorProto.INT32: "int32"}
"""Types of inputs that pixels can be cast to."""
NUMBERS: dict[int, str] = PIXELS | {kind: TensorProto.DataType.Name(kind).lower() for kind in RANGES}
"""Types of inputs that numbers can be cast to."""
BATCH = "N"
RESHAPING = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that a label passes on its way to the output."""
STACKED = "trueodds/stacked"
"""Beginning of the names of the values that `_stack_lists` adds."""
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Inputs of a graph that takes tokens, with the names of Hugging Face's exporters: ids, mask and types."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a graph's signature. None means a size that is not fixed."""

    name: str
    type: int
    shape: tuple[int | None, ...] | None
    """Sizes. None: the graph does not give a rank."""

    def __str__(self) -> str:
        kind = NUMBERS.get(self.type) or (TensorProto.DataType.Name(self.type).lower() if self.type else "no tensor")
        if self.shape is None:
            return f"{self.name!r} {kind} of any rank"
        return f"{self.name!r} {kind} [{', '.join('?' if n is None else str(n) for n in self.shape)}]"


@dataclass(frozen=True)
class GraphSignature:
    """The input, or the columns that are separate inputs, and the outputs that may be logits or probabilities."""

    kind: Kind
    inputs: tuple[TensorInfo, ...]
    """One input. A vector may have several of shape N x 1, named like the features; a text has those of TEXT_INPUTS."""
    outputs: tuple[TensorInfo, ...]
    labels: tuple[str, ...]
    """Classes that the graph names; empty if it names none."""


@dataclass(frozen=True)
class ModelFile:
    """Content of an ONNX file, and of the files beside it."""

    path: Path
    options: ImportOptions
    """The caller's options for it."""
    model: Model
    """The model in a current format, with a dynamic batch size, without unused nodes and metadata."""
    signature: GraphSignature
    hub: HubFiles
    origin: Mapping[str, Any]
    """Hash, opset and producer of the file, for the card."""
    features: tuple[str, ...]
    """Names of the features in the file's metadata; empty if it has none."""


def read(path: Path, source: LoadedModel, options: ImportOptions) -> ModelFile:
    """Read the facts in a model's file, which is loaded. The loaded model is changed.

    Raises:
        ModelFileError: The model cannot be imported.
    """
    model, origin, features = source
    signature = _signature(model, path, options)
    hub = HubFiles.beside(options.tokenizer, path)
    return ModelFile(path, options, model, signature, hub, origin, features)


def _signature(model: Model, path: Path, options: ImportOptions) -> GraphSignature:
    """Find the signature, and remove everything else from the graph. A fixed batch size becomes dynamic.

    scikit-learn's zip-map, a dictionary for each row, is removed: its tensor becomes the output. A list with a tensor
    for each target becomes one tensor, targets x N x classes.
    """
    labels = _cut_zip_maps(model)
    _stack_lists(model)
    outputs = _outputs(model, path, options.output)
    _keep(model, [one.name for one in outputs])
    inputs = _inputs(model, path, options.input)
    _free_batch(model)
    rank = len(inputs[0].shape or ())
    kind: Kind = "text" if options.input == "text" else "image" if rank == 4 else "vector"
    return GraphSignature(kind, inputs, outputs, labels)


def _inputs(model: Model, path: Path, kind: Kind | None) -> tuple[TensorInfo, ...]:
    all_inputs = [_info(value) for value in model.graph.input]
    listed = "; ".join(map(str, all_inputs))
    if not all_inputs:
        raise ModelFileError(f"{path} takes no input: its outputs are constants")
    wrong = [one for one in all_inputs if one.type not in NUMBERS]
    if wrong:
        cure = "encode texts and categories as numbers before the model"
        raise ModelFileError(f"{path} takes {wrong[0]}; allowed are numbers (float, int, bool): {cure}")
    if kind == "text":
        return _text_inputs(path, all_inputs, listed)
    if any(one.name == TEXT_INPUTS[0] for one in all_inputs):
        cure = "give its tokenizer as well: --input text --tokenizer tokenizer.json"
        raise ModelFileError(f"{path} takes {listed}: it is a text model; {cure}")
    if len(all_inputs) > 1:
        if all(one.shape is not None and one.shape[1:] == (1,) for one in all_inputs):
            _check_kind(path, kind, "vector", listed)
            return tuple(all_inputs)
        cure = "make the others constants, or choose an output that needs only one of them (--output)"
        raise ModelFileError(f"{path} takes {len(all_inputs)} inputs: {listed}; a served model takes one input: {cure}")
    (one,) = all_inputs
    if one.shape is None or len(one.shape) not in (2, 4):
        allowed = "images of rank 4 (N x C x H x W, N x H x W x C) and vectors of rank 2 (N x features)"
        raise ModelFileError(f"{path} takes {one}; allowed are {allowed}; reshape inside the model")
    if len(one.shape) == 4 and one.type not in PIXELS:
        raise ModelFileError(f"{path} takes {one}; images are {', '.join(PIXELS.values())}: cast inside the model")
    _check_kind(path, kind, "image" if len(one.shape) == 4 else "vector", listed)
    return (one,)


def _text_inputs(path: Path, inputs: list[TensorInfo], listing: str) -> tuple[TensorInfo, ...]:
    """Return the ids first, then the mask and the types, if the graph takes them."""
    named = {TEXT_INPUTS[0] if len(inputs) == 1 else one.name: one for one in inputs}
    if TEXT_INPUTS[0] not in named or not named.keys() <= {*TEXT_INPUTS}:
        allowed = f"a text model takes {', '.join(TEXT_INPUTS)}, or the ids alone"
        raise ModelFileError(f"{path} takes {listing}; {allowed}. Use these names at export")
    for one in named.values():
        if one.type not in (TensorProto.INT64, TensorProto.INT32) or one.shape is None or len(one.shape) != 2:
            raise ModelFileError(f"{path} takes {one}; a text model takes whole numbers [N, L], the ids of tokens")
        if one.shape[1] is not None:
            cure = "export it for any number (torch.onnx.export(..., dynamic_shapes={'input_ids': {0: .., 1: ..}}))"
            raise ModelFileError(f"{path} takes {one}, a fixed number of tokens; {cure}")
    return tuple(named[name] for name in TEXT_INPUTS if name in named)


def _check_kind(path: Path, request: Kind | None, actual: Kind, listing: str) -> None:
    """Check that the graph's kind of input is the expected one."""
    if request not in (None, actual):
        expected = f"{request} is expected (by --input, or as the kind of the rows)"
        raise ModelFileError(f"{expected}, but {path} takes {listing}, which is of kind {actual}")


def _outputs(model: Model, path: Path, name: str | None) -> tuple[TensorInfo, ...]:
    every = [_info(value) for value in model.graph.output]
    candidates = [one for one in every if one.type in FLOATS]
    listed = "; ".join(map(str, every))
    if name is not None:
        chosen = [one for one in every if one.name == name]
        if not chosen:
            near = nearest(name, [one.name for one in every])
            raise ModelFileError(f"{path} has no output {name!r}; it has {listed}.{near}")
        if chosen[0].type not in FLOATS:
            problem = f"{path}: the output {chosen[0]} holds neither logits nor probabilities"
            raise ModelFileError(f"{problem}; it has {listed}")
        return tuple(chosen)
    if not candidates:
        raise ModelFileError(f"{path} has no output of float numbers, but {listed}; export its logits or probabilities")
    return tuple(candidates)


def _info(value: Any) -> TensorInfo:
    if not value.type.HasField("tensor_type"):
        return TensorInfo(value.name, 0, None)
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return TensorInfo(value.name, tensor.elem_type, None)
    sizes = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
    return TensorInfo(value.name, tensor.elem_type, sizes)


def _cut_zip_maps(model: Model) -> tuple[str, ...]:
    """Remove each ZipMap node, so that its input tensor becomes the output.

    Return the classes of the graph's classifier.
    """
    graph, labels = model.graph, _labels_of_output(model)
    for node in [node for node in graph.node if node.op_type == "ZipMap"]:
        for output in [output for output in graph.output if output.name == node.output[0]]:
            values = output.type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type
            output.name = node.input[0]
            output.type.CopyFrom(helper.make_tensor_type_proto(values or TensorProto.FLOAT, [BATCH, None]))
        graph.node.remove(node)
        labels = labels or _labels(node)
    classifiers = (_labels(node) for node in graph.node if node.op_type.endswith("Classifier"))
    return labels or next(filter(None, classifiers), ())


def _stack_lists(model: Model) -> None:
    """Make one tensor, targets x N x classes, of each output that lists a tensor N x classes for each target.

    skl2onnx exports scikit-learn's MultiOutputClassifier with such a list, and forests with such a tensor.
    """
    graph = model.graph
    outputs = {output.name: output for output in graph.output}
    for number, node in enumerate(graph.node):
        if node.op_type != "SequenceConstruct" or node.output[0] not in outputs:
            continue
        output, name = outputs[node.output[0]], f"{STACKED}{number}"
        kind = output.type.sequence_type.elem_type.tensor_type.elem_type
        shape = numpy_helper.from_array(np.array([0, len(node.input), -1], np.int64), f"{name}/shape")
        graph.initializer.append(shape)
        steps = [
            helper.make_node("Concat", list(node.input), [f"{name}/joined"], axis=1),
            helper.make_node("Reshape", [f"{name}/joined", shape.name], [f"{name}/apart"], f"{name}/apart"),
            helper.make_node("Transpose", [f"{name}/apart"], [output.name], perm=[1, 0, 2]),
        ]
        graph.node.remove(node)
        for place, step in enumerate(steps):
            graph.node.insert(number + place, step)
        output.type.CopyFrom(helper.make_tensor_type_proto(kind or TensorProto.FLOAT, [len(node.input), None, None]))
        _stack_lists(model)  # the numbers of the nodes have changed
        return


def _labels_of_output(model: Model) -> tuple[str, ...]:
    """Return the classes among which the graph's output of labels chooses; empty if there is none.

    Only the end of the graph tells them: encoders of categories, and the classifiers of an ensemble, have own names.
    """
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    for output in graph.output:
        if output.type.tensor_type.elem_type not in (TensorProto.STRING, TensorProto.INT64, TensorProto.INT32):
            continue
        node = makers.get(output.name)
        while node is not None and node.op_type in RESHAPING:
            node = makers.get(node.input[0])
        if node is not None and (names := _labels(node) or _chosen_from(model, node)):
            return names
    return ()


def _chosen_from(model: Model, node: Any) -> tuple[str, ...]:
    """Return the constants from which a node picks by position; empty if it picks from no constants."""
    tensor = next((one for one in model.graph.initializer if one.name == next(iter(node.input), None)), None)
    if node.op_type not in ("ArrayFeatureExtractor", "Gather") or tensor is None:
        return ()
    values = numpy_helper.to_array(tensor).ravel().tolist()
    return tuple(value.decode() if isinstance(value, bytes) else str(value) for value in values)


def _labels(node: Any) -> tuple[str, ...]:
    """Return the classes that a classifier or a zip-map of ai.onnx.ml names."""
    for attribute in node.attribute:
        if attribute.name == "classlabels_strings" and attribute.strings:
            return tuple(label.decode() for label in attribute.strings)
        if attribute.name in ("classlabels_int64s", "classlabels_ints") and attribute.ints:
            return tuple(map(str, attribute.ints))
    return ()


def _keep(model: Model, outputs: Sequence[str]) -> None:
    """Keep only the outputs, the nodes that they need, and the inputs and constants of these nodes."""
    graph, needed, nodes = model.graph, set(outputs), []
    for node in reversed(graph.node):  # a graph's nodes are sorted topologically
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(_read_by(node))
    for part, kept in (
        (graph.node, nodes[::-1]),
        (graph.output, [value for value in graph.output if value.name in outputs]),
        (graph.input, [value for value in graph.input if value.name in needed]),
        (graph.initializer, [tensor for tensor in graph.initializer if tensor.name in needed]),
    ):
        if len(kept) < len(part):
            copies = [type(one).FromString(one.SerializeToString()) for one in kept]
            del part[:]
            part.extend(copies)


def _read_by(node: Any) -> Iterator[str]:
    """Yield the names that a node reads, including those that its inner graphs read from outside."""
    yield from node.input
    for attribute in node.attribute:
        for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            for one in inner.node:
                yield from _read_by(one)
            yield from (output.name for output in inner.output)


def _free_batch(model: Model) -> None:
    """Name the first size of every input and output N, and remove the shapes that were inferred from a fixed one."""
    graph, fixed = model.graph, set[int]()
    for value in (*graph.output, *graph.input):
        sizes = value.type.tensor_type.shape.dim
        is_open = [not size.HasField("dim_value") for size in sizes]
        if sizes and is_open[:2] != [False, True]:  # a fixed size before the open one counts targets, not rows
            fixed |= {sizes[0].dim_value} if sizes[0].HasField("dim_value") else set()
            sizes[0].Clear()
            sizes[0].dim_param = BATCH
    if fixed:
        del graph.value_info[:]
        _free_reshapes(model, fixed)


def _free_reshapes(model: Model, batch: set[int]) -> None:
    """Let shapes that begin with the fixed batch size follow the rows. Exporters write the size into every Reshape."""
    graph = model.graph
    shapes = {tensor.name: tensor for tensor in graph.initializer}
    shapes |= {node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"}
    for number, node in enumerate(node for node in graph.node if node.op_type == "Reshape" and node.input[1] in shapes):
        shape = numpy_helper.to_array(shapes[node.input[1]])
        if shape.size and int(shape[0]) in batch:
            free = [0 if -1 in shape else -1, *shape[1:].tolist()]  # 0: the same size as the input
            node.input[1] = f"free_shape{number}"
            graph.initializer.append(numpy_helper.from_array(np.array(free, np.int64), node.input[1]))
