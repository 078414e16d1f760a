"""Kinds of input: each owns all that depends on what a model takes.

A kind is a frozen model, the entry `input` of a bundle's card, in a union discriminated by its field `kind`. It says
the tensor's name, dtype and shape, checks a graph's signature, and reads rows from whatever they come as:

>>> import numpy as np
>>> from trueodds.inputs import InputError, Limits, VectorInput
>>> flowers = VectorInput(features=["length", "width"])
>>> flowers.from_json([[5.1, 3.5], {"width": 3.0, "length": 4.9}], Limits()).tolist() == np.float32(
...     [[5.1, 3.5], [4.9, 3.0]]
... ).tolist()
True
>>> try:
...     flowers.from_json([{"length": 5.1, "widht": 3.5}], Limits())
... except InputError as error:
...     print(error.code, error)
invalid_instances instances[0] has the unknown feature 'widht'. Did you mean 'width'? The model takes 'length', 'width'

tensor, datatype, onnx_type, dtype, shape    of the ONNX graph's input and of the Open Inference Protocol's tensor
check_signature                              whether a graph takes just that, for any number of rows
from_json, read, from_files                  rows of JSON instances, of a body (.npy, raw bytes, CSV), of files
from_values, checked                         rows of a tensor's values: in JSON, or an array of any type
feed                                         what a graph is run on; with_files, files_beside: a text's tokenizer
extremes                                     rows at the limits of what callers may send: a text of all tokens
remarks                                      what an answer must say of its inputs: that a text was cut
encode, decode                               one row as bytes and back: the golden row of a card
join                                         the rows of several calls as one batch
examples                                     how a row may be sent as JSON

Another kind is one more subclass of `InputKind`, and its name in the union `Input`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trueodds.inputs.errors import InputError, InputTooLargeError, UnreadableError
from trueodds.inputs.image.kind import ImageInput
from trueodds.inputs.kind import Extreme, Format, InputKind, Inputs, Limits, TensorSignature
from trueodds.inputs.text.kind import TextInput
from trueodds.inputs.vector.kind import VectorInput

KINDS: tuple[type[InputKind], ...] = (ImageInput, VectorInput, TextInput)
SERVED = frozenset[str](kind.model_fields["kind"].default for kind in KINDS)
"""Names of the kinds: of other data, such as trees, no bundle is made."""

Input = Annotated[ImageInput | VectorInput | TextInput, Field(discriminator="kind")]
"""The entry `input` of a card."""

__all__ = [
    "KINDS",
    "SERVED",
    "Extreme",
    "Format",
    "ImageInput",
    "Input",
    "InputError",
    "InputKind",
    "InputTooLargeError",
    "Inputs",
    "Limits",
    "TensorSignature",
    "TextInput",
    "UnreadableError",
    "VectorInput",
]
