"""The kind of a model's input, as its card will state it, from its signature and the labelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from trueodds.importing.errors import LabelledRowsError, ModelFileError
from trueodds.importing.onnx_file import Model
from trueodds.importing.preprocessing import PIXEL, Layout, Preprocessing
from trueodds.importing.rows import LabelledRows
from trueodds.importing.signature import FLOATS, TEXT_INPUTS, Signature, TensorInfo
from trueodds.importing.texts import hostile, lengths
from trueodds.importing.texts.hub_files import HubFiles
from trueodds.inputs import ImageInput, Input, Limits, TextInput, VectorInput
from trueodds.inputs.text.tokens import Stated
from trueodds.texts import listed

CHANNELS = (1, 3)
LARGEST_TOKENIZER = 2**27
"""Bytes of a tokenizer.json; those of 256,000 tokens have 35 million."""
CURE = "--preprocess imagenet, unit (pixels 0 to 1), raw (0 to 255), or {mean: .., std: ..}"


@dataclass(frozen=True)
class TextOptions:
    """The caller's statements about a model of texts; None: as the files say."""

    tokenizer: Path | None = None
    """A tokenizer.json."""
    max_tokens: int | None = None
    max_characters: int | None = None


def vector_input(
    signature: Signature, rows: LabelledRows, preprocessing: Preprocessing | None, path: Path
) -> tuple[VectorInput, tuple[str, ...]]:
    """The features: those that the model names, else the columns of the rows, else x0, x1, ...; and notes for the user.

    Raises:
        LabelledRowsError: rows that are no vectors, of another number of columns, or of fractions where the model takes
            whole numbers.
        ModelFileError: preprocessing of another number of features, or of whole numbers.
    """
    if isinstance(rows.x, tuple) or rows.x.ndim != 2:
        what = "images" if isinstance(rows.x, tuple) else f"an array of shape {rows.x.shape}"
        raise LabelledRowsError(f"{path} takes vectors, {signature.inputs[0]}; {rows.source} holds {what}")
    columns, notes = rows.x.shape[1], list[str]()
    if len(signature.inputs) > 1:
        names: Sequence[str] = [tensor.name for tensor in signature.inputs]
        rows = rows.ordered(names)
    else:
        names = rows.features or [f"x{k}" for k in range(columns)]
    (*_, size) = signature.inputs[0].shape or (None,)
    wanted = len(names) if len(signature.inputs) > 1 else size or columns
    if columns != wanted:
        problem = f"{rows.source} has {columns} features in each row, and {path} takes {wanted}"
        raise LabelledRowsError(f"{problem}; give the columns that the model was trained on, in their order")
    if rows.features and len(signature.inputs) == 1:
        order = f"the columns of {rows.source} are taken in their order there: {listed(names)}"
        notes.append(f"The model does not name its features; {order}.")
    if preprocessing is not None:
        preprocessing.check_channels(len(names), "features")
    for k, tensor in enumerate(signature.inputs):
        if tensor.type not in FLOATS:
            _check_whole(preprocessing, 1.0, tensor, path)
            own = slice(k, k + 1) if len(signature.inputs) > 1 else slice(0, columns)
            _check_whole_rows(rows, names, own, tensor, path)
    if any(tensor.type not in FLOATS for tensor in signature.inputs):
        notes.append("The model takes whole numbers: the fraction of a feature is cut off.")
    assert not isinstance(rows.x, tuple)
    return VectorInput(features=list(names), missing=bool(np.isnan(rows.x).any())), tuple(notes)


def _check_whole(preprocessing: Preprocessing | None, scale: float, tensor: TensorInfo, path: Path) -> None:
    """Raises ModelFileError for preprocessing that changes the values of an input of whole numbers."""
    if preprocessing is None or tensor.type in FLOATS or not preprocessing.changes(scale):
        return
    problem = f"{path} takes {tensor}, whole numbers, and --preprocess makes fractions, which would be cut off"
    cure = "leave --preprocess out; say {scale: 1} in it where it states only a size or a crop"
    raise ModelFileError(f"{problem}: {cure}; or export the model with a float input")


