"""Rewrites a model for the service: rows of a kind are its input, one row of logits its output.

Nodes before the file's graph compute its input from rows. The model is then run on some of the rows, which shows what
it answers. Nodes behind the graph compute logits from that. The result is compared with the file's own answers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import scipy
from google.protobuf.message import EncodeError
from onnx import TensorProto, compose, helper, numpy_helper

from trueodds.bundle import trial
from trueodds.importing.errors import ModelFileError
from trueodds.importing.import_options import PIXEL, Preprocessing
from trueodds.importing.onnx_file import CURRENT, LIMIT, Model
from trueodds.importing.signature import BATCH, FLOATS, STACKED, ModelFile, TensorInfo
from trueodds.importing.understanding import TOKENS_OPTION, Interpretation
from trueodds.inputs import ImageInput, Input, Inputs, TextInput

Form = Literal["logits", "probabilities", "logit", "probability", "label logits", "label probabilities"]
"""Content of an output.

A column for each of several classes, one column for the second of two classes, or one for each independent label.
"""
PROBABILITIES = ("probabilities", "probability", "label probabilities")
OF_LABELS = ("label logits", "label probabilities")
"""Forms of an output of independent labels."""
SINGLE = ("logit", "probability")
"""Forms of an output with one column."""
LOGITS = "logits"
TARGETS = "a bundle answers one question: fit and export a classifier for each target"
"""Cure for a model of several targets with other classes than false and true."""
PREFIX, INTO = "model/", "into/"
"""Prefixes of the names of the imported graph, which differ from all added ones, and of the values for its inputs."""
BEFORE, BEHIND = "before/", "behind/"
"""Prefixes of the names before the graph and behind it."""
TOKENS = "L"
SMALLEST = float(np.finfo(np.float32).tiny)
"""Smallest probability. A smaller one, above all 0, gets its logarithm, because a logit must be finite."""
HALF_STEP: dict[int, float] = {TensorProto.FLOAT16: 2.0**-12, TensorProto.FLOAT: 2.0**-25, TensorProto.DOUBLE: 2.0**-54}
"""Smallest p and 1 - p of a sigmoid, by type: half the distance from 1 to the number before it.

A p nearer to 1 does not exist in the type. onnxruntime's float32 sigmoid is 0 from -18 on.
"""
ROUNDING = 1e-6
"""Amount by which a probability may be outside of 0 to 1."""
SUM_TOLERANCE = {"float16": 1e-2}
"""Tolerance of the sum of probabilities, by type; 1e-3 for the others."""
TOLERANCE = 1e-3
"""Tolerance of a probability, and of the model's own logits (absolute and relative)."""
HALF_TOLERANCE = 1e-2
"""Tolerance of a probability in float16."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ServableModel:
    """A model whose input is the tensor of its kind and whose output is `logits`."""

    file: ModelFile
    """File that it was made of, with the caller's options for it."""
    data: bytes
    """Content of the ONNX file."""
    session: ort.InferenceSession
    kind: Input
    sample: Inputs
    """Rows that it was tried on."""
    golden_logits: npt.NDArray[np.float32]
    """Its logits of the first of them alone, (C,)."""
    classes: int
    """Number of columns of the logits."""
    labels: tuple[str, ...]
    """Classes that the graph or the config.json beside it names; empty if neither does."""
    labels_source: str
    """File that names them."""
    notes: tuple[str, ...]
    """Sentences that a user must read."""
    origin: Mapping[str, Any]
    """Hash, opset, producer and signature of the file, for the card."""

    def run(self, rows: Inputs) -> npt.NDArray[np.float32]:
        """Compute the logits of one batch of rows, N x C."""
        logits_NC: npt.NDArray[np.float32] = _run(self.session, self.kind, rows)[0]
        return logits_NC


