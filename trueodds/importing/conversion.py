"""A model as the service takes it: rows of a kind in, one row of logits out, whatever the file's own signature is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.importing import graph, kinds, onnx_file, scoring
from trueodds.importing.errors import ModelFileError
from trueodds.importing.graph import Form
from trueodds.importing.kinds import TextOptions
from trueodds.importing.preprocessing import Preprocessing
from trueodds.importing.rows import LabelledRows
from trueodds.importing.signature import FLOATS, Kind, Signature, TensorInfo, signature
from trueodds.importing.texts import lengths
from trueodds.importing.texts.hub_files import HubFiles
from trueodds.inputs import Input, TextInput
from trueodds.processes.limited import step

SAMPLE = 32
"""Rows by which the form of an output is told."""
SUM_TOLERANCE = {"float16": 1e-2}
"""Of the sum of probabilities, by type; of others 1e-3."""

TOLERANCE = 1e-3
"""Of a probability; of a logit that the model gives itself, absolute and relative."""
HALF_TOLERANCE = 1e-2
"""Of a probability in float16."""


@dataclass(frozen=True)
class Options:
    """What the caller says of a model; None: as the file says."""

    input: Kind | None = None
    output: str | None = None
    preprocessing: Preprocessing | None = None
    texts: TextOptions = TextOptions()  # noqa: RUF009  # frozen


@dataclass(frozen=True)
class Converted:
    """A servable model: its input is the kind's tensor, its output `logits`."""

    data: bytes
    """The ONNX file."""
    kind: Input
    classes: int
    """Columns of the logits."""
    labels: tuple[str, ...]
    """The classes as the graph names them, or the config.json beside it; empty: neither does."""
    labels_source: str
    """The file that names them."""
    notes: tuple[str, ...]
    """Sentences that a user must know."""
    origin: Mapping[str, Any]
    """Of the file: hash, opset, producer, signature; for the card."""


def convert(path: Path, rows: LabelledRows, options: Options) -> Converted:
    """Composes preprocessing and logits with the model of a file, and checks the outcome on some of the rows.

    Raises:
        ModelFileError: a model that cannot be imported.
        LabelledRowsError: rows that it does not take.
        InputError: values of rows that its kind does not take.
        FileNotFoundError: no such file.
    """
    step(f"reading {path}")
    model, preprocessing = onnx_file.read(path), options.preprocessing
    onnx_file.session(onnx_file.serialised(model, path), path)
    origin = {"sha256": onnx_file.digest(path), "opset": onnx_file.opset(model), "producer": _producer(model)}
    tensors = signature(model, path, kind=options.input, output=options.output)
    onnx_file.without_metadata(model)
    files = HubFiles.beside(options.texts.tokenizer, path)
    kind: Input
    if tensors.kind == "image":
        images, layout = kinds.image_input(model, tensors.inputs[0], rows, preprocessing, path)
        kind, bare, about = images, model, tuple[str, ...]()
        model = _composed(path, lambda: graph.with_images(bare, tensors.inputs[0], images, preprocessing, layout))
    elif tensors.kind == "text":
        step(f"trying texts on {options.texts.tokenizer}")
        texts, about = kinds.text_input(model, tensors, rows, options.texts, files, path)
        names = [name for name in (texts.ids, texts.mask, texts.types) if name is not None]
        kind, bare = texts, model
        model = _composed(path, lambda: graph.with_tokens(bare, dict(zip(names, tensors.inputs, strict=True))))
    else:
        vectors, about = kinds.vector_input(tensors, rows, preprocessing, path)
        kind, bare = vectors, model
        model = _composed(path, lambda: graph.with_features(bare, tensors.inputs, vectors, preprocessing))
    step(f"running {path} on some of the rows")
    session = onnx_file.session(onnx_file.serialised(model, path), path)
    if isinstance(kind, TextInput):
        lengths.check(kind, lambda batch: session.run(None, kind.feed(batch, [kind.tensor])), path)
    sample = rows.take(np.unique(np.linspace(0, len(rows) - 1, SAMPLE).astype(np.intp)))
    inputs = np.concatenate(list(scoring.batches(kind, kinds.inputs_of(kind, sample))))
    output, values_NC = _output(session, tensors, inputs, kind, path)
    form = _form(output, values_NC, path)
    classes = max(2, values_NC.shape[1])
    prepared = model
    data = onnx_file.serialised(_composed(path, lambda: graph.with_logits(prepared, output, form, classes)), path)
    changed = _check_as_file(path, prepared, kind, inputs, tensors, output, form, values_NC)
    _check_rows_apart(data, kind, inputs, path, form, output, files.padding_side)
    origin |= {"inputs": [str(one) for one in tensors.inputs], "output": str(output), "form": form}
    origin |= {"preprocessing": preprocessing.model_dump(exclude_none=True) if preprocessing else None}
    labels, source = (tensors.labels, str(path)) if tensors.labels else (files.classes, files.classes_file)
    notes = (*files.notes, *about, *changed, *_notes(form, output, values_NC))
    return Converted(data, kind, classes, labels, source, notes, origin)