def _check_whole_rows(rows: LabelledRows, names: Sequence[str], own: slice, tensor: TensorInfo, path: Path) -> None:
    """Raises LabelledRowsError for fractions and missing values in columns that become an input of whole numbers."""
    assert not isinstance(rows.x, tuple)
    part = rows.x[:, own]
    wrong = part != np.rint(part)
    if wrong.any():
        row, column = (int(place) for place in np.unravel_index(int(wrong.argmax()), wrong.shape))
        problem = f"{path} takes {tensor}, whole numbers, and {rows.source} holds {part[row, column]:g}"
        cure = "give the columns that the model was trained on, or export the model with a float input"
        raise LabelledRowsError(f"{problem} in row {row}, column {names[own][column]!r}; {cure}")


def image_input(
    model: Model, tensor: TensorInfo, rows: LabelledRows, preprocessing: Preprocessing | None, path: Path
) -> tuple[ImageInput, Layout]:
    """Size, channels, and the order of the axes that the graph takes.

    Raises:
        ModelFileError: a graph of float pixels without preprocessing, preprocessing of an input of whole numbers, sizes
            or channels that do not fit.
        LabelledRowsError: rows that are no images.
    """
    own = preprocessing or Preprocessing()
    if preprocessing is None and tensor.type != TensorProto.UINT8:
        problem = f"{path} takes {tensor}, and the service takes pixels, 0 to 255"
        raise ModelFileError(f"{problem}; say what makes the one of the other: {CURE}")
    _check_whole(preprocessing, PIXEL, tensor, path)
    _, *sizes = tensor.shape or ()
    layout = own.layout or _layout(sizes, tensor, path)
    channels, height, width = sizes if layout == "NCHW" else [sizes[2], *sizes[:2]]
    of_rows = None if isinstance(rows.x, tuple) else images_of(rows).shape[1:]
    channels = channels or _convolved(model, tensor.name) or (of_rows[2] if of_rows else 3)
    if channels not in CHANNELS:
        raise ModelFileError(
            f"{path} takes {tensor}, {channels} channels in the order {layout}; allowed are 1 (grey) and 3 (RGB)"
        )
    height, width = (edge or own.size or (of_rows[k] if of_rows else None) for k, edge in enumerate((height, width)))
    if height is None or width is None:
        cure = "say which was trained on, such as --preprocess '{size: 224}' beside mean and std"
        raise ModelFileError(f"{path} takes images of any size, {tensor}; {cure}")
    if own.size not in (None, height, width):
        raise ModelFileError(f"preprocess: size is {own.size}, and {path} takes {height} x {width}")
    own.check_channels(channels, "channels")
    encoded = isinstance(rows.x, tuple) or own.crop is not None
    scaling = (
        {"crop": own.crop or 1.0, "interpolation": own.interpolation or "bilinear"}
        if encoded and height == width
        else {}
    )
    return ImageInput(height=height, width=width, channels=channels, resized=bool(scaling), **scaling), layout


def text_input(
    model: Model, signature: Signature, rows: LabelledRows, stated: TextOptions, files: HubFiles, path: Path
) -> tuple[TextInput, tuple[str, ...]]:
    """The kind with its tokenizer, and what a user must know of it; `files`: those beside tokenizer and model.

    Raises:
        ModelFileError: no tokenizer, one that is no match for hostile texts, no length or several.
        LabelledRowsError: rows that are no texts.
        InputError: a tokenizer of another vocabulary than the model's.
        UnreadableError: no tokenizer.json.
    """
    tokenizer = stated.tokenizer
    if tokenizer is None:
        raise ModelFileError(f"{path} takes the ids of tokens; give its tokenizer: --tokenizer tokenizer.json")
    if isinstance(rows.x, tuple) or rows.x.dtype.kind != "O":
        raise LabelledRowsError(
            f"{path} takes texts, and {rows.source} holds {'images' if isinstance(rows.x, tuple) else 'numbers'}"
        )
    lengths.check_characters(stated.max_characters)
    data = _read(tokenizer)
    said = Stated.of(data, files.pad_token)
    known = _vocabulary(model, signature.inputs[0].name)
    length, notes = lengths.max_tokens(stated.max_tokens, tokenizer, said.max_tokens, files)
    if known is None:
        notes = (*notes, "The graph does not show how many ids the model knows; the tokenizer's are taken to be all.")
    names = {one.name for one in signature.inputs}
    mask, types = (name if name in names else None for name in TEXT_INPUTS[1:])
    kind = TextInput(
        max_tokens=length,
        truncation_side=files.truncation_side or said.side,
        pad_id=said.pad_id,
        vocabulary_size=known or files.vocabulary_size or said.ids,
        mask=mask,
        types=types,
        max_characters=stated.max_characters,
    ).with_tokenizer(data)
    hostile.check(kind, tokenizer.name)
    return kind, notes


