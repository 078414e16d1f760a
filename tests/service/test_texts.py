"""A model of texts, served: every way to ask it, what is said of long ones, its ids, and what is refused."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.app_client import Client, content_of
from tests.service.bodies import binary, without_data
from tests.service.tiny_bundle import CLASSES, word_weights
from trueodds.inputs.text.kind import CHARACTERS

WORDS = ("ship", "sails", "the", "cup", "of", "tea", "größer")
TEXTS = ["The ship sails", "größer", 'the cup,\nof "tea" tea', "unheard of"]
LONG = " ".join(["tea"] * 9 + ["ship"])
INFER = "/v2/models/tiny/infer"


@pytest.fixture(scope="module")
def texts(serve_once: Callable[..., Client]) -> Client:
    return serve_once({"max_instances": 8, "max_body_bytes": 64 * CHARACTERS}, words=WORDS)


def expected(text: str) -> list[float]:
    """By hand: the words' weights summed, at the bundle's temperature."""
    weights = word_weights(len(WORDS), len(CLASSES))
    ids = [WORDS.index(word) + 2 if word in WORDS else 1 for word in text.lower().split()[:8]]
    odds = np.exp((weights[ids].sum(axis=0) / 1.7).astype(np.float64))
    return list(odds / odds.sum())


def ask(client: Client, body: Any, kind: str = "application/json") -> httpx.Response:
    return client.post("/predict", content=body, headers={"content-type": kind})


def predictions(answer: httpx.Response) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = content_of(answer)["predictions"]
    return rows


def tensor(**changes: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "texts", "datatype": "BYTES", "shape": [len(TEXTS)], "data": TEXTS} | changes]}


def binary_texts(data: bytes, count: int) -> dict[str, Any]:
    (shown,) = tensor(shape=[count])["inputs"]
    return binary({"inputs": [without_data(shown, len(data))]}, data, **{"content-type": "application/octet-stream"})


def packed(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def test_every_form_gives_the_same_answer(texts: Client) -> None:
    wanted = [expected(text) for text in TEXTS]
    quoted = "\r\n".join(["text", *('"' + text.replace('"', '""') + '"' for text in TEXTS)])
    for body, kind in [
        (json.dumps({"instances": TEXTS}), "application/json"),
        (json.dumps({"instances": [{"text": text} for text in TEXTS]}), "application/json"),
        (json.dumps({"instances": [TEXTS[0], {"text": TEXTS[1]}, *TEXTS[2:]]}), "application/json"),
        (quoted.encode(), "text/csv"),
        (quoted.encode("utf-8-sig"), "text/csv"),
    ]:
        assert np.allclose([p["probabilities"] for p in predictions(ask(texts, body, kind))], wanted, atol=1e-6)
    for answer in (
        texts.post(INFER, json=tensor()),
        texts.post(INFER, json=tensor(shape=[len(TEXTS), 1])),
        texts.post(INFER, json=tensor(shape=[len(TEXTS), 1], data=[[text] for text in TEXTS])),
        texts.post(INFER, **binary_texts(packed(*map(str.encode, TEXTS)), len(TEXTS))),
    ):
        assert answer.status_code == 200, answer.text
        found = next(output for output in answer.json()["outputs"] if output["name"] == "probabilities")
        assert np.allclose(np.reshape(found["data"], (len(TEXTS), -1)), wanted, atol=1e-6)
        assert "parameters" not in answer.json()


def test_an_answer_says_which_texts_were_cut(texts: Client) -> None:
    short, long = predictions(texts.post("/predict", json={"instances": ["tea", LONG]}))
    assert "truncated" not in short and long["truncated"] == {"tokens": 10, "read": 8}
    assert np.allclose(long["probabilities"], expected(LONG), atol=1e-6)
    answer = texts.post(INFER, json=tensor(shape=[2], data=["tea", LONG])).json()
    assert answer["parameters"] == {"truncated": [{"row": 1, "tokens": 10, "read": 8}]}


def test_the_protocol_describes_the_tensor(texts: Client) -> None:
    (taken,) = texts.get("/v2/models/tiny").json()["inputs"]
    assert (taken["name"], taken["datatype"], taken["shape"]) == ("texts", "BYTES", [-1])
    assert taken["parameters"]["max_tokens"] == 8
    examples = texts.get("/openapi.json").json()["paths"]
    shown = examples["/predict"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    for example in shown.values():
        assert predictions(texts.post("/predict", json=example["value"]))
    (example,) = examples["/v2/models/{model}/infer"]["post"]["requestBody"]["content"]["application/json"][
        "examples"
    ].values()
    assert texts.post(INFER, json=example["value"]).status_code == 200


def test_ids_labels_and_the_report(texts: Client) -> None:
    def asked(text: str) -> httpx.Response:
        return texts.post("/predict", json={"instances": [text], "ids": ["letter-1"]})

    first, again = predictions(asked("a cup of tea"))[0], predictions(asked("a cup of tea"))[0]
    assert again["repeated"] and again["probabilities"] == first["probabilities"]
    assert asked("a cup of").status_code == 409
    labelled = texts.post("/feedback", json={"labels": [{"id": "letter-1", "label": first["label"]}]})
    assert labelled.status_code == 200, labelled.text
    report = texts.get("/calibration-report", headers={"accept": "application/json"}).json()
    assert report["labelled"] >= 1


@pytest.mark.parametrize(
    ("instances", "status", "words"),
    [
        ([""], 422, r"instances\[0\] is an empty text; send one with words"),
        (["tea", " \n\t"], 422, r"instances\[1\] is an empty text"),
        ([3], 422, r"instances\[0\] is 3; expected a string, or {\"text\": \"...\"}"),
        ([None], 422, r"instances\[0\] is None; expected a string"),
        ([["tea"]], 422, "expected a string"),
        ([{"txt": "tea"}], 422, r"instances\[0\] has the keys 'txt'; expected a string, or"),
        ([{"text": "tea", "label": 1}], 422, "has the keys 'label', 'text'"),
        (["ö" * (CHARACTERS + 1)], 413, r"instances\[0\] has 65,537 characters; the limit of a text is 65,536"),
        (["tea"] * 9, 413, "9 texts in one call; the limit is 8"),
        ([], 422, "no text was sent"),
    ],
)  # fmt: skip
def test_refused_instances(texts: Client, instances: list[Any], status: int, words: str) -> None:
    answer = texts.post("/predict", json={"instances": instances})
    assert answer.status_code == status, answer.text
    assert re.search(words, answer.json()["error"]["message"]), answer.text


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        (b'{"instances": ["caf\xe9"]}', "application/json", 400, "not JSON"),
        (b'{"instances": ["\\ud800"]}', "application/json", 400, "not JSON"),
        (b"text\ncaf\xe9\n", "text/csv", 400, "line 2 of the CSV is not UTF-8"),
        (b"words\ntea\n", "text/csv", 422, "the header has 'words'; a CSV of texts has the one column 'text'"),
        (b"text,label\ntea,1\n", "text/csv", 422, "the header has 'text', 'label'"),
        (b"text\ntea\n\n", "text/csv", 422, "row 3 is an empty text"),
        (b'text\n"tea\n', "text/csv", 400, "row 2 is not CSV"),
        (b"tea", "application/octet-stream", 415, "accepts application/json and text/csv"),
        (b"tea", "text/plain", 415, "accepts application/json and text/csv"),
    ],
)
def test_refused_bodies(texts: Client, body: bytes, kind: str, status: int, words: str) -> None:
    answer = ask(texts, body, kind)
    assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True), answer.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"datatype": "INT64"}, "datatype is 'INT64'; allowed are BYTES"),
        ({"name": "input_ids"}, "named 'texts'"),
        ({"shape": [4, 2]}, "expected [N]"),
        ({"shape": [3]}, "the input's data has 4 values, but [3] needs 3"),
        ({"shape": [1], "data": [7]}, "the input 'texts' at [0] is 7"),
        ({"shape": [1], "data": [""]}, "the input 'texts' at [0] is an empty text"),
    ],
)
def test_refused_tensors(texts: Client, changes: dict[str, Any], words: str) -> None:
    answer = texts.post(INFER, json=tensor(**changes))
    assert answer.status_code == 422 and words in answer.json()["error"], answer.text


@pytest.mark.parametrize(
    ("data", "count", "words"),
    [
        (packed(b"tea", b"caf\xe9"), 2, "text 1 is not UTF-8: byte 3 is 0xe9"),
        (packed(b"tea"), 2, "the tensor holds 1 texts, but its shape says 2"),
        (struct.pack("<I", 9) + b"tea", 1, "text 0 extends beyond the 7 bytes"),
    ],
)
def test_refused_binary_tensors(texts: Client, data: bytes, count: int, words: str) -> None:
    answer = texts.post(INFER, **binary_texts(data, count))
    assert answer.status_code == 422 and words in answer.json()["error"], answer.text
