"""The card's entry for texts, and all forms in which a text may be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, PrivateAttr, model_validator

from trueodds.inputs import table
from trueodds.inputs.checkpoint import checkpoint
from trueodds.inputs.errors import InputError, InputTooLargeError
from trueodds.inputs.kind import NO_LIMITS, Extreme, Format, InputKind, Inputs, Limits, TensorSignature
from trueodds.inputs.text.tokens import Side, TokenizerError, Tokens
from trueodds.texts import quotes, short

TOKENIZER = "tokenizer.json"
"""Name of the tokenizer's file in a bundle."""
COLUMN = "text"
"""Column of a CSV, and key of an instance that is an object."""
MOST = 8192
"""Largest number of tokens that a model may read of a text."""
CHARACTERS, CHARACTERS_OF_TOKEN = 2**16, 64
"""Limit of the characters of one text: the first number, or the second one for each token that the model reads.

Common tokenizers use 4 characters per token, and read 65,536 characters in 50 ms.
"""
MOST_CHARACTERS = CHARACTERS_OF_TOKEN * MOST
"""Largest limit that a card may state."""
SPARE = 127
"""Number of ids that a model's table may have beyond its tokenizer's. Tables are padded to multiples of 64 or 128."""
SENTENCE = "This sentence is an example."
"""Invented text of examples."""
Place = Callable[[int], str]
"""Function that names a text in messages, by its index."""


