"""`trueodds import` of models of texts: a transformers classifier, other graphs, and what is refused."""

from __future__ import annotations

import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from service.models.model import Model
from tests.importing.test_command import command
from tests.inputs.test_text import framed
from tests.service.tiny_bundle import tokenizer_json, word_weights
from trueodds.bundle import Bundle
from trueodds.importing import hostile
from trueodds.importing.errors import ModelFileError
from trueodds.importing.hub_files import HubFiles
from trueodds.importing.understanding import max_tokens
from trueodds.inputs import Limits, TextInput

WORDS = ("good", "bad", "film", "plot", "the")
ANY = Limits()


def write_model(
    path: Path, *, mask: bool = False, dtype: int = TensorProto.INT64, length: Any = "L", table: int = 7, most: int = 0
) -> None:
    """The sum of the words' weights, 2 classes. `most`: rows of a table of positions, as transformers have one."""
    read = "every"
    nodes = [
        helper.make_node("Gather", ["weights", "wide"], [read]),
        helper.make_node("Cast", ["ids" if not mask else "input_ids"], ["wide"], to=TensorProto.INT64),
    ][::-1]
    names = ["input_ids", "attention_mask"] if mask else ["ids"]
    if mask:
        nodes += [
            helper.make_node("Cast", ["attention_mask"], ["float"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["float", "two"], ["column"]),
            helper.make_node("Mul", ["every", "column"], ["masked"]),
        ]
        read = "masked"
    if most:
        nodes += [
            helper.make_node("Shape", [names[0]], ["sizes"]),
            helper.make_node("Gather", ["sizes", "second"], ["tokens"]),
            helper.make_node("Range", ["first", "tokens", "second"], ["places"]),
            helper.make_node("Gather", ["positions", "places"], ["placed"]),
            helper.make_node("Add", [read, "placed"], ["both"]),
        ]
        read = "both"
    nodes.append(helper.make_node("ReduceSum", [read, "one"], ["scores"], keepdims=0))
    weights = np.zeros((table, 2), np.float32)
    weights[: min(table, 7)] = word_weights(len(WORDS), 2)[: min(table, 7)]
    weights[0] = 0
    constants = [numpy_helper.from_array(np.array([axis]), name) for axis, name in ((1, "one"), (2, "two"))]
    constants += [numpy_helper.from_array(np.array(number), name) for number, name in ((0, "first"), (1, "second"))]
    constants.append(numpy_helper.from_array(np.zeros((most, 2), np.float32), "positions"))
    graph = helper.make_graph(
        nodes,
        "bag",
        [helper.make_tensor_value_info(name, dtype, ["N", length]) for name in names],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(weights, "weights"), *constants],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def write_rows(path: Path, count: int = 200) -> list[list[str]]:
    rng = random.Random(0)
    rows = [[" ".join(rng.choices(WORDS, k=rng.randrange(1, 7))), rng.choice(("no", "yes"))] for _ in range(count)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["text", "label"], *rows])
    return rows


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "rows.csv")
    write_tokenizer(tmp_path / "tokenizer.json", 8)
    return tmp_path


def write_tokenizer(path: Path, length: int | None) -> None:
    """The tokenizer of WORDS; `length`: where its file cuts texts."""
    tokenizer = Tokenizer.from_str(tokenizer_json(WORDS).decode())
    if length:
        tokenizer.enable_truncation(length)
    tokenizer.save(str(path))


BESIDE = ("--labelled", "rows.csv", "--tokenizer", "tokenizer.json")


@pytest.mark.parametrize(("mask", "dtype"), [(False, TensorProto.INT64), (True, TensorProto.INT32)])
def test_a_graph_of_ids(place: Path, mask: bool, dtype: int, capsys: pytest.CaptureFixture[str]) -> None:
    write_model(place / "bag.onnx", mask=mask, dtype=dtype)
    assert command("bag.onnx", *BESIDE, "--max-tokens", 4, "--classes", "no,yes") == 0, capsys.readouterr().err
    assert "bag: 2 classes, text of up to 4 tokens; 100 calibration rows, 100 test rows" in capsys.readouterr().out
    served = Model.load(Path("imported/bag/bundle"), threads=1)
    kind = served.bundle.card.input
    assert isinstance(kind, TextInput) and kind.mask == ("attention_mask" if mask else None)
    assert (kind.vocabulary_size, kind.pad_id, kind.max_tokens) == (7, 0, 4)
    texts = ["good film", "bad bad bad bad good"]
    ids = [[2, 4], [3, 3, 3, 3]]
    expected = np.stack([word_weights(5, 2)[one].sum(axis=0) for one in ids])
    assert np.allclose(served.logits(kind.from_json(texts, ANY)), expected, atol=1e-5)


