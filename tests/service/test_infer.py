"""The Open Inference Protocol over the same engine: JSON and binary tensors, ids, readiness, its own error body."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from service.infer import request_parameters
from service.infer.infer_route import EXTENSIONS
from service.infer.tensors import DTYPES
from tests.service.app_client import Client
from tests.service.bodies import HEAD, binary, without_data
from tests.service.tiny_bundle import CLASSES, SHAPE, pictures

INFER = "/v2/models/tiny/infer"
IMAGES_NHWC = np.asarray(pictures(3), np.uint8)


def tensor(**changes: Any) -> dict[str, Any]:
    shape = [3, *SHAPE]
    return {"name": "images", "shape": shape, "datatype": "UINT8", "data": IMAGES_NHWC.ravel().tolist(), **changes}


def infer(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = client.send(INFER, body)
    return tree


def outputs(tree: dict[str, Any]) -> dict[str, Any]:
    return {output["name"]: output["data"] for output in tree["outputs"]}


def test_metadata_and_readiness(client: Client) -> None:
    assert client.get("/v2").json()["extensions"] == EXTENSIONS
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    version = client.report()["version"]
    for path in ("/v2/models/tiny", f"/v2/models/tiny/versions/{version}"):
        answer = client.get(path).json()
        assert (answer["name"], answer["versions"]) == ("tiny", [version])
        (taken,) = answer["inputs"]
        assert taken.pop("parameters") == client.app.state.runtime.registry.default.card.input.model_dump()
        assert taken == {"name": "images", "datatype": "UINT8", "shape": [-1, *SHAPE]}
        assert {"name": "probabilities", "datatype": "FP64", "shape": [-1, 4]} in answer["outputs"]
        assert client.get(path + "/ready").json() == {"name": "tiny", "ready": True}


@pytest.mark.parametrize("path", ["/v2/models/none", "/v2/models/none/ready", "/v2/models/tiny/versions/0/ready"])
def test_errors_are_texts(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert list(answer.json()) == ["error"] and "published are tiny" in client.get("/v2/models/none").json()["error"]
    assert isinstance(client.get("/v2/nothing").json()["error"], str)


def test_answers_are_those_of_predict_and_take_labels(client: Client) -> None:
    expected = client.predict(pictures(3))
    tree = infer(client, {"id": "42", "inputs": [tensor()]})
    assert (tree["id"], tree["model_name"], tree["model_version"]) == ("42", "tiny", client.report()["version"])
    values = outputs(tree)
    assert list(values) == ["prediction_id", "label", "probabilities"]
    assert values["label"] == [p["label"] for p in expected]
    assert values["probabilities"] == [v for p in expected for v in p["probabilities"]]
    assert client.label([{"id": i, "index": 0} for i in values["prediction_id"]])["stored"] == 3


@pytest.mark.parametrize(
    "change", [{"data": IMAGES_NHWC.tolist()}, {"datatype": "FP32"}, {"data": (IMAGES_NHWC / 1).tolist()}]
)
def test_nested_and_float_tensors_are_the_same_pixels(client: Client, change: dict[str, Any]) -> None:
    wanted = {"outputs": [{"name": "logits"}]}
    expected = infer(client, {"inputs": [tensor()], **wanted})
    assert outputs(infer(client, {"inputs": [tensor(**change)], **wanted})) == outputs(expected)


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_type_of_numbers_holds_pixels_or_is_refused(client: Client, datatype: str) -> None:
    """In JSON and in binary; the first value that is no pixel is named as it is."""
    dtype, wanted = DTYPES[datatype], {"outputs": [{"name": "logits"}]}
    small_NHWC = IMAGES_NHWC // 2  # what INT8 holds too
    expected = outputs(infer(client, {"inputs": [tensor(data=small_NHWC.ravel().tolist())], **wanted}))

    def answers(values_NHWC: npt.NDArray[Any]) -> list[httpx.Response]:
        typed = values_NHWC.astype(dtype)
        shown = tensor(datatype=datatype, data=typed.ravel().tolist())
        head = {"inputs": [without_data(shown, typed.nbytes)], **wanted}
        return [
            client.post(INFER, json={"inputs": [shown], **wanted}),
            client.post(INFER, **binary(head, typed.tobytes())),
        ]

    for answer in answers(small_NHWC):
        assert outputs(answer.json()) == expected
    if datatype == "UINT8":
        return
    worst = np.iinfo(dtype).max if dtype.kind == "u" else np.iinfo(dtype).min if dtype.kind == "i" else -0.5
    bad_NHWC = small_NHWC.astype(dtype)
    bad_NHWC[1, 2, 3, 0] = bad_NHWC[2, 0, 0, 0] = worst
    for answer in answers(bad_NHWC):
        assert answer.status_code == 422
        assert f"holds {worst} at [1, 2, 3, 0]; allowed are whole numbers 0..255" in answer.json()["error"]


# What tritonclient 2.73's infer sends for (priority=2, timeout=5_000_000), and for sequences known by a number or text.
TRITON = [
    b'{"priority":2,"timeout":5000000,"binary_data_output":true}',
    b'{"sequence_id":7,"sequence_start":true,"sequence_end":false,"binary_data_output":true}',
    b'{"sequence_id":"s-7","sequence_start":false,"sequence_end":true,"binary_data_output":true}',
    b'{"timeout":0,"binary_data_output":true}',
]


@pytest.mark.parametrize("parameters", TRITON)
def test_what_tritons_client_sends_is_answered(client: Client, parameters: bytes) -> None:
    shown = b'{"name":"images","shape":[3,4,4,1],"datatype":"INT64","parameters":{"binary_data_size":384}}'
    head = b'{"id":"r1","inputs":[' + shown + b'],"parameters":' + parameters + b"}"
    answer = client.post(INFER, **binary(head, IMAGES_NHWC.astype("<i8").tobytes()))
    assert answer.status_code == 200, answer.text
    shown_back = json.loads(answer.content[: int(answer.headers[HEAD])])
    assert [output["shape"] for output in shown_back["outputs"]] == [[3], [3], [3, 4]]
    assert client.report()["answers"] == 3


def test_a_timeout_bounds_the_wait(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """In microseconds; the service's own limit stays."""
    store = client.app.state.runtime.store
    put = store.put_predictions

    async def slow(batch: Any) -> Any:
        await asyncio.sleep(0.2)
        return await put(batch)

    monkeypatch.setattr(store, "put_predictions", slow)
    answer = client.post(INFER, json={"inputs": [tensor()], "parameters": {"timeout": 20_000}})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "took more than 0.02 s" in answer.json()["error"]
    assert (
        request_parameters.seconds({"timeout": 60_000_000}, 30) == request_parameters.seconds({"timeout": 0}, 30) == 30
    )


