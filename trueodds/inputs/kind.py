"""Base class of all kinds of input."""

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
"""Rows of one kind: an array of N x its shape, of its dtype."""
Format = Literal["npy", "bytes", "csv"]
"""Formats of a body besides JSON and files."""
SMALL = 4096
"""Largest number of values in a row whose example lists them one by one."""


class Limits(NamedTuple):
    """Limits of one call."""

    rows: int = sys.maxsize
    pixels: int = sys.maxsize
    """Total pixels of all encoded images before scaling. A few bytes can hold millions of pixels."""
    characters: int = sys.maxsize
    """Total characters of encoded inputs in JSON."""


NO_LIMITS = Limits()


class Extreme(NamedTuple):
    """A row at the limit of the allowed input."""

    what: str
    """Description of the row, such as "a text of 512 tokens"."""
    row: Inputs
    """Batch of one row."""
    is_answered: bool = True
    """Whether a model must return finite logits for it; otherwise it must only run."""


class TensorSignature(Protocol):
    """Input of a graph, as onnxruntime's `session.get_inputs()` describes it."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def shape(self) -> Sequence[int | str | None]: ...


class InputKind(BaseModel, ABC):
    """A kind of input. Its fields are the entry `input` of a bundle's card.

    All methods that read rows raise `InputError` for input that the model does not accept, `UnreadableError` for bytes
    without the stated format, and `InputTooLargeError` beyond `Limits`. To add a kind, write a subclass with the
    abstract methods and class variables, and add it to the union `Input`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    noun: ClassVar[str]
    """Word for one row in messages, such as "image"."""
    task: ClassVar[str]
    """Hugging Face's name for a classifier of such rows."""
    tensor: ClassVar[str]
    """Name of the input tensor in the ONNX graph and the Open Inference Protocol."""
    datatype: ClassVar[str]
    """The Open Inference Protocol's name of `dtype`."""
    onnx_type: ClassVar[str]
    """onnxruntime's name of `dtype`, without tensor()."""
    dtype: ClassVar[np.dtype[Any]]
    """Data type of the rows."""
    formats: ClassVar[Mapping[Format, str]]
    """Formats that `read` accepts, with a description for the documentation."""
    light: ClassVar[int] = 1024 * 1024
    """Number of bytes that `read` converts to rows within a few milliseconds."""
    together: ClassVar[int] = 1024
    """Number of rows that a graph gets at a time, if there are many."""
    files: ClassVar[str] = ""
    """Description of the files that `from_files` accepts; empty if the kind has no files."""
    schemas: ClassVar[Sequence[Mapping[str, Any]]]
    """JSON schemas of one instance in `from_json`."""
    instance: ClassVar[str]
    """Description of one instance in words."""
    beside: ClassVar[tuple[str, ...]] = ()
    """Names of the files that a bundle holds for the kind, beside the graph."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a checked copy with some fields changed. It shares nothing that was derived from the fields."""
        return type(self).model_validate({**self.model_dump(), **(update or {})})

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one row."""

    @property
    def size(self) -> str:
        """Size of a row in words."""
        return " x ".join(map(str, self.shape))

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """Shape of one row as a tensor of the Open Inference Protocol."""
        return self.shape

    @property
    def missing_packages(self) -> str:
        """Packages that some inputs need and that are not installed, with what to do; empty: none.

        Loading a model reports them.
        """
        return ""

    def with_files(self, files: Mapping[str, bytes]) -> Self:
        """Return the kind with the content of the files `beside`.

        Raises:
            InputError: The files do not fit the kind.
        """
        return self

    @property
    def files_beside(self) -> Mapping[str, bytes]:
        """The files `beside`, as `with_files` got them."""
        return {}

    @abstractmethod
    def from_json(self, instances: Sequence[Any], limits: Limits) -> Inputs:
        """Read rows from JSON values, one row for each instance."""

    @abstractmethod
    def read(self, body: bytes, form: Format, limits: Limits) -> Inputs:
        """Read rows from a body in one of `formats`. Its content is never executed or unpickled."""

    @property
    def columns(self) -> Sequence[str]:
        """Columns of a CSV body. `texts.alike` matches them too."""
        return ()

    def other_spellings(self, instances: Sequence[Any]) -> dict[str, str]:
        """Return the names in JSON objects that are spelled differently from the model's, by the model's name."""
        return {}

    def from_files(self, files: Sequence[tuple[str, bytes]], limits: Limits) -> Inputs:
        """Read rows from files, each with its name for messages. Only kinds with `files` support it."""
        raise NotImplementedError(f"{self.noun}s are not sent as files")

    @abstractmethod
    def from_values(self, numbers: Sequence[Any], rows: int, name: str, limits: Limits = NO_LIMITS) -> Inputs:
        """Read rows from a flat list of JSON values, row by row. `name` is the tensor's name, for messages."""

    @abstractmethod
    def check_rows(self, rows: npt.NDArray[Any], name: str) -> Inputs:
        """Check rows of numbers, N x shape, of any type, and convert them to the kind's dtype.

        `name` is for messages.
        """

    @abstractmethod
    def made_up(self) -> list[Any]:
        """Return the values of one invented row, flat, as `from_values` takes them; always the same."""

    @abstractmethod
    def examples(self) -> dict[str, Any]:
        """Return the invented row in each form that `from_json` accepts, by the name of the form."""

    def check_count(self, count: int, limits: Limits) -> None:
        """Check the number of rows.

        Raises:
            InputError: There are no rows.
            InputTooLargeError: There are too many.
        """
        if not count:
            raise InputError("invalid_instances", f"no {self.noun} was sent; send at least one")
        if count > limits.rows:
            message = f"{count:,} {self.noun}s in one call; the limit is {limits.rows:,}. Send them in several calls"
            raise InputTooLargeError("too_many_instances", message)

    def check_signature(self, inputs: Sequence[TensorSignature], path: object) -> None:
        """Check that a graph takes one tensor of this dtype and shape, for any number of rows.

        `path` names the graph in the message.

        Raises:
            InputError: It does not.
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
        """Return notes on some of the rows for the answer, by their index, such as that a text was truncated."""
        return {}

    def feed(self, rows: Inputs, names: Sequence[str]) -> dict[str, Inputs]:
        """Return the graph's inputs for rows; `names` are the graph's names for them."""
        return {names[0]: rows}

    def extremes(self) -> Sequence[Extreme]:
        """Return rows at the limits of the allowed input, if some of them can make a graph fail that answers others."""
        return ()

    def longest(self, rows: Inputs) -> Inputs:
        """Return rows that take a model as long as possible."""
        return rows

    def values(self, row: npt.NDArray[Any]) -> list[Any]:
        """Return the values of one row as flat JSON, as `from_values` takes them."""
        values: list[Any] = row.ravel().tolist()
        return values

    def encode(self, row: npt.NDArray[Any]) -> bytes:
        """Return the bytes of one row, which a card stores for its golden input, and which identify an input."""
        if row.dtype != self.dtype:
            raise InputError("wrong_type", f"the {self.noun} is {row.dtype}; expected {self.dtype}")
        return row.tobytes()

    def decode(self, data: bytes, name: str) -> Inputs:
        """Restore the row from its bytes, as a batch of one."""
        size = self.dtype.itemsize * int(np.prod(self.shape))
        if len(data) != size:
            raise InputError("wrong_shape", f"{name} does not have shape {self.shape}")
        return self.check_rows(np.frombuffer(data, self.dtype).reshape(1, *self.shape), name)

    def join(self, parts: Sequence[Inputs]) -> Inputs:
        """Join the rows of several calls, one after the other.

        The bytes are joined, because `np.concatenate` releases the interpreter's lock for every part. Each time it may
        have to wait for the event loop to release it again.
        """
        if len(parts) == 1:
            return parts[0]
        data = b"".join(np.ascontiguousarray(part).data for part in parts)
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape)
