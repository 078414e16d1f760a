"""Understands a model's input: the kind for its card, from its signature and the labelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto

from trueodds.importing import hostile
from trueodds.importing.errors import LabelledRowsError, ModelFileError
from trueodds.importing.hub_files import CONFIG, TOKENIZER_CONFIG, HubFiles
from trueodds.importing.import_options import PIXEL, Layout, Preprocessing
from trueodds.importing.labelled_rows import CHANNELS, ImportRows, sample
from trueodds.importing.onnx_file import Model
from trueodds.importing.signature import FLOATS, RANGES, TEXT_INPUTS, ModelFile, TensorInfo
from trueodds.inputs import ImageInput, Input, Inputs, TextInput, VectorInput
from trueodds.inputs.text.kind import MOST, MOST_CHARACTERS
from trueodds.inputs.text.tokens import Stated
from trueodds.inputs.vector.kind import WHOLE
from trueodds.processes.limited import step
from trueodds.texts import quotes

SAMPLE = 32
"""Number of rows that a converted model is tried on."""
LAYOUT: Layout = "NCHW"
"""Default order of the axes of images."""
LARGEST_TOKENIZER = 2**27
"""Largest size in bytes of a tokenizer.json. Those with 256,000 tokens have 35 million."""
TOKENS_OPTION = "--max-tokens"
CURE = "--preprocess imagenet, unit (pixels 0 to 1), raw (0 to 255), or {mean: .., std: ..}"


@dataclass(frozen=True)
class Interpretation:
    """Meaning of a model's input, which its file and the labelled rows agree on."""

    file: ModelFile
    kind: Input
    """Input as the card will state it."""
    inputs: Inputs
    """Some of the rows, in this kind's form."""
    layout: Layout
    """Order of the axes in a graph of images."""
    notes: tuple[str, ...]
    """Sentences that a user must read."""


def understand(file: ModelFile, rows: ImportRows) -> Interpretation:
    """Find the kind of input that a model takes, and a sample of the rows in this kind's form.

    Raises:
        ModelFileError: A graph takes float pixels without preprocessing; preprocessing, sizes or channels do not fit;
            for texts, there is no tokenizer, some texts stop it, or there is no length or several.
        LabelledRowsError: The rows are of another kind, have another number of columns, or have fractions where the
            model takes whole numbers.
        InputError: The tokenizer has another vocabulary than the model, or the kind does not allow values of rows.
        UnreadableError: The file is not a tokenizer.json.
    """
    kind: Input
    layout, notes = LAYOUT, tuple[str, ...]()
    if file.signature.kind == "image":
        kind, layout = _image_input(file, rows)
    elif file.signature.kind == "text":
        step(f"trying texts on {file.options.tokenizer}")
        kind, notes = _text_input(file, rows)
    else:
        kind, notes = _vector_input(file, rows)
    step(f"running {file.path} on some of the rows")
    return Interpretation(file, kind, sample(kind, rows, SAMPLE), layout, notes)


def _vector_input(file: ModelFile, rows: ImportRows) -> tuple[VectorInput, tuple[str, ...]]:
    """Find the features: those that the model names, else the columns of the rows, else x0, x1, ..."""
    path, inputs, preprocessing = file.path, file.signature.inputs, file.options.preprocessing
    if isinstance(rows.x, tuple) or rows.x.ndim != 2:
        what = "images" if isinstance(rows.x, tuple) else f"an array of shape {rows.x.shape}"
        raise LabelledRowsError(f"{path} takes vectors, {inputs[0]}; {rows.source} holds {what}")
    columns, notes, table = rows.x.shape[1], list[str](), rows
    (*_, size) = inputs[0].shape or (None,)
    own: Sequence[str] = [tensor.name for tensor in inputs] if len(inputs) > 1 else file.features
    if len(inputs) == 1 and own and size not in (None, len(own)):
        problem = f"The metadata of {path} name {len(own)} features, and the model takes {size}"
        notes.append(f"{problem}: the names are ignored.")
        own = ()
    if own:
        table = rows.reorder(own)
    names = own or rows.features or [f"x{k}" for k in range(columns)]
    wanted = len(own) or size or columns
    if columns != wanted:
        problem = f"{rows.source} has {columns} features in each row, and {path} takes {wanted}"
        raise LabelledRowsError(f"{problem}; give the columns that the model was trained on, in their order")
    if rows.features and not own:
        order = f"the columns of {rows.source} are used in their order: {quotes(names)}"
        notes.append(f"The model does not name its features; {order}.")
    if own and not rows.features:
        order = f"they are used in the order of the model's features: {quotes(names)}"
        notes.append(f"{rows.source} does not name its columns; {order}.")
    if preprocessing is not None:
        preprocessing.check_channels(len(names), "features")
    whole, ranges = list[str](), dict[str, tuple[int, int]]()
    for k, tensor in enumerate(inputs):
        if tensor.type not in FLOATS:
            _check_whole(preprocessing, 1.0, tensor, path)
            part = slice(k, k + 1) if len(inputs) > 1 else slice(0, columns)
            _check_whole_rows(table, names, part, tensor, path)
            whole += names[part]
            ranges |= dict.fromkeys(names[part], RANGES[tensor.type]) if tensor.type in RANGES else {}
    if whole:
        those = "all features" if len(whole) == columns else quotes(whole)
        taken = "0 or 1" if set(ranges.values()) == {(0, 1)} and len(ranges) == len(whole) else "whole numbers"
        notes.append(f"The model takes {taken} for {those}: the service refuses other values there.")
    missing = bool(np.isnan(rows.x).any())
    return VectorInput(features=list(names), missing=missing, whole_numbers=whole, ranges=ranges), tuple(notes)