@pytest.mark.parametrize(("datatype", "kind"), [("UINT8", "application/octet-stream"), ("FP32", "")])
def test_binary_tensors_both_ways(client: Client, datatype: str, kind: str) -> None:
    """Triton's client sends no content type."""
    expected = outputs(infer(client, {"inputs": [tensor()]}))
    data = IMAGES_NHWC.astype({"UINT8": "<u1", "FP32": "<f4"}[datatype]).tobytes()
    shown = [
        {"name": "label", "parameters": {"binary_data": False}},
        {"name": "probabilities"},
        {"name": "prediction_id"},
    ]
    entry = without_data(tensor(datatype=datatype), len(data))
    head = {"inputs": [entry], "parameters": {"binary_data_output": True}, "outputs": shown}
    answer = client.post(INFER, **binary(head, data, **{"content-type": kind}))
    assert answer.status_code == 200, answer.text
    length = int(answer.headers[HEAD])
    label, probabilities, ids = json.loads(answer.content[:length])["outputs"]
    assert label["data"] == expected["label"]
    size = probabilities["parameters"]["binary_data_size"]
    values = np.frombuffer(answer.content[length : length + size], "<f8")
    assert values.tolist() == expected["probabilities"] and probabilities["shape"] == [3, len(CLASSES)]
    rest = answer.content[length + size :]
    assert len(rest) == ids["parameters"]["binary_data_size"] == 3 * 40
    assert [struct.unpack_from("<I", rest, 40 * k)[0] for k in range(3)] == [36] * 3
    assert client.label([{"id": rest[4:40].decode(), "index": 1}])["stored"] == 1


