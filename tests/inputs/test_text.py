"""Texts as inputs: their tokens, where they are cut, what a graph is fed, and a card's tokenizer."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, processors

from tests.service.tiny_bundle import tokenizer_json, write_bundle
from trueodds.bundle import Bundle, BundleError
from trueodds.inputs import Input, InputError, InputTooLargeError, Limits, TextInput, UnreadableError
from trueodds.inputs.text.kind import CHARACTERS, CHARACTERS_OF_TOKEN
from trueodds.inputs.text.tokens import Side, Stated, Tokenized, TokenizerError, Tokens

WORDS = ("one", "two", "three", "four")
ANY = Limits()
PLAIN = TextInput(max_tokens=3, vocabulary_size=6).with_tokenizer(tokenizer_json(WORDS))


def framed(length: int | None = 6, direction: str = "right") -> bytes:
    """[CLS] and [SEP] around each text, padding and truncation of the file's own: as BERT's kin have it."""
    words = ("[UNK]", "[CLS]", "[SEP]", "<pad>", *WORDS)
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in ("[CLS]", "[SEP]", "<pad>")])
    frame = [("[CLS]", 1), ("[SEP]", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=frame)
    tokenizer.enable_padding(pad_id=3, pad_token="<pad>", length=20)
    if length is not None:
        tokenizer.enable_truncation(length, direction=direction)
    text: str = tokenizer.to_str()
    return text.encode()


def test_rows_count_all_tokens_and_keep_some() -> None:
    rows = PLAIN.from_json(["two ONE", {"text": "four three two one"}, "what"], ANY)
    assert rows.dtype == np.int32 and rows.tolist() == [[2, 3, 2, 0], [4, 5, 4, 3], [1, 1, 0, 0]]
    assert PLAIN.remarks(rows) == {1: {"truncated": {"tokens": 4, "read": 3}}}
    left = PLAIN.model_copy(update={"truncation_side": "left"})
    assert left.from_json(["four three two one"], ANY).tolist() == [[4, 4, 3, 2]]
    assert (PLAIN.shape, PLAIN.tensor_shape, PLAIN.size) == ((4,), (), "of up to 3 tokens")


@pytest.mark.parametrize(("side", "kept"), [("right", [1, 4, 5, 2]), ("left", [1, 6, 7, 2])])
def test_what_frames_a_text_stays(side: Any, kept: list[int]) -> None:
    """Hugging Face's own truncation of the same file gives the same ids."""
    kind = TextInput(max_tokens=4, truncation_side=side, pad_id=3, vocabulary_size=8).with_tokenizer(framed())
    text = "one two three four"
    assert kind.from_json([text, "two"], ANY).tolist() == [[6, *kept], [3, 1, 5, 2, 3]]
    theirs = Tokenizer.from_str(framed(4, side).decode())
    theirs.no_padding()
    assert theirs.encode(text).ids == kept
    with pytest.raises(ValueError, match="max_tokens is 2, and 2 tokens frame every text; allowed are more"):
        kind.model_copy(update={"max_tokens": 2}).from_json([text], ANY)


def test_a_graph_is_fed_as_many_tokens_as_the_longest_has() -> None:
    kind = PLAIN.model_copy(update={"mask": "attention_mask", "types": "token_type_ids"})
    feed = kind.feed(kind.from_json(["one", "two two"], ANY), [])
    assert {name: array.tolist() for name, array in feed.items()} == {
        "input_ids": [[2, 0], [3, 3]],
        "attention_mask": [[1, 0], [1, 1]],
        "token_type_ids": [[0, 0], [0, 0]],
    }
    assert {array.dtype for array in feed.values()} == {np.dtype(np.int64)}
    longest = kind.feed(kind.longest(kind.from_json(["one"], ANY)), [])  # what a service times a model with
    assert longest["input_ids"].tolist() == [[2, 0, 0]] and longest["attention_mask"].tolist() == [[1, 1, 1]]
    nothing = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="b"))
    nothing.pre_tokenizer = pre_tokenizers.Split(".", "removed")
    empty = TextInput(max_tokens=3, vocabulary_size=2).with_tokenizer(nothing.to_str().encode())
    rows = empty.from_json(["..."], ANY)
    assert rows.tolist() == [[0, 0, 0, 0]] and empty.feed(rows, [])["input_ids"].tolist() == [[0]]