def _composed(path: Path, compose: Callable[[], onnx_file.Model]) -> onnx_file.Model:
    try:
        return compose()
    except Exception as error:  # of onnx's checker and composer, without a common base
        problem = f"{path} cannot be composed with its preprocessing: {' '.join(str(error).split())}"
        raise ModelFileError(f"{problem}; export it anew with a current exporter") from None


def _output(
    session: Any, tensors: Signature, inputs: npt.NDArray[Any], kind: Input, path: Path
) -> tuple[TensorInfo, npt.NDArray[Any]]:
    """The output that holds one number a class, and what it holds for the sample, N x C."""
    names = [graph.PREFIX + one.name for one in tensors.outputs]
    try:
        values = session.run(names, kind.feed(inputs, [kind.tensor]))
    except Exception as error:  # onnxruntime has a dozen exception types without a common base
        raise _not_run(path, tensors, len(inputs), str(error)) from None
    fitting = {}
    for one, value in zip(tensors.outputs, values, strict=True):
        if value.ndim == 1 or (value.ndim >= 2 and int(np.prod(value.shape[2:])) == 1):
            if len(value) != len(inputs):
                raise _not_run(path, tensors, len(inputs), f"it answers with {len(value)} rows")
            fitting[one] = value.reshape(len(value), -1)
    if len(fitting) == 1:
        return next(iter(fitting.items()))
    shapes = "; ".join(
        f"{one.name!r} {value.dtype} {list(value.shape)}" for one, value in zip(tensors.outputs, values, strict=True)
    )
    if not fitting:
        raise ModelFileError(f"{path} has no output of one number for each class, but {shapes}; export its logits")
    raise ModelFileError(
        f"{path} has {len(fitting)} outputs that may be logits or probabilities: {shapes}; choose one: --output NAME"
    )


def _not_run(path: Path, tensors: Signature, rows: int, message: str) -> ModelFileError:
    shapes = "; ".join(map(str, tensors.inputs))
    problem = f"{path} takes {shapes} and cannot be run on {rows} rows: {' '.join(message.split())}"
    if tensors.inputs[0].shape and tensors.inputs[0].shape[0] is not None:
        cure = (
            f"its batch of {tensors.inputs[0].shape[0]} is fixed inside the graph too: export it with a dynamic batch"
        )
        return ModelFileError(f"{problem}; {cure} (torch.onnx.export(..., dynamic_shapes={{'x': {{0: 'batch'}}}}))")
    return ModelFileError(f"{problem}; check the layout and the size that --preprocess states")


def _form(output: TensorInfo, values_NC: npt.NDArray[Any], path: Path) -> Form:
    """What the output holds, by the values of the sample."""
    values_NC = values_NC.astype(np.float64)
    known = np.nan_to_num(values_NC)
    inside = bool((known >= -graph.ROUNDING).all() and (known <= 1 + graph.ROUNDING).all())
    if values_NC.shape[1] == 1:
        return "probability" if inside else "logit"
    sums_N = values_NC[np.isfinite(values_NC).all(axis=1)].sum(axis=1)
    if inside and len(sums_N) and np.abs(sums_N - 1).max() <= SUM_TOLERANCE.get(FLOATS.get(output.type, ""), 1e-3):
        return "probabilities"
    if inside and len(sums_N):
        low, high = sums_N.min(), sums_N.max()
        problem = f"{path}: each value of {output.name!r} lies in [0, 1], and rows sum to {low:.3g} .. {high:.3g}"
        cure = "give the output before the sigmoid (--output); of labels that do not exclude each other each is a model"
        raise ModelFileError(f"{problem}: neither logits nor probabilities of classes that exclude each other; {cure}")
    return "logits"


def _notes(form: Form, output: TensorInfo, values_NC: npt.NDArray[Any]) -> tuple[str, ...]:
    notes = []
    if form in ("probabilities", "probability"):
        what = "rows that sum to 1" if form == "probabilities" else "one column from 0 to 1"
        notes.append(
            f"The output {output.name!r} holds probabilities ({what}), not logits: their logarithms are taken."
        )
        if zeros := float(((values_NC <= 0) | (values_NC >= 1 if form == "probability" else False)).mean()):
            notes.append(
                f"{zeros:.0%} of its probabilities are exactly 0 or 1: of those no calibrator can tell which are wrong."
                " Where the model has an output before its softmax or sigmoid, name that: --output."
            )
    if form == "logit":
        notes.append(f"The output {output.name!r} is one logit, of the second class: the first one's is 0.")
    return tuple(notes)