def _check_whole(preprocessing: Preprocessing | None, scale: float, tensor: TensorInfo, path: Path) -> None:
    """Check that preprocessing does not change the values of an input of whole numbers."""
    if preprocessing is None or tensor.type in FLOATS or not preprocessing.changes(scale):
        return
    problem = f"{path} takes {tensor}, whole numbers, and --preprocess makes fractions, which would be cut off"
    cure = "remove --preprocess; if it has only a size or a crop, add {scale: 1}"
    raise ModelFileError(f"{problem}: {cure}; or export the model with a float input")


def _check_whole_rows(rows: ImportRows, names: Sequence[str], own: slice, tensor: TensorInfo, path: Path) -> None:
    """Check that the columns for an input of whole numbers hold such numbers, exactly."""
    assert not isinstance(rows.x, tuple)
    low, high = RANGES.get(tensor.type, (-WHOLE, WHOLE))
    part = rows.x[:, own]
    wrong = (part != np.rint(part)) | (part < low) | (part > high)
    if wrong.any():
        row, column = (int(place) for place in np.unravel_index(int(wrong.argmax()), wrong.shape))
        value = part[row, column]
        shown = f"{value:.17g}" if value == np.rint(value) else str(value)
        problem = f"{path} takes {tensor}, whole numbers, and {rows.source} holds {shown}"
        cure = "give the columns that the model was trained on, or export the model with a float input"
        if abs(value) > WHOLE:
            problem += f", beyond the {WHOLE:,} up to which the service's float32 has all whole numbers"
            cure = "number the values from 0 before the model"
        elif tensor.type in RANGES:
            problem = problem.replace("whole numbers", f"whole numbers from {low:,} to {high:,}", 1)
        raise LabelledRowsError(f"{problem} in {rows.place(row)}, column {names[own][column]!r}; {cure}")


def _image_input(file: ModelFile, rows: ImportRows) -> tuple[ImageInput, Layout]:
    """Find size, channels, and the order of the axes in the graph's input."""
    path, (tensor, *_), preprocessing = file.path, file.signature.inputs, file.options.preprocessing
    own = preprocessing or Preprocessing()
    if preprocessing is None and tensor.type != TensorProto.UINT8:
        problem = f"{path} takes {tensor}, but the service takes pixels, 0 to 255"
        raise ModelFileError(f"{problem}; give the preprocessing: {CURE}")
    _, *sizes = tensor.shape or ()
    layout = own.layout or _layout(sizes, tensor, path)
    channels, height, width = sizes if layout == "NCHW" else [sizes[2], *sizes[:2]]
    of_rows = None if isinstance(rows.x, tuple) else rows.images().shape[1:]
    channels = channels or _channels_of_convolutions(file.model, tensor.name) or (of_rows[2] if of_rows else 3)
    if channels not in CHANNELS:
        problem = f"{path} takes {tensor}, {channels} channels in the order {layout}"
        raise ModelFileError(f"{problem}; allowed are 1 (grey) and 3 (RGB)")
    height, width = (edge or own.size or (of_rows[k] if of_rows else None) for k, edge in enumerate((height, width)))
    if height is None or width is None:
        cure = "give the size that it was trained on, such as --preprocess '{size: 224}' with mean and std"
        raise ModelFileError(f"{path} takes images of any size, {tensor}; {cure}")
    if own.size not in (None, height, width):
        raise ModelFileError(f"preprocess: size is {own.size}, but {path} takes {height} x {width}")
    _check_whole(preprocessing, PIXEL, tensor, path)
    own.check_channels(channels, "channels")
    encoded = isinstance(rows.x, tuple) or own.crop is not None
    scaling = (
        {"crop": own.crop or 1.0, "interpolation": own.interpolation or "bilinear"}
        if encoded and height == width
        else {}
    )
    return ImageInput(height=height, width=width, channels=channels, resized=bool(scaling), **scaling), layout


def _layout(sizes: list[int | None], tensor: TensorInfo, path: Path) -> Layout:
    first, last = sizes[0] in CHANNELS, sizes[2] in CHANNELS
    if first and last:
        cure = "Use --preprocess '{layout: NCHW}' or NHWC"
        raise ModelFileError(f"{path} takes {tensor}: which axis holds the channels? {cure}")
    if first or last:
        return "NCHW" if first else "NHWC"
    return "NHWC" if tensor.type == TensorProto.UINT8 and sizes[0] is not None else "NCHW"


