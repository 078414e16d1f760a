"""A tokenizer.json at work: from texts to ids of a model's vocabulary, cut where they are too long."""

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
"""Where a text that is too long is cut off: right keeps its beginning, left its end."""
PANIC = "PanicException"
"""Name of the type that a Rust panic has in Python. It is a BaseException, and pyo3 exports no class to catch."""


WORDS = 1024
"""Tokens of which a long text is made."""


class TokenizerError(InputError):
    """A failure of the tokenizer itself, such as an expression that backtracks too far.

    `number`: the place of the text among those of the call.
    """

    def __init__(self, reason: str, number: int = 0) -> None:
        super().__init__("tokenizer_failed", reason)
        self.number = number


class Tokenized(NamedTuple):
    """ids: of the tokens that are kept. of_all: how many the text has, with those that frame it."""

    ids: list[int]
    of_all: int


class Stated(NamedTuple):
    """What a tokenizer.json says of the model it was made for; None: nothing."""

    ids: int
    pad_id: int
    max_tokens: int | None
    side: Side

    @classmethod
    def of(cls, data: bytes, pad_token: str | None = None) -> Stated:
        """Reads a file; `pad_token` is that of padding by another file, if that is known. Raises as `Tokens`."""
        tokenizer = _read(data)
        truncation, padding = tokenizer.truncation or {}, tokenizer.padding or {}
        elsewhere = None if pad_token is None else tokenizer.token_to_id(pad_token)
        named = (tokenizer.token_to_id(name) for name in ("[PAD]", "<pad>"))
        ids = (elsewhere, padding.get("pad_id"), *named)
        pad_id = next((id_ for id_ in ids if id_ is not None), 0)
        side: Side = "left" if truncation.get("direction") == "left" else "right"
        return cls(_ids(tokenizer), pad_id, truncation.get("max_length"), side)


class Tokens:
    """The tokenizer of a tokenizer.json, as Hugging Face's `tokenizers` writes it; equal where the files are.

    The file's own truncation and padding do not count: a model's card says where texts are cut.

    Raises:
        MissingExtraError: the package `tokenizers` is not installed.
        UnreadableError: not such a file.
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
        """Of its vocabulary, added tokens among them."""
        return _ids(self._tokenizer) - 1

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The last WORDS tokens of its vocabulary, by their ids, without special ones such as [SEP]."""
        special = {id_ for id_, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        vocabulary = sorted((id_, word) for word, id_ in self._tokenizer.get_vocab().items() if id_ not in special)
        return tuple(word for _, word in vocabulary[-WORDS:])

    def of(self, texts: Sequence[str], most: int, side: Side) -> list[Tokenized]:
        """The tokens of each text, `most` of them at the most; those that frame a text ([CLS], [SEP]) stay.

        Raises:
            InputError: `most` leaves no room beside those.
            TokenizerError: the tokenizer fails on a text; the error names the first such text.
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
        for number, text in enumerate(texts):  # one by one: the failure of a batch does not say which text it is of
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
        """A text of these tokens, without those that frame it and those of unknown words.

        Raises:
            TokenizerError: the tokenizer fails on them.
        """
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        place = None if unknown is None else self._tokenizer.token_to_id(unknown)
        with _failures():
            text: str = self._tokenizer.decode([id_ for id_ in ids if id_ != place], skip_special_tokens=True)
        return text


def _read(data: bytes) -> Tokenizer:
    # Batches come in threads of their own already, and its pool would not survive a fork.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("a model of texts", "tokenizers", "text") from None
    try:
        with _failures():
            return Tokenizer.from_str(data.decode())
    except ValueError as error:
        message = f"the tokenizer is none of Hugging Face's tokenizer.json: {error}; write it by Tokenizer.save"
        raise UnreadableError("invalid_tokenizer", message) from None


@contextmanager
def _failures(number: int = 0) -> Iterator[None]:
    """Turns what the package raises, bare Exceptions and panics, into a TokenizerError."""
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != PANIC:
            raise
        raise TokenizerError(" ".join(str(error).split()), number) from None


def _ids(tokenizer: Tokenizer) -> int:
    return max(tokenizer.get_vocab().values(), default=-1) + 1