def test_bytes_and_values_give_the_row_back_and_all_examples_one_text() -> None:
    for text in ("one two", "four three two one"):
        (row,) = PLAIN.from_json([text], ANY)
        assert np.array_equal(PLAIN.decode(PLAIN.encode(row), "x")[0], row)
        assert np.array_equal(PLAIN.from_values(PLAIN.values(row), 1, "x")[0][1:], row[1:])
    made_up = PLAIN.from_values(PLAIN.made_up(), 1, "x")
    assert all(np.array_equal(PLAIN.from_json([one], ANY), made_up) for one in PLAIN.examples().values())
    assert len(PLAIN.encode(PLAIN.from_json(["one"], ANY)[0])) == 8
    for data in (b"", b"\0" * 3, b"\0" * 20):
        with pytest.raises(InputError, match=rf"x has {len(data)} bytes, which are not the tokens of a text"):
            PLAIN.decode(data, "x")
    with pytest.raises(InputError, match=r"x holds 6 at \[0, 1\]; allowed are the number of its tokens, then"):
        PLAIN.check_rows(np.array([[1, 6, 0, 0]]), "x")
    assert PLAIN.check_rows(np.array([[9.0, 5, 5, 5]]), "x").tolist() == [[9, 5, 5, 5]]


def test_limits_of_texts() -> None:
    with pytest.raises(InputTooLargeError, match=r"11 bytes of texts; the limit is 10"):
        PLAIN.from_json(["größe", "one2"], Limits(characters=10))
    with pytest.raises(InputTooLargeError, match=r"instances\[1\] has 65,537 characters; the limit .* is 65,536"):
        PLAIN.from_json(["one", "x" * (CHARACTERS + 1)], ANY)
    assert PLAIN.from_json(["x" * CHARACTERS], ANY).tolist() == [[1, 1, 0, 0]]
    assert PLAIN.model_copy(update={"max_tokens": 8192}).characters == 8192 * CHARACTERS_OF_TOKEN
    short = PLAIN.model_copy(update={"max_characters": 3})
    assert short.model_dump()["max_characters"] == 3 and "max_characters" not in PLAIN.model_dump()
    with pytest.raises(InputTooLargeError, match=r"row 3 has 4 characters; the limit of a text is 3\. The model"):
        short.read(b"text\none\nfour\n", "csv", ANY)
    with pytest.raises(InputError, match=r"instances\[1\] holds half a surrogate pair as character 2, which"):
        PLAIN.from_json(["one", "a\ud800"], ANY)