def test_an_id_of_the_callers_own(client: Client) -> None:
    one = tensor(shape=[1, *SHAPE], data=IMAGES_NHWC[0].ravel().tolist())
    parameters = {"prediction_id": "mine/1", "tag": "left", "propensity": 0.5}
    first = infer(client, {"inputs": [one], "parameters": parameters})
    assert outputs(first)["prediction_id"] == ["mine/1"]
    assert infer(client, {"inputs": [one], "parameters": parameters}) == first
    answer = client.post(INFER, json={"inputs": [{**one, "data": [0] * 16}], "parameters": parameters})
    assert answer.status_code == 409 and "'mine/1'" in answer.json()["error"]


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({}, 422, "inputs are None"),
    ({"inputs": [tensor(name="x")]}, 422, "['x']; expected one input, named 'images'"),
    ({"inputs": [tensor(), tensor()]}, 422, "expected one input"),
    ({"inputs": [tensor(datatype="BYTES")]}, 422, "datatype is 'BYTES'; allowed are UINT8, UINT16, "),
    ({"inputs": [tensor(shape=[3, 4, 4])]}, 422, "expected [N, 4, 4, 1]"),
    ({"inputs": [tensor(shape=[-1, *SHAPE])]}, 422, "expected"),
    ({"inputs": [tensor(shape=[2, *SHAPE])]}, 422, "48 values, but [2, 4, 4, 1] needs 32"),
    ({"inputs": [tensor(shape=[0, *SHAPE], data=[])]}, 422, "no image"),
    ({"inputs": [tensor(shape=[300, *SHAPE])]}, 413, "300 images in one call; the limit is 256"),
    ({"inputs": [tensor(data=[*range(300, 348)])]}, 422, "holds 300 at [0, 0, 0, 0]"),
    (
        {"inputs": [tensor(datatype="FP32", data=[0.5] * 48)]},
        422,
        "0.5 at [0, 0, 0, 0]; allowed are whole numbers 0..255. Send",
    ),
    ({"inputs": [tensor(data=[True] * 48)]}, 422, "holds True"),
    ({"inputs": [tensor(data=[10**400] * 48)]}, 400, ""),
    ({"inputs": [tensor(data=["7"] * 48)]}, 422, "holds '7'"),
    ({"inputs": [tensor(data=IMAGES_NHWC.tolist()[:2])]}, 422, "axis 0 is not 3"),
    ({"inputs": [tensor(data=[[[[0]] * 4] * 3] * 3)]}, 422, "axis 1 has 3 values, not 4"),
    ({"inputs": [tensor(data=None)]}, 422, "data is None"),
    ({"inputs": [tensor(parameters={"binary_data_size": 48})]}, 422, "give one of them"),
    ({"inputs": [tensor(shared_memory=1)]}, 422, "unknown key 'shared_memory'"),
    ({"inputs": [tensor()], "id": 3}, 422, "id is 3"),
    ({"inputs": [tensor()], "outputs": [{"name": "top"}]}, 422, "expected an object whose name is one of"),
    ({"inputs": [tensor()], "outputs": 1}, 422, "outputs is 1"),
    ({"inputs": [tensor(data=[2**64 - 1] * 48)]}, 422, f"holds {2**64 - 1} at [0, 0, 0, 0]"),
    (
        {"inputs": [tensor()], "outputs": [{"name": "label", "parameters": {"classification": 2}}]},
        422,
        "'classification'",
    ),
    ({"inputs": [tensor()], "outputs": [{"name": "label", "parameters": {"binary_data": 1}}]}, 422, "binary_data 1"),
    ({"inputs": [tensor()], "outputs": [{"name": "label", "parameters": 1}]}, 422, "parameters 1; expected an object"),
    (
        {"inputs": [tensor()], "parameters": {"headers": {}}},
        422,
        "unknown parameter 'headers'; allowed are prediction_id",
    ),
    ({"inputs": [tensor()], "parameters": 1}, 422, "parameters is 1; expected an object"),
    (
        {"inputs": [tensor()], "parameters": {"priority": -1}},
        422,
        "priority is -1; allowed is a whole number, 0 or more",
    ),
    ({"inputs": [tensor()], "parameters": {"timeout": 0.5}}, 422, "timeout is 0.5; allowed is a whole number"),
    ({"inputs": [tensor()], "parameters": {"timeout": True}}, 422, "timeout is True; allowed is a whole number"),
    ({"inputs": [tensor()], "parameters": {"sequence_id": 1.5}}, 422, "sequence_id is 1.5; allowed is a whole number"),
    ({"inputs": [tensor()], "parameters": {"sequence_id": "x" * 129}}, 422, "or a text of up to 128 characters"),
    (
        {"inputs": [tensor()], "parameters": {"sequence_start": 1}},
        422,
        "sequence_start is 1; allowed are true and false",
    ),
    ({"inputs": [tensor()], "parameters": {"prediction_id": "a"}}, 422, "names one image; this call has 3"),
    ({"inputs": [tensor()], "parameters": {"tag": "x" * 65}}, 422, "1 to 64 printable"),
    ({"inputs": [tensor()], "parameters": {"propensity": 0}}, 422, "a number in (0, 1]"),
    ({"inputs": [tensor()], "parameters": {"binary_data_output": 1}}, 422, "allowed are true and false"),
]