def _read(tokenizer: Path) -> bytes:
    """The bytes of a tokenizer.json."""
    try:
        if (size := tokenizer.stat().st_size) > LARGEST_TOKENIZER:
            problem = f"{tokenizer} has {size:,} bytes; allowed are {LARGEST_TOKENIZER:,}"
            raise ModelFileError(f"{problem}: give the tokenizer.json of the model")
        return tokenizer.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{tokenizer} cannot be read: {error.strerror}; give a tokenizer.json") from None


def inputs_of(kind: Input, rows: LabelledRows) -> LabelledRows:
    """The rows as the kind has them; files stay files.

    Raises:
        LabelledRowsError: another shape.
        InputError: values that the kind does not take.
    """
    if isinstance(rows.x, tuple):
        return rows
    if isinstance(kind, TextInput):
        texts = kind.of_checked(rows.x.tolist(), Limits(), lambda n: f"{rows.source}: row {n + 1:,}")
        return LabelledRows(rows.source, texts, rows.y, rows.classes)
    if isinstance(kind, VectorInput):
        rows, x = rows.ordered(kind.features), rows.ordered(kind.features).x
    else:
        x = images_of(rows)
    assert not isinstance(x, tuple)
    if x.shape[1:] != kind.shape:
        raise LabelledRowsError(f"{rows.source}: x has the shape {x.shape}; the model takes rows of shape {kind.shape}")
    return LabelledRows(rows.source, kind.checked(x, f"x of {rows.source}"), rows.y, rows.classes, rows.features)


def images_of(rows: LabelledRows) -> npt.NDArray[Any]:
    """The array of rows as N x H x W x C, whatever the order of its axes.

    Raises:
        LabelledRowsError: an array that holds no images.
    """
    x = rows.x
    assert not isinstance(x, tuple)
    if x.ndim == 3:
        return x[..., None]
    if x.ndim == 4 and x.shape[3] in CHANNELS:
        return x
    if x.ndim == 4 and x.shape[1] in CHANNELS:
        return x.transpose(0, 2, 3, 1)
    wanted = "expected images, N x height x width x channels (1 or 3), pixels 0 to 255"
    raise LabelledRowsError(f"{rows.source}: x is {x.dtype} of shape {x.shape}; {wanted}")


def _layout(sizes: list[int | None], tensor: TensorInfo, path: Path) -> Layout:
    first, last = sizes[0] in CHANNELS, sizes[2] in CHANNELS
    if first and last:
        raise ModelFileError(
            f"{path} takes {tensor}: which axis holds the channels? Say --preprocess '{{layout: NCHW}}' or NHWC"
        )
    if first or last:
        return "NCHW" if first else "NHWC"
    return "NHWC" if tensor.type == TensorProto.UINT8 and sizes[0] is not None else "NCHW"


def _vocabulary(model: Model, name: str) -> int | None:
    """Rows of the table in which the ids are looked up; None where none is found."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    same = {name}
    for node in model.graph.node:
        if node.op_type in ("Cast", "Identity") and node.input[0] in same:
            same.update(node.output)
        if node.op_type == "Gather" and node.input[1] in same and node.input[0] in weights:
            rows: int = weights[node.input[0]].dims[0]
            return rows
    return None


def _convolved(model: Model, name: str) -> int | None:
    """The channels of the convolutions that read a tensor: what a graph of open sizes takes after all."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Conv" and node.input[0] == name and node.input[1] in weights:
            groups = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
            channels: int = weights[node.input[1]].dims[1] * groups
            return channels
    return None
