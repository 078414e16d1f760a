"""`trueodds import` of models of texts: a transformers classifier, other graphs, and what is refused."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

from service.models.model import Model
from tests.importing.test_command import command
from tests.inputs.test_text import framed
from tests.service.tiny_bundle import tokenizer_json, word_weights
from trueodds.bundle import Bundle
from trueodds.inputs import Limits, TextInput

WORDS = ("good", "bad", "film", "plot", "the")
ANY = Limits()


def write_model(
    path: Path, *, mask: bool = False, dtype: int = TensorProto.INT64, length: Any = "L", table: int = 7
) -> None:
    """The sum of the words' weights, 2 classes."""
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
    nodes.append(helper.make_node("ReduceSum", [read, "one"], ["scores"], keepdims=0))
    weights = np.zeros((table, 2), np.float32)
    weights[: min(table, 7)] = word_weights(len(WORDS), 2)[: min(table, 7)]
    weights[0] = 0
    constants = [numpy_helper.from_array(np.array([axis]), name) for axis, name in ((1, "one"), (2, "two"))]
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
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_json(WORDS))
    return tmp_path


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
    assert card.classes == ["no", "yes"] and "does not say how many tokens the model reads; 512" in card.notes[0]


@pytest.mark.parametrize(
    ("model", "beside", "words"),
    [
        ({"table": 5}, BESIDE, "the tokenizer has 7 ids, the model's vocabulary 5; give the tokenizer that"),
        ({"length": 16}, BESIDE, "a fixed number of tokens; export it for any number"),
        ({}, ("--labelled", "rows.csv", "--input", "text"), "takes the ids of tokens; give its tokenizer: --tokenizer"),
        (
            {"mask": True},
            ("--labelled", "rows.npz"),
            "that is one of texts; give its tokenizer too",
        ),
        ({"dtype": TensorProto.FLOAT}, BESIDE, "of texts it takes whole numbers"),
        ({}, (*BESIDE[:2], "--tokenizer", "rows.csv"), "is none of Hugging Face's tokenizer.json"),
        ({}, (*BESIDE[:2], "--tokenizer", "none.json"), "none.json cannot be read: No such file"),
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
    theirs: Any = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_file("tokenizer.json"), pad_token="<pad>")  # type: ignore[no-untyped-call]
    with torch.no_grad():
        batch = theirs(texts, padding=True, truncation=True, max_length=8, return_tensors="pt")
        expected = net(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.numpy()
    assert np.allclose(served.logits(kind.from_json(texts, ANY)), expected, atol=1e-4)