def test_texts_in_folders(place: Path) -> None:
    write_model(place / "bag.onnx")
    for n, (text, label) in enumerate(write_rows(place / "rows.csv")):
        file = place / "rows" / label / f"{n:03}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert command("bag.onnx", "--labelled", "rows", "--input", "text", "--tokenizer", "tokenizer.json") == 0
    card = Bundle.load("imported/bag/bundle").card
    assert card.classes == ["no", "yes"] and card.input.size == "of up to 8 tokens"


def test_a_model_of_fewer_positions_than_tokens_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows are short, so that only a text of full length shows it. Nothing is written or published."""
    write_model(place / "bag.onnx", most=32)
    assert command("bag.onnx", *BESIDE, "--max-tokens", 512, "--publish", "models") == 1
    refused = capsys.readouterr()
    assert "cannot be run on a text of 512 tokens" in refused.err
    assert "it answers up to 32 tokens: use --max-tokens 32" in refused.err and "answers now" not in refused.out
    assert not Path("models").exists() and not Path("imported").exists()
    assert command("bag.onnx", *BESIDE, "--max-tokens", 32, "--classes", "no,yes") == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("cut", "tokenizer", "config", "words"),
    [
        (None, None, None, "neither tokenizer.json nor a tokenizer_config.json or config.json beside it states how"),
        (None, {"model_max_length": 1e30}, {}, "how many tokens the model reads; give the number: --max-tokens N"),
        (64, None, {"max_position_embeddings": 32},
         "tokenizer.json truncates texts at 64 tokens; config.json gives the model positions for 32 tokens: these "),
        (None, {"model_max_length": 512}, {"n_positions": 32}, "Give the number of tokens that it reads: --max-tok"),
        (8, {"model_max_length": 512}, {"max_position_embeddings": 514, "model_type": "roberta"}, 8),
        (None, {"model_max_length": 512}, {"max_position_embeddings": 514, "model_type": "roberta"}, 512),
        (None, {"model_max_length": 513}, {"max_position_embeddings": 514, "model_type": "esm", "pad_token_id": 1},
         "--max-tokens 512"),
        (None, None, {"max_position_embeddings": 514, "model_type": "roberta"}, 512),
        (None, {"model_max_length": 16}, None, 16),
    ],
)  # fmt: skip
def test_the_length_is_that_of_the_files_or_asked_for(
    place: Path, cut: int | None, tokenizer: Any, config: Any, words: str | int
) -> None:
    for name, tree in (("tokenizer_config.json", tokenizer), ("config.json", config)):
        if tree is not None:
            (place / name).write_text(json.dumps(tree))
    files = HubFiles.beside(place / "tokenizer.json", place / "elsewhere" / "bag.onnx")
    if isinstance(words, int):
        length, notes = max_tokens(files, None, place / "tokenizer.json", cut)
        assert length == words
        assert [note[:76] for note in notes] == (
            ["tokenizer.json truncates texts at 8 tokens, and the model may read 512 (--ma"] if cut else []
        )
        return
    with pytest.raises(ModelFileError, match=re.escape(words)):
        max_tokens(files, None, place / "tokenizer.json", cut)
    assert max_tokens(files, 20, place / "tokenizer.json", cut) == (20, ())


@pytest.mark.full
def test_the_files_beside_a_model_name_classes_sides_and_padding(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(place / "bag.onnx", mask=True)
    (place / "rows.csv").write_text("text,label\n" + "good film,1\nbad plot,0\n" * 30)
    sides = {"truncation_side": "left", "padding_side": "left", "pad_token": {"content": "[UNK]"}}
    (place / "tokenizer_config.json").write_text(json.dumps(sides))
    (place / "config.json").write_text(json.dumps({"id2label": {"0": "NEGATIVE", "1": "POSITIVE"}, "vocab_size": 7}))
    assert command("bag.onnx", *BESIDE) == 0, capsys.readouterr().err
    card = Bundle.load("imported/bag/bundle").card
    assert isinstance(card.input, TextInput) and card.classes == ["NEGATIVE", "POSITIVE"]
    assert (card.input.truncation_side, card.input.pad_id) == ("left", 1)
    (place / "config.json").write_text(json.dumps({"id2label": {"0": "a", "1": "b", "2": "c"}}))
    assert command("bag.onnx", *BESIDE) == 1
    assert "config.json names 3 classes ('a', 'b', 'c'), and bag.onnx answers with 2" in capsys.readouterr().err
    (place / "config.json").write_text('{"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}')
    (place / "tokenizer_config.json").write_text("{")
    assert command("bag.onnx", *BESIDE) == 0
    card = Bundle.load("imported/bag/bundle").card
    assert card.classes == ["0", "1"] and "tokenizer_config.json cannot be read (" in "\n".join(card.notes)
    assert "id2label of config.json has only generated names such as 'LABEL_0'. It is ignored." in card.notes


@pytest.mark.parametrize(
    ("table", "classes", "note"),
    [
        ({"1": "b", "0": "a"}, ("a", "b"), ""),
        ({}, (), ""),
        ({"0": "a", "2": "b"}, (), "has the numbers '0', '2', and 1 is not among them; needed is every number from 0"),
        ({"1": "a", "2": "b"}, (), "has the numbers '1', '2', and 0 is not among them"),
        ({"0": "a", "1": "b", "2": "a"}, (), "gives the outputs 0 and 2 the same name 'a'"),
        ({"0": "LABEL_0", "1": "LABEL_1"}, (), "has only generated names such as 'LABEL_0'"),
        ({"0": "LABEL_0", "1": "spam"}, ("LABEL_0", "spam"), ""),
        ({"0": "a", "1": 7}, (), "is not an object of numbers of outputs with their names"),
        ({"0": "a", "1": " "}, (), "is not an object of numbers of outputs with their names"),
        (["a", "b"], (), "is not an object of numbers of outputs with their names"),
    ],
)
def test_id2label_names_every_output_or_none(table: Any, classes: tuple[str, ...], note: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"id2label": table}))
    files = HubFiles.beside(None, tmp_path / "m.onnx")
    assert files.classes == classes and bool(files.classes_file) == bool(classes)
    assert [note in one and one.endswith(". It is ignored.") for one in files.notes] == [True] * bool(note)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (r"(x+x+)+y", r"fails on 40 times LATIN SMALL LETTER X \(.*retry-limit-in-match over\), and any caller"),
        (r"\s+$", r"takes .* s for 2,559 spaces and a letter; allowed are .* use --max-characters 320, up to which"),
    ],
)
def test_a_tokenizer_that_a_text_can_stop_is_refused(expression: str, words: str) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(expression), "isolated")
    kind = TextInput(max_tokens=3, vocabulary_size=2).with_tokenizer(tokenizer.to_str().encode())
    with pytest.raises(ModelFileError, match="t.json " + words):
        hostile.check(kind, "t.json", seconds=0.01)
    if "320" in words:
        hostile.check(kind.model_copy(update={"max_characters": 320}), "t.json", seconds=0.01)


def test_max_characters_goes_into_the_card(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_model(place / "bag.onnx")
    assert command("bag.onnx", *BESIDE, "--max-characters", 60, "--classes", "no,yes") == 0, capsys.readouterr().err
    kind = Bundle.load("imported/bag/bundle").card.input
    assert isinstance(kind, TextInput) and kind.characters == 60
    assert command("bag.onnx", *BESIDE, "--max-characters", 10) == 1
    assert re.search(r"rows.csv, row 2 has \d+ characters; the limit of a text is 10", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("model", "beside", "words"),
    [
        ({"table": 5}, BESIDE, "the tokenizer has 7 ids, the model's vocabulary 5; give the tokenizer that"),
        ({"length": 16}, BESIDE, "a fixed number of tokens; export it for any number"),
        ({}, ("--labelled", "rows.csv", "--input", "text"), "takes the ids of tokens; give its tokenizer: --tokenizer"),
        (
            {"mask": True},
            ("--labelled", "rows.npz"),
            "it is a text model; give its tokenizer as well",
        ),
        ({"dtype": TensorProto.FLOAT}, BESIDE, "a text model takes whole numbers"),
        ({}, (*BESIDE[:2], "--tokenizer", "rows.csv"), "is not in Hugging Face's tokenizer.json format"),
        ({}, (*BESIDE[:2], "--tokenizer", "none.json"), "none.json cannot be read: No such file"),
        ({}, (*BESIDE, "--max-characters", "0"), "--max-characters is 0; allowed are 1 to 524,288"),
        ({}, (*BESIDE, "--max-tokens", "9000"), "--max-tokens is 9000; allowed are 1 to 8,192"),
        (
            {},
            (*BESIDE[:2], "--tokenizer", "framed.json", "--max-tokens", "2"),
            "2 tokens frame every text; allowed are",
        ),
        ({}, ("--labelled", "other.csv", *BESIDE[2:]), "other.csv has no column 'text'; it has 'words', 'label'"),
        ({}, ("--labelled", "latin.csv", *BESIDE[2:]), "UTF-8"),
        ({}, ("--labelled", "empty.csv", *BESIDE[2:]), "empty.csv, row 2 holds an empty text; take it out"),
        ({}, ("--labelled", "large.csv", *BESIDE[2:]), "row 2 holds a text of 1,048,577 bytes; allowed are 1,048,576"),
    ],
)
def test_refusals(
    place: Path, model: dict[str, Any], beside: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(place / "bag.onnx", **model)
    np.savez(place / "rows.npz", x=np.zeros((40, 3)), y=np.zeros(40, int))
    (place / "framed.json").write_bytes(framed().replace(b'"four":7', b'"four":6'))
    (place / "other.csv").write_text("words,label\ngood,yes\n")
    (place / "latin.csv").write_bytes(b"text,label\ncaf\xe9,yes\n")
    (place / "empty.csv").write_text('text,label\n" ",yes\n')
    (place / "large.csv").write_text(f"text,label\n{'x' * (2**20 + 1)},yes\n")
    assert command("bag.onnx", *beside) == 1
    assert words in capsys.readouterr().err


@pytest.mark.full
def test_a_classifier_of_transformers(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tokenizer frames, pads and cuts by its own file; the answers are those of transformers' own pipeline."""
    import torch

    from pipeline.data.vision import torchvision

    torchvision()  # transformers imports it
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    torch.manual_seed(0)
    (place / "tokenizer.json").write_bytes(framed(8))
    config = BertConfig(  # two labels are its default
        vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    net: torch.nn.Module = BertForSequenceClassification(config)
    net.eval()
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}
    names = ("input_ids", "attention_mask", "token_type_ids")
    example = {name: torch.ones(2, 5, dtype=torch.int64) for name in names}
    torch.onnx.export(
        net,
        (),
        "bert.onnx",
        kwargs=example,
        dynamic_shapes=dict.fromkeys(names, sizes),
        dynamo=True,
        external_data=False,
    )
    (place / "rows.csv").write_text(
        "text,label\n"
        + "\n".join(
            f"{' '.join(random.Random(n).choices(('one', 'two', 'four'), k=1 + n % 9))},{n % 2}" for n in range(80)
        )
    )
    assert command("bert.onnx", *BESIDE) == 0, capsys.readouterr().err
    served = Model.load(Path("imported/bert/bundle"), threads=1)
    kind = served.bundle.card.input
    assert isinstance(kind, TextInput) and (kind.max_tokens, kind.pad_id, kind.types) == (8, 3, "token_type_ids")
    texts = ["one two", "four " * 12, "two"]
    theirs: Any = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_file("tokenizer.json"), pad_token="<pad>")
    with torch.no_grad():
        batch = theirs(texts, padding=True, truncation=True, max_length=8, return_tensors="pt")
        expected = net(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.numpy()
    assert np.allclose(served.logits(kind.from_json(texts, ANY)), expected, atol=1e-4)