class TextInput(InputKind):
    """Texts as token ids: int32, N x (1 + max_tokens).

    The first number of a row is the number of tokens of its text. Then come the ids of the tokens that the model reads,
    and `pad_id` up to the end. The tokenizer is a separate file (`with_tokenizer`), TOKENIZER in a bundle. The graph
    takes int64 ids, N x L, of texts padded to the longest of a batch. If their names are given, it also takes a mask (1
    for each token, 0 for padding) and types (all 0).
    """

    noun: ClassVar[str] = "text"
    task: ClassVar[str] = "text-classification"
    tensor: ClassVar[str] = "texts"
    datatype: ClassVar[str] = "BYTES"
    onnx_type: ClassVar[str] = "int64"
    dtype: ClassVar[np.dtype[Any]] = np.dtype("<i4")
    formats: ClassVar[Mapping[Format, str]] = {
        "csv": f"a header with the column {COLUMN}, then a row for each text; quotes around one with commas or lines",
    }
    schemas: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"type": "string", "minLength": 1, "description": "the text"},
        {
            "type": "object",
            "required": [COLUMN],
            "additionalProperties": False,
            "properties": {COLUMN: {"type": "string", "minLength": 1}},
        },
    )
    instance: ClassVar[str] = f'a string, or {{"{COLUMN}": "..."}}'
    beside: ClassVar[tuple[str, ...]] = (TOKENIZER,)
    together: ClassVar[int] = 32
    light: ClassVar[int] = 16 * 1024  # tokenizing takes 4 ms

    kind: Literal["text"] = "text"
    max_tokens: int = Field(ge=1, le=MOST)
    """Number of tokens that the model reads, including those that frame a text."""
    truncation_side: Side = "right"
    """Side on which longer texts are truncated."""
    pad_id: int = Field(0, ge=0)
    vocabulary_size: int = Field(ge=1)
    """Vocabulary size of the model; all ids are below it."""
    ids: str = "input_ids"
    """Name of the graph's input for ids; `mask` and `types` name the other two."""
    mask: str | None = None
    types: str | None = None
    max_characters: int | None = Field(None, ge=1, le=MOST_CHARACTERS, exclude_if=lambda value: value is None)
    """Largest number of characters of one text; None: derived from max_tokens (`characters`)."""
    _tokens: Tokens | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _padding_is_known(self) -> Self:
        if self.pad_id >= self.vocabulary_size:
            raise ValueError(f"pad_id is {self.pad_id}; allowed are ids below the vocabulary's {self.vocabulary_size}")
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copy = super().model_copy(update=update, deep=deep)
        return copy if self._tokens is None else copy.with_tokenizer(self._tokens.data)

    def with_tokenizer(self, data: bytes) -> Self:
        """Return the kind with the tokenizer of a tokenizer.json.

        Raises:
            InputError: It has ids that the model does not have, or far fewer.
            UnreadableError: The file has another format.
            MissingExtraError: The package `tokenizers` is not installed.
        """
        tokens = Tokens(data)
        known = tokens.highest_id + 1
        if not self.vocabulary_size - SPARE <= known <= self.vocabulary_size:
            problem = f"the tokenizer has {known:,} ids, the model's vocabulary {self.vocabulary_size:,}"
            raise InputError("wrong_tokenizer", f"{problem}; give the tokenizer that the model was trained with")
        with_it = type(self).model_validate(self.model_dump())
        with_it._tokens = tokens
        return with_it

    def with_files(self, files: Mapping[str, bytes]) -> Self:
        return self.with_tokenizer(files[TOKENIZER])

    @property
    def files_beside(self) -> Mapping[str, bytes]:
        return {TOKENIZER: self._tokenizer.data}

    @property
    def _tokenizer(self) -> Tokens:
        if self._tokens is None:
            raise InputError("no_tokenizer", f"this card has no tokenizer; load its bundle, which holds {TOKENIZER}")
        return self._tokens

    @property
    def shape(self) -> tuple[int]:
        return (1 + self.max_tokens,)

    @property
    def size(self) -> str:
        return f"of up to {self.max_tokens:,} tokens"

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def characters(self) -> int:
        """Largest number of characters of one text; the tokenizer never gets more."""
        return self.max_characters or max(CHARACTERS, CHARACTERS_OF_TOKEN * self.max_tokens)

    def of_texts(self, texts: Sequence[str]) -> Inputs:
        """Convert texts to rows without checking them.

        Raises:
            TokenizerError: The tokenizer fails on a text.
        """
        rows = np.full((len(texts), *self.shape), self.pad_id, self.dtype)
        for start, portion in _portions(texts):
            checkpoint()
            try:
                tokenized = self._tokenizer.of(portion, self.max_tokens, self.truncation_side)
            except TokenizerError as error:
                raise TokenizerError(str(error), start + error.number) from None
            for row, (ids, of_all) in zip(rows[start:], tokenized, strict=False):
                row[0] = of_all
                row[1 : 1 + len(ids)] = ids
        return rows

    def from_json(self, instances: Sequence[Any], limits: Limits) -> Inputs:
        """Read rows from strings, and from objects with the single key `text`."""
        self.check_count(len(instances), limits)
        texts = []
        for n, value in enumerate(instances):
            if type(value) is dict:
                if set(value) != {COLUMN}:
                    problem = f"instances[{n}] has the keys {quotes(sorted(value))}"
                    raise InputError("invalid_instances", f"{problem}; expected {self.instance}")
                value = value[COLUMN]
            texts.append(value)
        return self.from_texts(texts, limits, lambda n: f"instances[{n}]")

    @property
    def columns(self) -> list[str]:
        return [COLUMN]

    def read(self, body: bytes, form: Format, limits: Limits) -> Inputs:
        """Read rows from a CSV with the single column `text`."""
        columns, every, _ = table.columns_of(body, self.columns)
        if columns != [COLUMN]:
            problem = f"the header has {quotes(columns)}"
            raise InputError("invalid_instances", f"{problem}; a CSV of texts has the one column {COLUMN!r}")
        rows, count = table.take_rows(every, limits.rows)
        self.check_count(count, limits)
        return self.from_texts([cells[0].strip() for _, cells in rows], limits, lambda n: f"row {rows[n][0]:,}")

    def from_values(self, values: Sequence[Any], rows: int, name: str, limits: Limits = NO_LIMITS) -> Inputs:
        return self.from_texts(values, limits, lambda n: f"the input {name!r} at [{n}]")

    def check_rows(self, rows: npt.NDArray[Any], name: str) -> Inputs:
        with np.errstate(invalid="ignore"):
            ids = rows.astype(self.dtype)
        wrong = (ids != rows) | (ids < 0)
        wrong[:, 1:] |= ids[:, 1:] >= self.vocabulary_size
        if wrong.any():
            place = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), rows.shape))
            allowed = "the number of its tokens, then ids from 0 to"
            message = f"{name} holds {rows[place]} at {list(place)}; allowed are {allowed} {self.vocabulary_size - 1:,}"
            raise InputError("invalid_instances", message)
        return ids

    def values(self, row: npt.NDArray[Any]) -> list[Any]:
        return [self._tokenizer.text_of(self._ids(row).tolist())]

    def made_up(self) -> list[Any]:
        return [SENTENCE]

    def examples(self) -> dict[str, Any]:
        return {"a text": SENTENCE, "by name": {COLUMN: SENTENCE}}

    def remarks(self, rows: Inputs) -> Mapping[int, Mapping[str, Any]]:
        cut = np.flatnonzero(rows[:, 0] > self.max_tokens).tolist()
        return {n: {"truncated": {"tokens": int(rows[n, 0]), "read": self.max_tokens}} for n in cut}

    def extremes(self) -> Sequence[Extreme]:
        """Return a text of max_tokens tokens, up to the highest id, and one without a token of its own."""
        words = " ".join(reversed(self._tokenizer.words)) + " "
        for characters in (8 * self.max_tokens, CHARACTERS_OF_TOKEN * self.max_tokens):
            most = min(self.characters, characters)
            long, empty = self.of_texts([(words * (most // len(words) + 1))[:most], ""])
            if long[0] >= self.max_tokens:
                break
        return (
            Extreme(f"a text of {min(int(long[0]), self.max_tokens):,} tokens", long[None]),
            Extreme("a text without tokens", empty[None], is_answered=False),
        )

    def longest(self, rows: Inputs) -> Inputs:
        """Return the same texts, with padding counted as tokens."""
        return np.concatenate([np.full_like(rows[:, :1], self.max_tokens), rows[:, 1:]], axis=1)

    def feed(self, rows: Inputs, names: Sequence[str]) -> dict[str, Inputs]:
        count_N = np.minimum(rows[:, 0], self.max_tokens)
        longest = max(1, int(count_N.max(initial=1)))
        feed = {self.ids: rows[:, 1 : 1 + longest].astype(np.int64)}
        if self.mask is not None:
            feed[self.mask] = (np.arange(longest) < count_N[:, None]).astype(np.int64)
        if self.types is not None:
            feed[self.types] = np.zeros((len(rows), longest), np.int64)
        return feed

    def check_signature(self, inputs: Sequence[TensorSignature], path: object) -> None:
        wanted = [name for name in (self.ids, self.mask, self.types) if name is not None]
        signature = ", ".join(f"{i.name}: {i.type} {i.shape}" for i in inputs)
        if sorted(i.name for i in inputs) != sorted(wanted) or any(
            i.type != f"tensor({self.onnx_type})" or len(i.shape) != 2 for i in inputs
        ):
            raise InputError(
                "wrong_signature",
                f"{path} takes ({signature}); expected int64 inputs {quotes(wanted)} of shape [N, L]",
            )
        if any(isinstance(size, int) for i in inputs for size in i.shape):
            problem = f"{path} takes ({signature}), some of whose sizes are fixed"
            raise InputError("wrong_signature", f"{problem}; texts need any number of rows and of tokens")

    def encode(self, row: npt.NDArray[Any]) -> bytes:
        return super().encode(row[: 1 + len(self._ids(row))])

    def decode(self, data: bytes, name: str) -> Inputs:
        size = self.dtype.itemsize
        if len(data) % size or not size <= len(data) <= size * (1 + self.max_tokens):
            raise InputError("wrong_shape", f"{name} has {len(data)} bytes, which are not the tokens of a text")
        row = np.full((1, *self.shape), self.pad_id, self.dtype)
        row[0, : len(data) // size] = np.frombuffer(data, self.dtype)
        return self.check_rows(row, name)

    def _ids(self, row: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return row[1 : 1 + min(int(row[0]), self.max_tokens)]

    def from_texts(self, texts: Sequence[Any], limits: Limits, place: Place) -> Inputs:
        """Check texts and convert them to rows. `place` names a text by its index, for messages.

        Raises:
            InputError: A value is not a text, is empty, or makes the tokenizer fail.
            InputTooLargeError: A text has more than `characters`, or all texts together exceed the limits.
        """
        sizes = 0
        for n, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError("invalid_instances", f"{place(n)} is {short(text)}; expected {self.instance}")
            if not text.strip():
                raise InputError(
                    "invalid_instances", f"{place(n)} is an empty text; send one with words, or leave it out"
                )
            if len(text) > self.characters:
                problem = f"{place(n)} has {len(text):,} characters; the limit of a text is {self.characters:,}"
                cure = "send the part that matters, or several texts"
                raise InputTooLargeError(
                    "text_too_large", f"{problem}. The model reads {self.max_tokens:,} tokens of it: {cure}"
                )
            try:
                sizes += len(text.encode())
            except UnicodeEncodeError as error:
                problem = f"{place(n)} holds half a surrogate pair as character {error.start + 1}"
                raise InputError(
                    "invalid_instances", f"{problem}, which is not text; send complete characters"
                ) from None
        if sizes > limits.characters:
            raise InputTooLargeError(
                "too_many_characters", f"{sizes:,} bytes of texts; the limit is {limits.characters:,}"
            )
        try:
            return self.of_texts(texts)
        except TokenizerError as error:
            problem = f"{place(error.number)}: the model's tokenizer fails on this text ({error})"
            cure = "shorten its longest run of characters without a space, or leave the text out"
            raise InputError(error.code, f"{problem}; {cure}") from None


def _portions(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield neighbouring texts of about CHARACTERS together, and the index of the first.

    The memory of one portion is freed before the next.
    """
    start, size = 0, 0
    for end, text in enumerate(texts, 1):
        size += len(text)
        if size >= CHARACTERS or end == len(texts):
            yield start, texts[start:end]
            start, size = end, 0