def _check_as_file(
    path: Path,
    model: onnx_file.Model,
    kind: Input,
    inputs: npt.NDArray[Any],
    signature: Signature,
    output: TensorInfo,
    form: Form,
    values_NC: npt.NDArray[Any],
) -> tuple[str, ...]:
    """Compares what a composed model gives for rows with what its file gives, as onnxruntime runs it unchanged.

    Args:
        model: The file's graph behind its preprocessing.
        signature: The file's own inputs and classes.
        values_NC: What `model` gives at `output` for `inputs`.

    Returns:
        A note where onnxruntime cannot run the file unchanged.

    Raises:
        ModelFileError: the answers differ.
    """
    front = onnx_file.session(onnx_file.serialised(graph.in_front(model, signature.inputs), path), path)
    names = [one.name for one in signature.inputs]
    taken = front.run(
        [graph.INTO + name for name in names], kind.feed(inputs, [one.name for one in front.get_inputs()])
    )
    try:
        own_NC = _unchanged(path, dict(zip(names, taken, strict=True)), output.name, signature.labels)
        own_NC = own_NC.reshape(values_NC.shape)
    except Exception as error:  # onnxruntime has a dozen exception types without a common base
        why = " ".join(str(error).split())
        return (f"onnxruntime cannot run {path} as it is, so its answers were not compared with the bundle's: {why}",)
    if not _near(own_NC, values_NC, form, output):
        off = float(np.abs(own_NC.astype(np.float64) - values_NC).max())
        problem = f"{path}: after conversion to a current format its answers differ by {off:.2g}"
        raise ModelFileError(f"{problem}; export the model again, with opset {onnx_file.CURRENT} or later")
    return ()


def _unchanged(path: Path, feed: dict[str, npt.NDArray[Any]], output: str, labels: tuple[str, ...]) -> npt.NDArray[Any]:
    """What the file itself answers, in batches of its own size; of a zip-map by `labels`, its keys in their order."""
    session = onnx_file.session(str(path), path)
    outputs = {one.name: one.type for one in session.get_outputs()}
    name = output if output in outputs else next(name for name, kind in outputs.items() if "map" in kind)
    rows = len(next(iter(feed.values())))
    size = session.get_inputs()[0].shape[0]
    size = size if isinstance(size, int) and size > 0 else rows
    parts = []
    for start in range(0, rows, size):
        place_N = np.arange(start, start + size).clip(max=rows - 1)
        answer = session.run([name], {key: value[place_N] for key, value in feed.items()})[0]
        if isinstance(answer, list):
            answer = np.array(
                [[p for _, p in sorted(row.items(), key=lambda one: labels.index(str(one[0])))] for row in answer]
            )
        parts.append(answer)
    return np.concatenate(parts)[:rows]


def _check_rows_apart(
    data: bytes, kind: Input, inputs: npt.NDArray[Any], path: Path, form: Form, output: TensorInfo, padding: str | None
) -> None:
    """Raises ModelFileError where the answer to a row depends on which rows come with it.

    `padding`: the side on which the model's own tokenizer pads, if that is known.
    """
    session, order_N = onnx_file.session(data, path), inputs.reshape(len(inputs), -1)[:, 0].argsort(kind="stable")
    some = inputs[[0, order_N[0], order_N[-1]]]  # of texts the shortest and the longest
    together_NC = session.run(None, kind.feed(some, [kind.tensor]))[0]
    alone_NC = np.concatenate([session.run(None, kind.feed(row[None], [kind.tensor]))[0] for row in some])
    what = "logits"
    if form in ("probabilities", "probability"):  # the logarithm of a small one turns its last digit into a large step
        what, together_NC, alone_NC = "probabilities", np.exp(together_NC), np.exp(alone_NC)
    if not _near(alone_NC, together_NC, form, output):
        off = float(np.nanmax(np.abs(alone_NC - together_NC)))
        cure = "export it in evaluation mode, with a dynamic batch"
        if padding == "left":
            cure += ", and with positions by its attention mask: texts are padded on the right here, not on the left"
        raise ModelFileError(f"{path}: the {what} of a row depend on the rows beside it (by {off:.2g}); {cure}")


def _near(one_NC: npt.NDArray[Any], other_NC: npt.NDArray[Any], form: Form, output: TensorInfo) -> bool:
    relative, absolute = TOLERANCE, TOLERANCE
    if form in ("probabilities", "probability"):
        relative, absolute = 0.0, HALF_TOLERANCE if FLOATS.get(output.type) == "float16" else TOLERANCE
    return np.allclose(one_NC, other_NC, rtol=relative, atol=absolute, equal_nan=True)


def _producer(model: onnx_file.Model) -> str:
    return " ".join(filter(None, (model.producer_name, model.producer_version)))
