"""A model of named numbers, served: every way to ask it, its tensors, its ids, and what is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service.app import create_app
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.bodies import binary, without_data
from tests.service.tiny_bundle import CLASSES, write_bundle
from trueodds.bundle import Bundle, open_models
from trueodds.inputs import InputError, VectorInput

NAMES = ("age", "income", "rate: net", "größe", "height")
ROWS_NF = np.random.default_rng(3).normal(size=(4, len(NAMES))).astype(np.float32)
LISTS = ROWS_NF.tolist()
OBJECTS = [dict(zip(reversed(NAMES), reversed(row), strict=True)) for row in LISTS]
INFER = "/v2/models/tiny/infer"


@pytest.fixture(scope="module")
def vectors(serve_once: Callable[..., Client]) -> Client:
    return serve_once({"max_instances": 8, "max_body_bytes": 20_000}, features=NAMES)


def test_columns_in_another_writing_are_taken_and_said(vectors: Client) -> None:
    def sent(*names: str) -> httpx.Response:
        body = "\n".join([",".join(names), *(",".join(map(str, row)) for row in LISTS)])
        return vectors.post("/predict", content=body.encode(), headers={"content-type": "text/csv"})

    answer = sent("Age", "INCOME", "rate: net", "größe", "height").json()
    exact = sent(*NAMES).json()
    assert answer["columns"] == {"age": "Age", "income": "INCOME"} and "columns" not in exact
    for row, other in zip(answer["predictions"], exact["predictions"], strict=True):
        assert row["probabilities"] == other["probabilities"]
    two = sent("Age", "AGE", "income", "rate: net", "größe", "height")
    assert two.status_code == 422 and "unknown column 'Age'. Did you mean 'age'?" in two.text


def test_names_of_objects_in_another_writing_are_taken_and_said(vectors: Client) -> None:
    exact = vectors.post("/predict", json={"instances": OBJECTS}).json()
    renamed = [
        {{"age": "AGE", "rate: net": "Rate:_Net"}.get(name, name): value for name, value in one.items()}
        for one in OBJECTS
    ]
    for instances, columns in (
        (renamed, {"age": "AGE", "rate: net": "Rate:_Net"}),
        ([*OBJECTS[:3], renamed[3]], {"age": "AGE", "rate: net": "Rate:_Net"}),
        ([LISTS[0], *renamed[1:]], {"age": "AGE", "rate: net": "Rate:_Net"}),
    ):
        answer = vectors.post("/predict", json={"instances": instances}).json()
        assert answer["columns"] == columns and "columns" not in exact
        for row, other in zip(answer["predictions"], exact["predictions"], strict=True):
            assert row["probabilities"] == other["probabilities"]
    two = {**OBJECTS[0], "AGE": 1.0}
    for wrong in (two, {name: value for name, value in two.items() if name != "height"}):
        assert "unknown feature 'AGE'; the model takes 'age'" in vectors.refusal("/predict", {"instances": [wrong]})


@pytest.fixture(scope="module")
def gaps(serve_once: Callable[..., Client]) -> Client:
    """Takes missing values."""
    return serve_once(features=NAMES, missing=True)


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def table() -> str:
    lines = [";".join(reversed(NAMES)), *(";".join(map(repr, reversed(row))) for row in LISTS)]
    return "\r\n".join(lines)


def ask(client: Client, body: Any, kind: str) -> httpx.Response:
    return client.post("/predict", content=body, headers={"content-type": kind})


def probabilities(answer: httpx.Response) -> list[list[float]]:
    assert answer.status_code == 200, answer.text
    return [p["probabilities"] for p in answer.json()["predictions"]]


def tensor(**changes: Any) -> dict[str, Any]:
    data = ROWS_NF.ravel().tolist()
    return {"name": "features", "shape": list(ROWS_NF.shape), "datatype": "FP32", "data": data, **changes}


def test_all_ways_to_send_a_vector_agree_with_the_bundle_applied_by_hand(vectors: Client) -> None:
    bundle: Bundle = vectors.app.state.runtime.registry.default._model.bundle
    logits_NC = vectors.app.state.runtime.registry.default._model.logits(ROWS_NF)
    expected = [p["probabilities"] for p in vectors.predict(LISTS)]
    np.testing.assert_allclose(expected, bundle.calibrator(logits_NC), rtol=1e-6)
    assert [p["probabilities"] for p in vectors.predict(OBJECTS)] == expected
    for body, kind in [
        (npy(ROWS_NF), "application/x-npy"),
        (npy(np.asfortranarray(ROWS_NF, np.float64)), "application/x-npy"),
        (table().encode(), "text/csv"),
        (table().replace(";", "\t").encode(), "text/csv; charset=utf-8"),
    ]:
        assert probabilities(ask(vectors, body, kind)) == expected
    assert probabilities(ask(vectors, npy(ROWS_NF[0]), "application/x-npy")) == expected[:1]


def test_tensors_of_the_open_inference_protocol(vectors: Client) -> None:
    metadata = vectors.get("/v2/models/tiny").json()
    card = {"kind": "vector", "features": list(NAMES), "missing": False}
    shape = [-1, len(NAMES)]
    assert metadata["inputs"] == [{"name": "features", "datatype": "FP32", "shape": shape, "parameters": card}]
    expected = [v for p in vectors.predict(LISTS) for v in p["probabilities"]]

    def answers(body: dict[str, Any] | bytes, **headers: str) -> list[float]:
        options: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = vectors.post(INFER, headers=headers, **options)
        assert answer.status_code == 200, answer.text
        (values,) = [o["data"] for o in answer.json()["outputs"] if o["name"] == "probabilities"]
        return list(values)

    assert answers({"inputs": [tensor()]}) == answers({"inputs": [tensor(data=LISTS)]}) == expected
    for datatype, dtype in [("FP32", "<f4"), ("FP64", "<f8")]:
        data = ROWS_NF.astype(dtype).tobytes()
        call = binary({"inputs": [without_data(tensor(datatype=datatype), len(data))]}, data)
        assert answers(call["content"], **call["headers"]) == expected
    whole = [1, -2, 300, 2**40, 0]
    one = tensor(shape=[1, len(NAMES)], data=whole, datatype="INT64")
    assert answers({"inputs": [one]}) == vectors.predict([whole])[0]["probabilities"]


def test_missing_values_where_the_card_allows_them(gaps: Client) -> None:
    """They are NaN to the graph; the one of these tests takes 0 in their place."""
    x, filled = ROWS_NF.copy(), ROWS_NF.copy()
    x[1, 2], filled[1, 2] = np.nan, 0
    absent = [[None if v != v else v for v in row] for row in x.tolist()]
    expected = [p["probabilities"] for p in gaps.predict(filled.tolist())]
    csv = table().replace(repr(LISTS[1][2]), "").encode()
    answers = [gaps.post("/predict", json={"instances": absent}), ask(gaps, npy(x), "application/x-npy")]
    answers.append(ask(gaps, csv, "text/csv"))
    assert [probabilities(answer) for answer in answers] == [expected] * 3
    tree = gaps.post(INFER, json={"inputs": [tensor(data=[v for row in absent for v in row])]}).json()
    assert tree["outputs"][2]["data"] == [v for row in expected for v in row]


def test_an_id_of_the_callers_own_and_its_label(serve: Callable[..., Client]) -> None:
    client = serve(features=NAMES, missing=True)
    body = {"instances": [LISTS[0], {**OBJECTS[1], "age": None}], "ids": ["urn:a", "urn:b"]}
    first = client.post("/predict", json=body).json()["predictions"]
    body["instances"] = [OBJECTS[0], [None, *LISTS[1][1:]]]
    again = client.post("/predict", json=body).json()["predictions"]
    assert [p["repeated"] for p in again] == [True, True]
    assert [p["probabilities"] for p in again] == [p["probabilities"] for p in first]
    answer = client.post("/predict", json={"instances": [LISTS[2]], "ids": ["urn:a"]})
    assert answer.status_code == 409 and answer.json()["error"]["code"] == "conflicting_input"
    assert client.label([{"id": "urn:a", "label": CLASSES[0]}])["stored"] == 1
    assert client.report()["labelled"] == 1
    page = client.get("/calibration-report", headers={"accept": "text/html"})
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")


def test_numbers_that_overflow_in_the_model_are_refused_and_nobody_else_is(vectors: Client) -> None:
    huge = [3e38] * len(NAMES)
    answer = vectors.post("/predict", json={"instances": [LISTS[0], huge]})
    assert answer.status_code == 422 and answer.json()["error"]["code"] == "not_finite"
    assert "row 1: the model's logits are not finite" in answer.json()["error"]["message"]
    with ThreadPoolExecutor(8) as pool:
        rows = [huge if k % 4 == 0 else LISTS[0] for k in range(40)]
        states = list(pool.map(lambda row: vectors.post("/predict", json={"instances": [row]}).status_code, rows))
    assert states == [422 if k % 4 == 0 else 200 for k in range(40)]


BAD: list[tuple[Any, str, int, str, str]] = [
    (
        {"instances": [LISTS[0], LISTS[0][1:]]},
        "json",
        422,
        "wrong_shape",
        "instances[1] has 4 values; the model takes 5",
    ),
    ({"instances": [{**OBJECTS[0], "hight": 1}]}, "json", 422, "invalid_instances", "Did you mean 'height'?"),
    ({"instances": [[1, 2, "3", 4, 5]]}, "json", 422, "invalid_instances", "instances[0][2] ('rate: net') is '3'"),
    ({"instances": [[1, 2, None, 4, 5]]}, "json", 422, "invalid_instances", "takes no missing values"),
    ({"instances": [{"b64": "AAAA"}]}, "json", 422, "invalid_instances", "has the unknown feature 'b64'"),
    ({"instances": LISTS * 3}, "json", 413, "too_many_instances", "12 vectors in one call; the limit is 8"),
    ({"vectors": LISTS}, "json", 422, "invalid_instances", 'or {"<feature>": number, ...}; beside it, optionally, ids'),
    (b'{"instances": [[NaN, 1, 2, 3, 4]]}', "application/json", 400, "invalid_json", "NaN and Infinity are not JSON"),
    (npy([[np.nan] * 5]), "application/x-npy", 422, "invalid_instances", "the array at [0, 0] ('age') is NaN"),
    (npy(np.zeros((9, 5))), "application/x-npy", 413, "too_many_instances", "9 vectors in one call"),
    (npy(np.zeros((2, 5), object)), "application/x-npy", 422, "wrong_type", "allowed are numbers, best float32"),
    (b"PK\x03\x04", "application/x-npy", 400, "invalid_npy", "write it with numpy.save"),
    (b"age;income\n1;2\n", "text/csv", 422, "invalid_instances", "the header lacks the column 'rate: net' and 2 more"),
    (b"\xff", "text/csv", 400, "invalid_csv", "CSV UTF-8"),
    (table().encode() * 300, "text/csv", 413, "body_too_large", "20,000 bytes"),
    (b"\0" * 20, "application/octet-stream", 415, "unsupported_media_type", "application/json, application/x-npy and"),
    (b"--b", "multipart/form-data; boundary=b", 415, "unsupported_media_type", "accepts application/json"),
]


@pytest.mark.parametrize(("body", "kind", "status", "code", "words"), BAD, ids=[words for *_, words in BAD])
def test_what_is_refused(vectors: Client, body: Any, kind: str, status: int, code: str, words: str) -> None:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = ask(vectors, sent, "application/json" if kind == "json" else kind)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert words in answer.json()["error"]["message"]


def test_a_name_that_stands_twice_is_refused(vectors: Client) -> None:
    """The parser would keep the last of its values. Colons in texts are none between names and values."""
    good = json.dumps(OBJECTS[0])
    twice = good[:-1] + ', "age": 2}'
    for body, words in [
        (f'{{"instances": [{good}, {twice}]}}', "instances[1] has the name 'age' twice; remove one of them"),
        (f'{{"ids": ["a:b"], "instances": [{twice}]}}', "instances[0] has the name 'age' twice"),
        (f'{{"instances": [], "instances": [{good}]}}', "the body has the name 'instances' twice"),
    ]:
        answer = ask(vectors, body.encode(), "application/json")
        assert answer.status_code == 422 and words in answer.json()["error"]["message"], answer.text
    assert ask(vectors, f'{{"ids": ["a:b:c"], "instances": [{good}]}}'.encode(), "application/json").status_code == 200


BAD_TENSORS: list[tuple[dict[str, Any], int, str]] = [
    (tensor(name="images"), 422, "['images']; expected one input, named 'features'"),
    (tensor(shape=[4, 4]), 422, "expected [N, 5]"),
    (tensor(shape=[9, 5], data=[0] * 45), 413, "9 vectors in one call"),
    (tensor(data=[*LISTS[:3], LISTS[0][1:]]), 422, "axis 1 has 4 values, not 5"),
    (tensor(data=["x"] * 20), 422, "the input 'features' at [0, 0] ('age') is 'x'; allowed are numbers"),
    (tensor(data=[None] * 20), 422, "takes no missing values"),
    (tensor(data=[1e39] * 20, datatype="FP64"), 422, "beyond float32"),
]


@pytest.mark.parametrize(("entry", "status", "words"), BAD_TENSORS, ids=[words for *_, words in BAD_TENSORS])
def test_tensors_that_are_refused(vectors: Client, entry: dict[str, Any], status: int, words: str) -> None:
    answer = vectors.post(INFER, json={"inputs": [entry]})
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


def test_a_shadow_of_other_features_does_not_follow(tmp_path: Path) -> None:
    folder = open_models(tmp_path / "models")
    folder.publish(write_bundle(tmp_path / "first", features=NAMES))
    same = folder.publish(write_bundle(tmp_path / "same", features=NAMES, seed=1), None).name
    other = folder.publish(write_bundle(tmp_path / "other", features=NAMES[::-1]), None).name
    settings = Settings(models=tmp_path / "models", store=tmp_path / "s.sqlite", threads=1)
    with Client(create_app(settings)) as client:
        for version, problems in [(same, 0), (other, 1)]:
            (tmp_path / "models" / "tiny" / "shadow").write_text(f"{version}\n")  # `shadow` refuses it
            client.run(client.app.state.runtime.registry.look())
            client.predict(LISTS)
            found = client.get("/models").json()
            assert len(found["problems"]) == problems, found
            assert found["models"][0]["shadow"] == (None if problems else version)
        assert "it takes other inputs or has other classes" in found["problems"][0]


def test_a_graph_of_another_signature_is_refused() -> None:
    class Tensor:
        def __init__(self, type_: str, shape: list[Any]) -> None:
            self.name, self.type, self.shape = "x", type_, shape

    kind = VectorInput(features=["a", "b"])
    kind.check_signature([Tensor("tensor(float)", ["N", 2])], "m.onnx")
    kind.check_signature([Tensor("tensor(float)", [None, None])], "m.onnx")
    for tensors, words in [
        (
            [Tensor("tensor(double)", ["N", 2])],
            r"m.onnx takes \(x: tensor\(double\) \['N', 2\]\); expected one float32",
        ),
        (
            [Tensor("tensor(float)", ["N", 3])],
            r"shape \['N', 3\], its card says \['N', 2\] with any number N of vectors",
        ),
        ([Tensor("tensor(float)", [1, 2])], "any number N"),
        ([Tensor("tensor(float)", ["N", 2])] * 2, "expected one"),
        ([], "expected one"),
    ]:
        with pytest.raises(InputError, match=words):
            kind.check_signature(tensors, "m.onnx")