@dataclass(frozen=True)
class Sample:
    """A model behind its preprocessing, with its answers to some of the rows."""

    meaning: Interpretation
    graph_inputs: dict[str, Array]
    """Values of the inputs of the file's own graph."""
    output: TensorInfo
    """Output with one number for each class."""
    values_NC: Array
    """Its values for these rows."""
    form: Form
    has_pairs: bool = False
    """Whether the output has two probabilities for each label, labels x N x 2: of false, and of true."""

    @property
    def classes(self) -> int:
        """Number of logits in a row."""
        count: int = self.values_NC.shape[1]
        return count if self.form in OF_LABELS else max(2, count)

    def near(self, one_NC: Array, other_NC: Array) -> bool:
        """Return whether two answers of this form are equal except for rounding."""
        relative, absolute = TOLERANCE, TOLERANCE
        if self.form in PROBABILITIES:
            relative, absolute = 0.0, HALF_TOLERANCE if FLOATS.get(self.output.type) == "float16" else TOLERANCE
        return np.allclose(one_NC, other_NC, rtol=relative, atol=absolute, equal_nan=True)


def rewrite(meaning: Interpretation, *, spinning: bool = True) -> ServableModel:
    """Combine a model with its preprocessing and its logits, and check the result on some of the rows.

    `spinning` is that of `session`.

    Raises:
        ModelFileError: The model cannot be combined or run, or its answers change.
    """
    ready = _with_preprocessing(meaning)
    sample = _run_sample(meaning, ready)
    return _try_rewritten(sample, _with_logits(ready, sample), spinning=spinning)


def session(graph: Model | bytes | str, path: Path, *, spinning: bool = True) -> ort.InferenceSession:
    """Create an onnxruntime session on the CPU for a graph, its bytes, or its file. Messages name `path`.

    `spinning`: the threads wait busily. This is best if nothing else computes.

    Raises:
        ModelFileError: onnxruntime refuses the graph, or it has more bytes than protobuf allows.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 4  # its errors are raised as well
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    data = _to_bytes(graph, path) if isinstance(graph, Model) else graph
    try:
        return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a dozen exception types without a common base
        _check_equal_targets(path, str(error))
        raise ModelFileError(trial.reason_to_refuse(path, str(error), ort.__version__)) from None


def _check_equal_targets(path: Path, message: str) -> None:
    """Check that onnxruntime's error is not about targets with different numbers of classes, which were stacked."""
    if STACKED in message:
        problem = f"{path} has targets with different numbers of classes"
        raise ModelFileError(f"{problem}; {TARGETS}") from None


def _to_bytes(model: Model, path: Path) -> bytes:
    """Return the bytes of one file. Equal models give equal bytes."""
    try:
        data: bytes = model.SerializeToString(deterministic=True)
    except (EncodeError, ValueError):
        data = b""
    if not 0 < len(data) <= LIMIT:
        cure = "a bundle stores them in one file. Use float16 weights"
        raise ModelFileError(f"{path} has more than 2 GB of weights; {cure}")
    return data


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


