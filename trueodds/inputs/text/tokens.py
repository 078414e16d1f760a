"""Tokenizer of a tokenizer.json: it converts texts to ids of a model's vocabulary and truncates long ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from trueodds.errors import MissingExtraError
from trueodds.inputs.errors import InputError, UnreadableError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Side = Literal["right", "left"]
"""Side on which a long text is truncated: right keeps its beginning, left keeps its end."""
PANIC = "PanicException"
"""Name of the type that a Rust panic has in Python. It is a BaseException, and pyo3 exports no class to catch."""


WORDS = 1024
"""Number of tokens from which a long text is built."""


class TokenizerError(InputError):
    """Error for a failure of the tokenizer itself, such as a regular expression that backtracks too far.

    `number` is the index of the text among those of the call.
    """

    def __init__(self, reason: str, number: int = 0) -> None:
        super().__init__("tokenizer_failed", reason)
        self.number = number


class Tokenized(NamedTuple):
    """Ids of the tokens that are kept, and the number of all tokens of the text, including those that frame it."""

    ids: list[int]
    of_all: int


class Stated(NamedTuple):
    """Properties of the model that a tokenizer.json states. None: not stated."""

    ids: int
    pad_id: int
    max_tokens: int | None
    side: Side

    @classmethod
    def of(cls, data: bytes, pad_token: str | None = None) -> Stated:
        """Read a file. `pad_token` is the padding token that another file states, if known.

        Raises:
            MissingExtraError: The package `tokenizers` is not installed.
            UnreadableError: The file has another format.
        """
        tokenizer = _read(data)
        truncation, padding = tokenizer.truncation or {}, tokenizer.padding or {}
        elsewhere = None if pad_token is None else tokenizer.token_to_id(pad_token)
        named = (tokenizer.token_to_id(name) for name in ("[PAD]", "<pad>"))
        ids = (elsewhere, padding.get("pad_id"), *named)
        pad_id = next((id_ for id_ in ids if id_ is not None), 0)
        side: Side = "left" if truncation.get("direction") == "left" else "right"
        return cls(_ids(tokenizer), pad_id, truncation.get("max_length"), side)


class Tokens:
    """Tokenizer of a tokenizer.json, in the format of Hugging Face's `tokenizers`. Two are equal if their files are.

    The file's own truncation and padding are ignored: the model's card states where texts are truncated.

    Raises:
        MissingExtraError: The package `tokenizers` is not installed.
        UnreadableError: The file has another format.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._tokenizer = _read(data)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._framing = self._tokenizer.num_special_tokens_to_add(is_pair=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokens) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    @cached_property
    def highest_id(self) -> int:
        """Highest id of its vocabulary, including added tokens."""
        return _ids(self._tokenizer) - 1

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The last WORDS tokens of its vocabulary, by their ids, without special ones such as [SEP]."""
        special = {id_ for id_, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        vocabulary = sorted((id_, word) for word, id_ in self._tokenizer.get_vocab().items() if id_ not in special)
        return tuple(word for _, word in vocabulary[-WORDS:])

    def of(self, texts: Sequence[str], most: int, side: Side) -> list[Tokenized]:
        """Tokenize each text to at most `most` tokens. Tokens that frame a text ([CLS], [SEP]) stay.

        Raises:
            InputError: `most` leaves no room beside the framing tokens.
            TokenizerError: The tokenizer fails on a text. The error names the first such text.
        """
        if (room := most - self._framing) < 1:
            problem = f"max_tokens is {most}, and {self._framing} tokens frame every text"
            raise InputError("no_room", f"{problem}; allowed are more")
        try:
            with _failures():
                return self._of(texts, room, side)
        except TokenizerError:
            if len(texts) == 1:
                raise
        found: list[Tokenized] = []
        for number, text in enumerate(texts):  # one by one, because the failure of a batch does not name its text
            with _failures(number):
                found += self._of([text], room, side)
        return found

    def _of(self, texts: Sequence[str], room: int, side: Side) -> list[Tokenized]:
        found = []
        for encoding in self._tokenizer.encode_batch(list(texts), add_special_tokens=False):
            of_all = len(encoding) + self._framing
            if len(encoding) > room:
                encoding.truncate(room, direction=side)
            found.append(Tokenized(self._tokenizer.post_process(encoding).ids, of_all))
        return found

    def text_of(self, ids: Sequence[int]) -> str:
        """Convert tokens to a text, without those that frame it and those of unknown words.

        Raises:
            TokenizerError: The tokenizer fails on them.
        """
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        place = None if unknown is None else self._tokenizer.token_to_id(unknown)
        with _failures():
            text: str = self._tokenizer.decode([id_ for id_ in ids if id_ != place], skip_special_tokens=True)
        return text


def _read(data: bytes) -> Tokenizer:
    # Batches already run in their own threads, and the package's thread pool does not survive a fork.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("a model of texts", "tokenizers", "text") from None
    try:
        with _failures():
            return Tokenizer.from_str(data.decode())
    except ValueError as error:
        message = f"the tokenizer is not in Hugging Face's tokenizer.json format: {error}; write it with Tokenizer.save"
        raise UnreadableError("invalid_tokenizer", message) from None


@contextmanager
def _failures(number: int = 0) -> Iterator[None]:
    """Convert the package's bare Exceptions and panics to a TokenizerError."""
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != PANIC:
            raise
        raise TokenizerError(" ".join(str(error).split()), number) from None


def _ids(tokenizer: Tokenizer) -> int:
    return max(tokenizer.get_vocab().values(), default=-1) + 1
