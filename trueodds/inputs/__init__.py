"""Kinds of input (images, vectors, texts): each owns everything that depends on the model's input.

A kind is a frozen pydantic model, the entry `input` of a bundle's card, in a union discriminated by its field `kind`.
It states the tensor's name, dtype and shape, checks a graph's signature, and reads rows from every form of input:

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

tensor, datatype, onnx_type, dtype, shape    the ONNX graph's input and the Open Inference Protocol's tensor
check_signature                              check that a graph takes exactly this input, for any number of rows
from_json, read, from_files                  read rows from JSON instances, a body (.npy, raw bytes, CSV) or files
from_values, check_rows                      read rows from a tensor's values, in JSON or as an array of any type
feed                                         the graph's inputs for some rows
with_files, files_beside                     further files of a bundle, such as a tokenizer
extremes                                     rows at the limits of the allowed input, such as a text of all tokens
remarks                                      notes on inputs for the answer, such as a truncated text
encode, decode                               convert one row to bytes and back, for the golden row of a card
join                                         join the rows of several calls to one batch
examples                                     forms in which a row may be sent as JSON

To add a kind, write a subclass of `InputKind` and add it to `KINDS` and the union `Input`.
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
"""Class of each kind of input."""
SERVED = frozenset[str](kind.model_fields["kind"].default for kind in KINDS)
"""Names of the kinds that a bundle can hold. Models of other data, such as trees, have no bundle."""

Input = Annotated[ImageInput | VectorInput | TextInput, Field(discriminator="kind")]
"""Entry `input` of a card."""

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