@contextlib.contextmanager
def _composing(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the exceptions of onnx's checker and composer have no common base
        problem = f"{path} cannot be composed with its preprocessing: {' '.join(str(error).split())}"
        raise ModelFileError(f"{problem}; export it again with a current exporter") from None


def _model(graph: Any, file: ModelFile) -> Model:
    """Return a model that can be combined with that of a file: with its opset and format version."""
    version = helper.make_opsetid("", file.origin["opset"] or CURRENT)
    return helper.make_model(graph, opset_imports=[version], ir_version=file.model.ir_version)


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


def _run_sample(meaning: Interpretation, model: Model) -> Sample:
    """Run a model behind its preprocessing on some of the rows.

    Its outputs are those of the file's graph, with names that begin with PREFIX, and the inputs of that graph (INTO).
    """
    path, kind = meaning.file.path, meaning.kind
    ready = session(model, path)
    if isinstance(kind, TextInput):
        _check_lengths(ready, kind, path)
    output, values, taken = _output(ready, meaning)
    if values.ndim == 3:
        return Sample(meaning, taken, output, of_true(values), "label probabilities", has_pairs=True)
    form = _label_form(output, values, path) if meaning.file.options.multilabel else _form(output, values, path)
    return Sample(meaning, taken, output, values, form)


def of_true(p_LN2: Array) -> Array:
    """Return the probabilities that labels are true, N x L, of the two of each label."""
    p_NL: Array = p_LN2[:, :, 1].T
    return p_NL


def _are_pairs(values: Array) -> bool:
    """Return whether an output has two probabilities for each label, labels x N x 2."""
    inside = values.shape[2] == 2 and bool((values >= -ROUNDING).all() and (values <= 1 + ROUNDING).all())
    return inside and bool(np.abs(values.astype(np.float64).sum(axis=2) - 1).max() <= TOLERANCE)


def _check_lengths(ready: ort.InferenceSession, kind: TextInput, path: Path) -> None:
    """Check that a graph answers texts of as many tokens as its kind allows, and a text without tokens."""
    for what, row, _ in kind.extremes():
        if not (message := _failure(ready, kind, row)):
            continue
        count = int(min(row[0, 0], kind.max_tokens))
        least, most = 0, count  # it answers `least` tokens but not `most`
        while most - least > 1:
            middle = (least + most) // 2
            shorter = np.concatenate([np.full_like(row[:, :1], middle), row[:, 1:]], axis=1)
            least, most = (least, middle) if _failure(ready, kind, shorter) else (middle, most)
        cure = f"it answers up to {least:,} tokens: use {TOKENS_OPTION} {least}" if least else "export the model again"
        raise ModelFileError(f"{path} cannot be run on {what}: {message}; {cure}")


def _run(graph: ort.InferenceSession, kind: Input, rows: Inputs, outputs: Sequence[str] | None = None) -> list[Array]:
    """Run a graph that takes rows of a kind. Return its outputs, or those that are named."""
    values: list[Array] = graph.run(outputs, kind.feed(rows, [kind.tensor]))
    return values


def _failure(ready: ort.InferenceSession, kind: Input, row: Inputs) -> str:
    try:
        _run(ready, kind, row)
    except Exception as error:  # onnxruntime has a dozen exception types without a common base
        return " ".join(str(error).split())
    return ""


def _output(ready: ort.InferenceSession, meaning: Interpretation) -> tuple[TensorInfo, Array, dict[str, Array]]:
    """Return the output with one number for each class, its values for the sample, and those of the file's inputs.

    With --multi-label, it may have two probabilities for each label instead. Its values then have three axes.
    """
    path, kind, inputs = meaning.file.path, meaning.kind, meaning.inputs
    outputs, names = meaning.file.signature.outputs, [one.name for one in meaning.file.signature.inputs]
    wanted = [*(PREFIX + one.name for one in outputs), *(INTO + name for name in names)]
    try:
        values = _run(ready, kind, inputs, wanted)
    except Exception as error:  # onnxruntime has a dozen exception types without a common base
        _check_equal_targets(path, str(error))
        raise _not_run(meaning, len(inputs), str(error)) from None
    taken, fitting, stacked = dict(zip(names, values[len(outputs) :], strict=True)), dict[TensorInfo, Array](), []
    for one, value in zip(outputs, values, strict=False):
        if value.ndim == 1 or (value.ndim >= 2 and int(np.prod(value.shape[2:])) == 1):
            if len(value) != len(inputs):
                raise _not_run(meaning, len(inputs), f"it answers with {len(value)} rows")
            fitting[one] = value.reshape(len(value), -1)
        elif value.ndim == 3 and value.shape[1] == len(inputs):
            stacked.append((one, value))
    if meaning.file.options.multilabel and not fitting:
        fitting = {one: value for one, value in stacked if _are_pairs(value)}
    if len(fitting) == 1:
        return *next(iter(fitting.items())), taken
    shapes = "; ".join(
        f"{one.name!r} {value.dtype} {list(value.shape)}" for one, value in zip(outputs, values, strict=False)
    )
    if not fitting and stacked:
        raise _several_targets(path, *stacked[0], multilabel=meaning.file.options.multilabel)
    if not fitting:
        raise ModelFileError(f"{path} has no output of one number for each class, but {shapes}; export its logits")
    problem = f"{path} has {len(fitting)} outputs that may be logits or probabilities: {shapes}"
    raise ModelFileError(f"{problem}; choose one: --output NAME")


def _several_targets(path: Path, output: TensorInfo, values: Array, *, multilabel: bool) -> ModelFileError:
    """Build the error for an output of several targets, targets x N x classes, that is not taken."""
    targets, _, classes = values.shape
    problem = f"{path}: the output {output.name!r} has {classes} numbers for each of {targets} targets"
    if _are_pairs(values) and not multilabel:
        return ModelFileError(f"{problem}. If each target is a label that may be true or false, give --multi-label")
    if classes == 2:  # skl2onnx writes such numbers for a tree of several targets
        cure = "fit the labels as MultiOutputClassifier(..), and export that"
        return ModelFileError(f"{problem}, which are not probabilities: some two do not sum to 1; {cure}")
    return ModelFileError(f"{problem}, and --multi-label takes two probabilities for each; {TARGETS}")


def _not_run(meaning: Interpretation, rows: int, message: str) -> ModelFileError:
    inputs = meaning.file.signature.inputs
    shapes = "; ".join(map(str, inputs))
    problem = f"{meaning.file.path} takes {shapes} and cannot be run on {rows} rows: {' '.join(message.split())}"
    if inputs[0].shape and inputs[0].shape[0] is not None:
        cure = f"its batch of {inputs[0].shape[0]} is also fixed inside the graph: export it with a dynamic batch"
        return ModelFileError(f"{problem}; {cure} (torch.onnx.export(..., dynamic_shapes={{'x': {{0: 'batch'}}}}))")
    return ModelFileError(f"{problem}; check the layout and the size in --preprocess")


def _form(output: TensorInfo, values_NC: Array, path: Path) -> Form:
    """Return the content of an output, by its values for the sample."""
    values_NC = values_NC.astype(np.float64)
    numbers_NC = np.nan_to_num(values_NC)
    inside = bool((numbers_NC >= -ROUNDING).all() and (numbers_NC <= 1 + ROUNDING).all())
    if values_NC.shape[1] == 1:
        return "probability" if inside else "logit"
    sums_N = values_NC[np.isfinite(values_NC).all(axis=1)].sum(axis=1)
    if inside and len(sums_N) and np.abs(sums_N - 1).max() <= SUM_TOLERANCE.get(FLOATS.get(output.type, ""), 1e-3):
        return "probabilities"
    if inside and len(sums_N):
        low, high = sums_N.min(), sums_N.max()
        problem = f"{path}: each value of {output.name!r} lies in [0, 1], and rows sum to {low:.3g} .. {high:.3g}"
        cure = "give --multi-label if labels can occur together, or the output before the sigmoid (--output)"
        raise ModelFileError(f"{problem}: these are neither logits nor probabilities of exclusive classes; {cure}")
    return "logits"


def _label_form(output: TensorInfo, values_NL: Array, path: Path) -> Form:
    """Return the content of an output of independent labels, by its values for the sample."""
    numbers_NL = np.nan_to_num(values_NL.astype(np.float64))
    if (numbers_NL < -ROUNDING).any() or (numbers_NL > 1 + ROUNDING).any():
        return "label logits"
    tolerance = SUM_TOLERANCE.get(FLOATS.get(output.type, ""), 1e-3)
    if numbers_NL.shape[1] > 1 and np.abs(numbers_NL.sum(axis=1) - 1).max() <= tolerance:
        problem = f"{path}: the values of {output.name!r} lie in [0, 1], and every row sums to 1"
        raise ModelFileError(f"{problem}, as those of exclusive classes do; leave out --multi-label")
    return "label probabilities"


def _with_logits(ready: Model, sample: Sample) -> Model:
    """Return the model with one output, float32 logits N x C: its own, or the logarithms of its probabilities."""
    file, output, form = sample.meaning.file, sample.output, sample.form
    del ready.graph.output[len(file.signature.outputs) :]  # only the sample needed the inputs of the file's graph
    with _composing(file.path):
        nodes = _Nodes(BEHIND + "output", BEHIND)
        nodes("Cast", to=TensorProto.DOUBLE)  # 1 - p needs the digits if p is near 1
        if sample.has_pairs:  # as `of_true`
            nodes("Gather", nodes.constant(1, np.int64), axis=2)
            nodes("Transpose", perm=[1, 0])
        nodes("Reshape", nodes.constant([-1, 1 if form in SINGLE else sample.classes], np.int64))
        if form in SINGLE:  # z -> (0, z), p -> (1 - p, p), the latter as (-p, p) + (1, 0)
            nodes("Mul", nodes.constant([[0.0, 1.0] if form == "logit" else [-1.0, 1.0]], np.float64))
        if form == "probability":
            nodes("Add", nodes.constant([[1.0, 0.0]], np.float64))
        if form == "label probabilities":
            _log_odds(nodes, HALF_STEP[output.type])
        elif form in PROBABILITIES:
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


def _log_odds(nodes: _Nodes, least: float) -> None:
    """Append ln p - ln(1 - p), with p at least `least` from 0 and 1. A value that is not a probability becomes NaN."""
    own = nodes.last
    nodes("Less", nodes.constant(-ROUNDING, np.float64))
    below, nodes.last = nodes.last, own
    nodes("Greater", nodes.constant(1 + ROUNDING, np.float64))
    outside, nodes.last = nodes("Or", below), own
    nodes("Max", nodes.constant(least, np.float64))
    inside = nodes("Min", nodes.constant(1 - least, np.float64))
    nodes("Neg")
    others = nodes("Add", nodes.constant(1.0, np.float64))
    nodes.last = inside
    nodes("Div", others)
    odds = nodes("Log")
    nodes.last = outside
    nodes("Where", nodes.constant(np.nan, np.float64), odds)


def _try_rewritten(sample: Sample, model: Model, *, spinning: bool = True) -> ServableModel:
    """Compare a rewritten model, whose output is `logits`, with the file that it was made of, and return it.

    `spinning` is that of `session`.
    """
    meaning, file = sample.meaning, sample.meaning.file
    data = _to_bytes(model, file.path)
    changed = _check_as_file(sample)
    preprocessing, hub = file.options.preprocessing, file.hub
    labels, source = () if sample.has_pairs else file.signature.labels, str(file.path)  # of a target: false and true
    # A graph that only numbers its outputs does not contradict the names beside it.
    if hub.classes and labels in ((), tuple(map(str, range(len(labels))))):
        labels, source = hub.classes, hub.classes_file
    rewritten = session(data, file.path, spinning=spinning)
    return ServableModel(
        file=file,
        data=data,
        session=rewritten,
        kind=meaning.kind,
        sample=meaning.inputs,
        golden_logits=_logits_alone(sample, rewritten)[0],
        classes=sample.classes,
        labels=labels,
        labels_source=source,
        notes=(*hub.notes, *meaning.notes, *changed, *_notes(sample)),
        origin={
            **file.origin,
            "inputs": [str(one) for one in file.signature.inputs],
            "output": str(sample.output),
            "form": sample.form,
            "preprocessing": preprocessing.model_dump(exclude_none=True) if preprocessing else None,
        },
    )


def _check_as_file(sample: Sample) -> tuple[str, ...]:
    """Compare the answers with those of the original file in onnxruntime.

    Returns:
        A note if onnxruntime cannot run the original file.

    Raises:
        ModelFileError: The answers differ.
    """
    path, labels = sample.meaning.file.path, sample.meaning.file.signature.labels
    try:
        own_NC = _original_answers(path, sample.graph_inputs, sample.output.name, labels, has_pairs=sample.has_pairs)
        own_NC = own_NC.reshape(sample.values_NC.shape)
    except Exception as error:  # onnxruntime has a dozen exception types without a common base
        why = " ".join(str(error).split())
        return (
            f"onnxruntime cannot run the original {path}, so its answers were not compared with the bundle's: {why}",
        )
    if not sample.near(own_NC, sample.values_NC):
        off = float(np.abs(own_NC.astype(np.float64) - sample.values_NC).max())
        problem = f"{path}: after conversion to a current format its answers differ by {off:.2g}"
        raise ModelFileError(f"{problem}; export the model again, with opset {CURRENT} or later")
    return ()


def _original_answers(
    path: Path, feed: dict[str, Array], output: str, labels: tuple[str, ...], *, has_pairs: bool
) -> Array:
    """Return the original file's answers, in batches of its own size. A zip-map's values are ordered by `labels`.

    `has_pairs` is that of `Sample`.
    """
    unchanged = session(str(path), path)
    outputs = {one.name: one.type for one in unchanged.get_outputs()}
    name = output if output in outputs else next(name for name, kind in outputs.items() if "map" in kind)
    rows = len(next(iter(feed.values())))
    size = unchanged.get_inputs()[0].shape[0]
    size = size if isinstance(size, int) and size > 0 else rows
    parts = []
    for start in range(0, rows, size):
        place_N = np.arange(start, start + size).clip(max=rows - 1)
        answer = unchanged.run([name], {key: value[place_N] for key, value in feed.items()})[0]
        if has_pairs:  # one array, or a list with one for each label
            answer = of_true(np.asarray(answer))
        elif isinstance(answer, list):
            answer = np.array(
                [[p for _, p in sorted(row.items(), key=lambda one: labels.index(str(one[0])))] for row in answer]
            )
        parts.append(answer)
    return np.concatenate(parts)[:rows]


def _logits_alone(sample: Sample, rewritten: ort.InferenceSession) -> Array:
    """Return the logits of the first row and of two others, each computed alone."""
    meaning, inputs = sample.meaning, sample.meaning.inputs
    order_N = inputs.reshape(len(inputs), -1)[:, 0].argsort(kind="stable")
    some = inputs[[0, order_N[0], order_N[-1]]]  # for texts: the shortest and the longest
    logits_NC = np.concatenate([_run(rewritten, meaning.kind, row[None])[0] for row in some])
    what, alone_NC, together_NC = "logits", logits_NC, _run(rewritten, meaning.kind, some)[0]
    if sample.form in PROBABILITIES:  # the logarithm of a small probability magnifies its last digit
        inverse = scipy.special.expit if sample.form in OF_LABELS else np.exp
        what, alone_NC, together_NC = "probabilities", inverse(logits_NC), inverse(together_NC)
    if not sample.near(alone_NC, together_NC):
        off = float(np.nanmax(np.abs(alone_NC - together_NC)))
        cure = "export it in evaluation mode, with a dynamic batch"
        if meaning.file.hub.padding_side == "left":
            cure += ", and with positions by its attention mask, because texts are padded on the right"
        raise ModelFileError(
            f"{meaning.file.path}: the {what} of a row depend on the other rows of its batch (by {off:.2g}); {cure}"
        )
    return logits_NC


def _notes(sample: Sample) -> tuple[str, ...]:
    output, form, values_NC = sample.output, sample.form, sample.values_NC
    if form in ("logits", "label logits"):
        return ()
    if form == "logit":
        return (f"The output {output.name!r} is one logit, of the second class: the first one's is 0.",)
    what, by = {
        "probabilities": ("rows that sum to 1", "log"),
        "probability": ("one column from 0 to 1", "log"),
        "label probabilities": ("one for each label", "logit"),
    }[form]
    what = "two for each label, and the second is taken" if sample.has_pairs else what
    note = f"The output {output.name!r} holds probabilities ({what}), not logits. They are converted to logits by {by}."
    if zeros := float(((values_NC <= 0) | (values_NC >= 1 if form != "probabilities" else False)).mean()):
        extreme = (
            f"{zeros:.0%} of its probabilities are exactly 0 or 1. For those a calibrator cannot find out which are"
        )
        cure = (
            "If the model has an output before its softmax or sigmoid, choose it with --output. A forest has fewer of"
            " them with larger leaves (min_samples_leaf)."
        )
        return (note, f"{extreme} wrong. {cure}")
    return (note,)