def test_bad_requests_are_answered_in_words(client: Client) -> None:
    for body, status, words in BAD:
        answer = client.post(INFER, content=json.dumps(body), headers={"content-type": "application/json"})
        assert answer.status_code == status, (words, answer.text)
        assert words in answer.json()["error"], answer.text
    assert client.report()["answers"] == 0


def test_a_parameter_in_the_query_is_not_ignored(client: Client) -> None:
    """/predict has its tag there."""
    answer = client.post(f"{INFER}?tag=night", json={"inputs": [tensor()]})
    assert answer.status_code == 422 and "'tag' is in the query" in answer.json()["error"]
    assert client.report()["answers"] == 0


def test_bad_binary_requests(client: Client) -> None:
    kind = {"content-type": "application/octet-stream"}
    assert client.post(INFER, content=b"{}", headers=kind).status_code == 415
    head = json.dumps({"inputs": [without_data(tensor(), 48)]}).encode()
    for length, data, status, words in [
        (len(head), b"x" * 47, 422, "47 bytes follow the JSON; [3, 4, 4, 1] of UINT8 needs 48"),
        (len(head) + 100, b"x" * 48, 400, "Inference-Header-Content-Length is"),
        ("many", b"x" * 48, 400, "Inference-Header-Content-Length is 'many'"),
        ("9" * 5000, b"x" * 48, 400, "Inference-Header-Content-Length is"),
        (5, b"x" * 48, 400, "not JSON"),
    ]:
        answer = client.post(INFER, content=head + data, headers={**kind, HEAD: str(length)})
        assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


def test_not_ready_without_a_model(serve: Callable[..., Client], client: Client) -> None:
    registry = client.app.state.runtime.registry
    registry._roles.default = None
    answer = client.get("/v2/health/ready")
    assert answer.status_code == 503 and isinstance(answer.json()["error"], str)