def backtracking() -> bytes:
    """A tokenizer whose expression tries every way to cut a run of x."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "one": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"(x+x+)+y"), "isolated")
    text: str = tokenizer.to_str()
    return text.encode()


def test_a_tokenizer_that_fails_names_the_row() -> None:
    """A Rust panic is no Exception; one without a token for unknown words raises a bare Exception."""
    panicking = TextInput(max_tokens=3, vocabulary_size=2).with_tokenizer(backtracking())
    plain = Tokenizer(models.WordLevel({"one": 0}, unk_token="[UNK]"))
    wordless = TextInput(max_tokens=3, vocabulary_size=1).with_tokenizer(plain.to_str().encode())
    for kind, words in ((panicking, "retry-limit-in-match over"), (wordless, r"Missing \[UNK\] token")):
        message = rf"instances\[1\]: the model's tokenizer fails on this text \(.*{words}.*\); shorten its longest run"
        with pytest.raises(InputError, match=message) as refusal:
            kind.from_json(["one", "x" * 40, "one"], ANY)
        assert refusal.value.code == "tokenizer_failed"
        assert kind.from_json(["one"], ANY).shape == (1, 4)  # it goes on
    with pytest.raises(InputError, match=r"the input 'texts' at \[0\]: the model's tokenizer fails"):
        panicking.from_values(["x" * 40], 1, "texts")
    with pytest.raises(InputError, match=r"row 2: the model's tokenizer fails"):
        panicking.read(b"text\n" + b"x" * 40, "csv", ANY)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (5, "the tokenizer has 6 ids, the model's vocabulary 5; give the tokenizer that the model was trained with"),
        (134, "the tokenizer has 6 ids, the model's vocabulary 134"),
    ],
)
def test_a_tokenizer_of_another_vocabulary(size: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        TextInput(max_tokens=3, vocabulary_size=size).with_tokenizer(tokenizer_json(WORDS))
    assert TextInput(max_tokens=3, vocabulary_size=133).with_tokenizer(tokenizer_json(WORDS))


@pytest.mark.parametrize("data", [b"{}", b"\xff", b"", b"not json"])
def test_what_is_no_tokenizer(data: bytes) -> None:
    with pytest.raises(UnreadableError, match=r"is not in Hugging Face's tokenizer\.json format: .*; write it with"):
        Tokens(data)


def test_what_a_tokenizers_file_says() -> None:
    assert Stated.of(framed(6, "left")) == (8, 3, 6, "left")
    assert Stated.of(framed(None)) == (8, 3, None, "right")
    assert Stated.of(tokenizer_json(WORDS)) == (6, 0, None, "right")


def test_a_cards_entry() -> None:
    entry = {
        "kind": "text", "max_tokens": 3, "truncation_side": "right", "pad_id": 0, "vocabulary_size": 6,
        "ids": "input_ids", "mask": None, "types": None,
    }  # fmt: skip
    read = TypeAdapter[Input](Input).validate_python(entry)
    assert PLAIN.model_dump() == entry and isinstance(read, TextInput)
    assert read != PLAIN and read.with_files(PLAIN.files_beside) == PLAIN
    with pytest.raises(InputError, match=r"this card has no tokenizer; load its bundle, which holds tokenizer\.json"):
        read.from_json(["one"], ANY)
    with pytest.raises(ValidationError, match="pad_id is 6; allowed are ids below the vocabulary's 6"):
        TextInput(max_tokens=3, vocabulary_size=6, pad_id=6)


class Tensor:
    def __init__(self, name: str, shape: list[Any], dtype: str = "tensor(int64)") -> None:
        self.name, self.type, self.shape = name, dtype, shape


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([Tensor("ids", ["N", "L"])], r"takes \(ids: .*\); expected int64 inputs 'input_ids' of shape \[N, L\]"),
        ([Tensor("input_ids", ["N", "L"], "tensor(float)")], "expected int64 inputs"),
        ([Tensor("input_ids", ["N"])], "expected int64 inputs"),
        ([Tensor("input_ids", ["N", 16])], "some of whose sizes are fixed; texts need any number"),
        ([Tensor("input_ids", ["N", "L"]), Tensor("attention_mask", ["N", "L"])], "expected int64 inputs 'input_ids'"),
    ],
)
def test_graphs_that_do_not_fit(inputs: list[Tensor], words: str) -> None:
    PLAIN.check_signature([Tensor("input_ids", ["N", "L"])], "m.onnx")
    with pytest.raises(InputError, match=words):
        PLAIN.check_signature(inputs, "m.onnx")


def test_a_bundle_holds_its_tokenizer(tmp_path: Path) -> None:
    bundle = Bundle.load(write_bundle(tmp_path / "b", words=WORDS))
    assert set(bundle.card.files) == {"model.onnx", "calibrator.json", "MODEL_CARD.md", "tokenizer.json"}
    assert bundle.card.input.from_json(["two"], ANY).tolist() == [[1, 3, *[0] * 7]]
    other = Bundle.load(write_bundle(tmp_path / "other", words=WORDS[::-1]))
    assert other.version != bundle.version and other.card.input != bundle.card.input
    file = tmp_path / "b" / "tokenizer.json"
    file.write_bytes(file.read_bytes().replace(b"three", b"eerht"))
    with pytest.raises(BundleError, match=r"tokenizer\.json has sha256 .*: altered or damaged"):
        Bundle.load(tmp_path / "b")
    file.unlink()
    with pytest.raises(BundleError, match=r"tokenizer\.json is missing"):
        Bundle.load(tmp_path / "b")


def test_rows_and_kinds_can_be_sent_to_other_processes() -> None:
    again = pickle.loads(pickle.dumps(PLAIN))
    assert again == PLAIN and again.from_json(["one"], ANY).tolist() == [[1, 2, 0, 0]]


def test_many_texts_are_tokenised_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are those of the texts one by one, and a failure names the text among all of the call."""
    kind = TextInput(max_tokens=8, vocabulary_size=5).with_tokenizer(tokenizer_json(["a", "b", "c"]))
    texts = [f"{'a b c ' * 3000}{word}" for word in "abcabcabc"] + ["b", "c a"]
    rows = kind.of_texts(texts)
    assert np.array_equal(rows, np.concatenate([kind.of_texts([text]) for text in texts]))
    of, calls = Tokens.of, list[int]()

    def fails(tokens: Tokens, portion: Sequence[str], most: int, side: Side) -> list[Tokenized]:
        calls.append(len(portion))
        if "b" in portion:
            raise TokenizerError("too far", portion.index("b"))
        return of(tokens, portion, most, side)

    monkeypatch.setattr(Tokens, "of", fails)
    with pytest.raises(InputError, match=r"instances\[9\]: the model's tokenizer fails on this text \(too far\)"):
        kind.from_json(texts, ANY)
    assert len(calls) > 1