def _channels_of_convolutions(model: Model, name: str) -> int | None:
    """Return the channels of the convolutions that read a tensor, if the graph's input has open sizes."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Conv" and node.input[0] == name and node.input[1] in weights:
            groups = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
            channels: int = weights[node.input[1]].dims[1] * groups
            return channels
    return None


def _text_input(file: ModelFile, rows: ImportRows) -> tuple[TextInput, tuple[str, ...]]:
    """Find the kind with its tokenizer, which is tried on hostile texts."""
    path, inputs, stated = file.path, file.signature.inputs, file.options
    if stated.tokenizer is None:
        raise ModelFileError(f"{path} takes the ids of tokens; give its tokenizer: --tokenizer tokenizer.json")
    if isinstance(rows.x, tuple) or rows.x.dtype.kind != "O":
        what = "images" if isinstance(rows.x, tuple) else "numbers"
        raise LabelledRowsError(f"{path} takes texts, and {rows.source} holds {what}")
    if stated.max_characters is not None and not 1 <= stated.max_characters <= MOST_CHARACTERS:
        raise ModelFileError(f"{hostile.OPTION} is {stated.max_characters:,}; allowed are 1 to {MOST_CHARACTERS:,}")
    data, vocabulary = _tokenizer(stated.tokenizer), _vocabulary(file.model, inputs[0].name)
    own = Stated.of(data, file.hub.pad_token)
    length, notes = max_tokens(file.hub, stated.max_tokens, stated.tokenizer, own.max_tokens)
    if vocabulary is None:
        notes = (
            *notes,
            "The graph does not show how many ids the model knows; it is assumed to know all of the tokenizer's.",
        )
    names = {one.name for one in inputs}
    mask, types = (name if name in names else None for name in TEXT_INPUTS[1:])
    kind = TextInput(
        max_tokens=length,
        truncation_side=file.hub.truncation_side or own.side,
        pad_id=own.pad_id,
        vocabulary_size=vocabulary or file.hub.vocabulary_size or own.ids,
        mask=mask,
        types=types,
        max_characters=stated.max_characters,
    ).with_tokenizer(data)
    hostile.check(kind, stated.tokenizer.name)
    return kind, notes


def max_tokens(hub: HubFiles, request: int | None, tokenizer: Path, cut: int | None) -> tuple[int, tuple[str, ...]]:
    """Return the number of tokens that a model reads, and notes for the user.

    Args:
        hub: Facts from the files beside the model.
        request: Number that the user has given.
        tokenizer: File of the tokenizer.
        cut: Length at which that file truncates texts.

    Raises:
        ModelFileError: The number is beyond what the files allow, no file has one, or the files contradict each
            other.
    """
    positions = f"{CONFIG} gives the model positions for {hub.positions:,} tokens" if hub.positions else ""
    if request is not None:
        if not 1 <= request <= MOST:
            raise ModelFileError(f"{TOKENS_OPTION} is {request}; allowed are 1 to {MOST:,}")
        if hub.positions is not None and request > hub.positions:
            raise ModelFileError(f"{TOKENS_OPTION} is {request:,}, but {positions}; use {hub.positions} or fewer")
        return request, ()
    cuts = f"{tokenizer.name} truncates texts at {cut:,} tokens" if cut else ""
    length = f"{TOKENIZER_CONFIG} has model_max_length {hub.max_length:,}" if hub.max_length else ""
    known = [number for number in (hub.max_length, hub.positions) if number is not None]
    if cut is None and not known:
        beside = f"neither {tokenizer.name} nor a {TOKENIZER_CONFIG} or {CONFIG} beside it states"
        cure = f"give the number: {TOKENS_OPTION} N, such as {TOKENS_OPTION} 512"
        raise ModelFileError(f"{beside} how many tokens the model reads; {cure}")
    limit = min([*known, MOST])
    if (cut or 0) > limit or (hub.max_length or 0) > (hub.positions or MOST):
        problem = "; ".join(filter(None, (cuts, length, positions)))
        cure = f"Give the number of tokens that it reads: {TOKENS_OPTION} {limit}"
        raise ModelFileError(f"{problem}: these contradict each other. {cure}")
    if cut is None:
        return limit, ()
    more = f"{cuts}, and the model may read {limit:,} ({TOKENS_OPTION})."
    return cut, (more,) if known and cut < limit else ()


def _tokenizer(path: Path) -> bytes:
    """Return the content of a tokenizer.json."""
    try:
        if (size := path.stat().st_size) > LARGEST_TOKENIZER:
            problem = f"{path} has {size:,} bytes; allowed are {LARGEST_TOKENIZER:,}"
            raise ModelFileError(f"{problem}: give the tokenizer.json of the model")
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}; give a tokenizer.json") from None


def _vocabulary(model: Model, name: str) -> int | None:
    """Return the number of rows of the table in which the ids are looked up; None if none is found."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    same = {name}
    for node in model.graph.node:
        if node.op_type in ("Cast", "Identity") and node.input[0] in same:
            same.update(node.output)
        if node.op_type == "Gather" and node.input[1] in same and node.input[0] in weights:
            rows: int = weights[node.input[0]].dims[0]
            return rows
    return None
