"""The base of all kinds of input."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from trueodds.inputs.errors import InputError, InputTooLargeError

Inputs = npt.NDArray[Any]
"""Rows of one kind: N x its shape, of its dtype."""
Format = Literal["npy", "bytes", "csv"]
"""What a body may be beside JSON and files."""
SMALL = 4096
"""Values of a row up to which an example shows them one by one."""


class Limits(NamedTuple):
    """What one call may hold."""

    rows: int = sys.maxsize
    pixels: int = sys.maxsize
    """Of all encoded images, before any scaling: a few bytes can hold millions."""
    characters: int = sys.maxsize
    """Of encoded inputs in JSON."""


NO_LIMITS = Limits()


class Extreme(NamedTuple):
    """A row at the limit of what callers may send."""

    what: str
    """The row in words: a text of 512 tokens."""
    row: Inputs
    """A batch of one."""
    is_answered: bool = True
    """Whether a model must give finite logits for it; otherwise it must only run."""


class TensorSignature(Protocol):
    """A graph's input, as onnxruntime's `session.get_inputs()` gives it."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def shape(self) -> Sequence[int | str | None]: ...


class InputKind(BaseModel, ABC):
    """A kind of input, as a bundle's card states it; its fields are the card's entry.

    Whatever reads rows raises `InputError` for what the model does not take, `UnreadableError` for bytes that are not
    of their format, and `InputTooLargeError` past `Limits`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    noun: ClassVar[str]
    """What one row is called in messages."""
    task: ClassVar[str]
    """Of a classifier of such rows, as Hugging Face names it."""
    tensor: ClassVar[str]
    """The name of the input tensor, of the ONNX graph and of the Open Inference Protocol."""
    datatype: ClassVar[str]
    """The Open Inference Protocol's name of `dtype`."""
    onnx_type: ClassVar[str]
    """onnxruntime's name of `dtype`, without tensor()."""
    dtype: ClassVar[np.dtype[Any]]
    """Of the rows."""
    formats: ClassVar[Mapping[Format, str]]
    """What `read` takes, with a description for the documentation."""
    light: ClassVar[int] = 1024 * 1024
    """Bytes that `read` makes rows of within some milliseconds."""
    together: ClassVar[int] = 1024
    """Rows that a graph is given at once, where there are many."""
    files: ClassVar[str] = ""
    """What `from_files` takes, in words; empty: the kind has no files."""
    schemas: ClassVar[Sequence[Mapping[str, Any]]]
    """JSON schemas of what `from_json` takes as one instance."""
    instance: ClassVar[str]
    """The same in words."""
    beside: ClassVar[tuple[str, ...]] = ()
    """Names of the files that a bundle holds for the kind, beside the graph."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed, which is checked, and shares nothing that was derived from the fields."""
        return type(self).model_validate({**self.model_dump(), **(update or {})})

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of one row."""

    @property
    def size(self) -> str:
        """Of a row, in words."""
        return " x ".join(map(str, self.shape))

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """Of one row as a tensor of the Open Inference Protocol."""
        return self.shape

    @property
    def missing_packages(self) -> str:
        """What some inputs need and this environment has not, with the cure; empty: nothing. Said at loading."""
        return ""

    def with_files(self, files: Mapping[str, bytes]) -> Self:
        """The same with what the files `beside` hold. Raises InputError where they do not fit it."""
        return self

    @property
    def files_beside(self) -> Mapping[str, bytes]:
        """The files `beside`, as `with_files` took them."""
        return {}

    @abstractmethod
    def from_json(self, instances: Sequence[Any], limits: Limits) -> Inputs:
        """Rows of JSON values, one for each instance."""

    @abstractmethod
    def read(self, body: bytes, form: Format, limits: Limits) -> Inputs:
        """Rows of a body in one of `formats`; nothing in it is ever executed or unpickled."""

    @property
    def columns(self) -> Sequence[str]:
        """Of a CSV body; `names.alike` finds them, too."""
        return ()

    def from_files(self, files: Sequence[tuple[str, bytes]], limits: Limits) -> Inputs:
        """Rows of files, each with its name for messages; only of a kind with `files`."""
        raise NotImplementedError(f"{self.noun}s are not sent as files")

    @abstractmethod
    def from_values(self, numbers: Sequence[Any], rows: int, name: str, limits: Limits = NO_LIMITS) -> Inputs:
        """Rows of JSON values that follow each other, row by row; `name` is that of the tensor, for messages."""

    @abstractmethod
    def checked(self, rows: npt.NDArray[Any], name: str) -> Inputs:
        """Rows of numbers of any type, N x shape, as the kind's own; `name` is for messages."""

    @abstractmethod
    def made_up(self) -> list[Any]:
        """Return the values of one row that is nobody's data, flat, as `from_values` takes them: always the same."""

    @abstractmethod
    def examples(self) -> dict[str, Any]:
        """Return the made-up row in each form that `from_json` takes, by the name of the form."""

    def check_count(self, count: int, limits: Limits) -> None:
        """Raises InputError for no rows, InputTooLargeError for too many."""
        if not count:
            raise InputError("invalid_instances", f"no {self.noun} was sent; send at least one")
        if count > limits.rows:
            message = f"{count:,} {self.noun}s in one call; the limit is {limits.rows:,}. Send them in several calls"
            raise InputTooLargeError("too_many_instances", message)

    def check_signature(self, inputs: Sequence[TensorSignature], path: object) -> None:
        """Raises InputError where a graph's inputs are not one tensor of this dtype and shape, for any number of rows.

        `path` names the graph in the message.
        """
        expected = ["N", *self.shape]
        if len(inputs) != 1 or inputs[0].type != f"tensor({self.onnx_type})" or len(inputs[0].shape) != len(expected):
            signature = ", ".join(f"{i.name}: {i.type} {i.shape}" for i in inputs)
            wanted = f"expected one {self.dtype} input of shape {expected}"
            raise InputError("wrong_signature", f"{path} takes ({signature}); {wanted}")
        batch, *sizes = inputs[0].shape
        fixed = [(size, want) for size, want in zip(sizes, expected[1:], strict=True) if isinstance(size, int)]
        if isinstance(batch, int) or any(size != want for size, want in fixed):
            problem = f"{path}: input {inputs[0].name!r} has shape {inputs[0].shape}"
            cure = f"its card says {expected} with any number N of {self.noun}s"
            raise InputError("wrong_signature", f"{problem}, {cure}")

    def remarks(self, rows: Inputs) -> Mapping[int, Mapping[str, Any]]:
        """What an answer must say of some of the rows, by their places: that a text was cut."""
        return {}

    def feed(self, rows: Inputs, names: Sequence[str]) -> dict[str, Inputs]:
        """The graph's inputs for rows; `names` are those that the graph gives them."""
        return {names[0]: rows}

    def extremes(self) -> Sequence[Extreme]:
        """Rows at the limits of what callers may send, where some of them make a graph fail that answers others."""
        return ()

    def longest(self, rows: Inputs) -> Inputs:
        """Rows that take a model as long as any can."""
        return rows

    def values(self, row: npt.NDArray[Any]) -> list[Any]:
        """The values of one row as JSON, flat: what `from_values` takes."""
        values: list[Any] = row.ravel().tolist()
        return values

    def encode(self, row: npt.NDArray[Any]) -> bytes:
        """The bytes of one row: what a card keeps of its golden input, and what tells one input from another."""
        if row.dtype != self.dtype:
            raise InputError("wrong_type", f"the {self.noun} is {row.dtype}; expected {self.dtype}")
        return row.tobytes()

    def decode(self, data: bytes, name: str) -> Inputs:
        """The row of such bytes, as a batch of one."""
        size = self.dtype.itemsize * int(np.prod(self.shape))
        if len(data) != size:
            raise InputError("wrong_shape", f"{name} does not have shape {self.shape}")
        return self.checked(np.frombuffer(data, self.dtype).reshape(1, *self.shape), name)

    def join(self, parts: Sequence[Inputs]) -> Inputs:
        """The rows of several calls, one after the other.

        As bytes: `np.concatenate` gives the interpreter's lock back for every part, and each time it may wait for the
        event loop to let go of it again.
        """
        if len(parts) == 1:
            return parts[0]
        data = b"".join(np.ascontiguousarray(part).data for part in parts)
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape)
