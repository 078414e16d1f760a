"""POST /kserve/logger: the events of KServe's inference logger, as they come over the wire."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from typing import Any

import pytest

from service.observe import kserve_route
from service.observe.cloud_event import STRUCTURED
from tests.service.app_client import Client, content_of

TYPE = "org.kubeflow.serving.inference."
V1 = {"predictions": [[0.9, 0.1], [0.2, 0.8]]}


def tensor(name: str, rows: Any, datatype: str = "FP32") -> dict[str, Any]:
    flat = [number for row in rows for number in row]
    return {"name": name, "shape": [len(rows), len(rows[0])], "datatype": datatype, "data": flat}


def headers(half: str, id_: str = "8c2d", **more: str) -> dict[str, str]:
    """As KServe's Go client sets them."""
    attributes = {
        "Ce-Id": id_,
        "Ce-Type": TYPE + half,
        "Ce-Source": "http://localhost:9081/",
        "Ce-Specversion": "1.0",
        "Ce-Time": "2026-01-02T03:04:05.123456789Z",
        "Ce-Inferenceservicename": "iris",
        "Ce-Namespace": "default",
        "Ce-Component": "predictor",
        "Ce-Endpoint": "",
        "Ce-Metadata": "{}",
        "Content-Type": "application/json",
    }
    return attributes | more


def send(client: Client, half: str, body: Any, id_: str = "8c2d", *, status: int = 200, **query: Any) -> dict[str, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post("/kserve/logger", content=content, headers=headers(half, id_), params=query)
    tree: dict[str, Any] = content_of(answer, status)
    return tree


def events(client: Client) -> dict[tuple[str, str], int]:
    """What /metrics says of events, by half and outcome."""
    pattern = r'trueodds_kserve_events_total{outcome="(\w+)",type="(\w+)"} (\d+)'
    return {(half, outcome): int(n) for outcome, half, n in re.findall(pattern, client.get("/metrics").text)}


@pytest.mark.parametrize(
    ("body", "query", "version"),
    [
        (V1, {}, "1"),
        ({"predictions": [{"0": 0.9, "1": 0.1}, {"1": 0.8, "0": 0.2}]}, {"version": "7"}, "7"),
        ({"predictions": [{"probabilities": [0.9, 0.1]}, {"probabilities": [0.2, 0.8]}]}, {}, "1"),
        ({"predictions": [{"label": 1, "mine": p} for p in V1["predictions"]]}, {"output": "mine"}, "1"),
        ({"outputs": [tensor("probabilities", V1["predictions"])], "model_version": "v3"}, {}, "v3"),
        ({"outputs": [tensor("predict", [[0], [1]]), tensor("predict_proba", V1["predictions"])]}, {}, "1"),
        ({"outputs": [tensor("output-0", V1["predictions"])]}, {"version": "7"}, "7"),
        ({"outputs": [{**tensor("dense_1", [[2.197, 0], [-1.386, 0]])}]}, {"output": "dense_1", "form": "logits"}, "1"),
        ({"outputs": [tensor("logits", [[2.197, 0], [-1.386, 0]])]}, {}, "1"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_answers_of_both_protocols(client: Client, body: dict[str, Any], query: dict[str, Any], version: str) -> None:
    assert send(client, "request", b"\x00 not JSON: nothing of it is needed", **query)["rows"] == 0
    assert send(client, "response", body, **query)["stored"] == 2
    assert send(client, "response", body, **query)["already_known"] == 2
    client.label([{"id": "8c2d-0", "label": 0}, {"id": "8c2d-1", "label": "1"}])
    report = client.report(model="iris", version=version)
    assert (report["labelled"], report["accuracy"]) == (2, 1.0)
    assert report["mean_confidence"] == pytest.approx(0.85, abs=1e-4)
    stored = client.run(client.app.state.runtime.store.read_answers("iris", ["8c2d-0"]))["8c2d-0"]
    assert stored.created_ms == 1_767_323_045_123
    assert events(client) == {("request", "taken"): 1, ("response", "taken"): 2}


@pytest.mark.parametrize("encoded", [False, True], ids=["data", "data_base64"])
def test_structured_events(client: Client, encoded: bool) -> None:
    data = {"data_base64": base64.b64encode(json.dumps(V1).encode()).decode()} if encoded else {"data": V1}
    event = {"specversion": "1.0", "id": "x", "type": TYPE + "response", "inferenceservicename": "iris", **data}
    answer = client.post("/kserve/logger", content=json.dumps(event).encode(), headers={"content-type": STRUCTURED})
    assert answer.status_code == 200 and answer.json()["stored"] == 2


@pytest.mark.parametrize(
    "body",
    [
        {"predictions": [1, 0]},
        {"predictions": []},
        {"predictions": [{"label": 1}]},
        {"predictions": [[3.5, -1.0]]},
        {"outputs": [tensor("predict", [[0], [1]])]},
        {"outputs": [tensor("dense_1", [[2.2, 0.0]])]},
        {"outputs": [{**tensor("probabilities", [[0.5, 0.5]]), "shape": [2, 2]}]},
        {"error": "no"},
        [],
    ],
    ids=str,
)
def test_an_answer_without_probabilities_is_refused_with_the_cure(client: Client, body: Any) -> None:
    error = send(client, "response", body, status=422)["error"]
    assert error["code"] == "no_probabilities"
    assert "searched for probabilities," in error["message"] and "?output=NAME" in error["message"]
    assert events(client) == {("response", "no_probabilities"): 1}
    assert send(client, "response", V1, status=422, output="other")["error"]["code"] == "no_probabilities"


@pytest.mark.parametrize(
    ("changes", "body", "status", "words"),
    [
        ({"Ce-Type": "other"}, b"{}", 422, "the event's type (ce-type) is 'other'; expected an inference event:"),
        ({"Ce-Id": ""}, b"{}", 422, "the event's id (ce-id) is ''"),
        ({}, b"\x00\x01", 400, "the log does not contain binary tensors"),
        ({"Content-Type": STRUCTURED}, b"[]", 422, "the event is []; expected an object"),
        ({"Content-Type": STRUCTURED}, b'{"type": 3}', 422, "the event's type (ce-type) is 3"),
    ],
)
def test_what_is_no_event(client: Client, changes: dict[str, str], body: bytes, status: int, words: str) -> None:
    answer = client.post("/kserve/logger", content=body, headers=headers("response", **changes))
    assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True), answer.text


@pytest.mark.parametrize("first", ["request", "response"])
@pytest.mark.parametrize("protocol", ["V1", "V2"])
def test_pairs_come_in_either_order(client: Client, first: str, protocol: str) -> None:
    bodies: dict[str, Any] = {"request": {"instances": [{"key": "a", "x": 1}, {"key": 7, "x": 2}]}, "response": V1}
    if protocol == "V2":
        bodies["request"] = {"inputs": [{"name": "key", "shape": [2], "datatype": "BYTES", "data": ["a", "7"]}]}
        bodies["response"] = {"outputs": [tensor("probabilities", V1["predictions"])]}
    second = "response" if first == "request" else "request"
    assert send(client, first, bodies[first], ids="key")["rows"] == 0
    assert send(client, second, bodies[second], ids="key")["stored"] == 2
    assert client.label([{"id": "a", "label": 0}, {"id": "7", "label": 1}])["stored"] == 2
    assert events(client) == {(first, "waiting"): 1, (second, "taken"): 1}
    few = {"instances": [{"key": "b"}]} if protocol == "V1" else {"inputs": [{"name": "key", "data": ["b"]}]}
    send(client, "request", few, "other", ids="key")
    error = send(client, "response", bodies["response"], "other", status=422, ids="key")["error"]
    assert error["message"] == "the request has 1 ids and the response 2 rows; expected one id per row"
    send(client, "request", bodies["request"], "other", ids="key")
    assert send(client, "response", bodies["response"], "other", ids="key")["already_known"] == 2, (
        "the pair was forgotten"
    )
    assert send(client, "response", {"predictions": [1]}, "bad", status=422, ids="key")["error"]["code"] == (
        "no_probabilities"
    )
    for none in ([[1]], [{"key": False}, {"key": 1.0}]):
        answer = send(client, "request", {"instances": none}, "none", status=422, ids="key")
        assert answer["error"]["code"] == "no_ids"


def test_a_half_that_stays_alone_is_dropped_and_counted(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    store, telemetry = client.app.state.runtime.store, client.app.state.runtime.telemetry
    request = {"instances": [{"key": "a"}, {"key": "b"}]}
    send(client, "request", request, "lost", ids="key")
    send(client, "response", V1, "found", ids="key")

    async def look() -> None:
        """Let it pass over the halves twice, however long that takes."""
        passes, drop = 0, store.drop_halves

        async def counted(before_ms: int) -> Any:
            nonlocal passes
            dropped = await drop(before_ms)
            passes += 1
            return dropped

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "drop_halves", counted)
            task = asyncio.create_task(kserve_route.keep_pairs(store, telemetry, seconds=0.005))
            while passes < 2:
                await asyncio.sleep(0.005)
            task.cancel()

    client.run(look())
    assert ("request", "unpaired") not in events(client), "ten minutes have not gone by"
    now = time.time_ns
    monkeypatch.setattr("service.observe.kserve_route.time.time_ns", lambda: now() + 601 * 10**9)
    client.run(look())
    assert events(client)["request", "unpaired"] == events(client)["response", "unpaired"] == 1
    monkeypatch.undo()
    assert send(client, "request", request, "found", ids="key")["rows"] == 0, "the response is gone"


@pytest.mark.parametrize(
    "body", [{"predictions": [[1e39, 0], [1.0, 0.0]]}, {"outputs": [tensor("z", [[1e39, 0], [1, 0]])]}]
)
def test_logits_too_far_apart_are_refused_by_row(client: Client, body: dict[str, Any]) -> None:
    query: dict[str, Any] = {"form": "logits"} | ({"output": "z"} if "outputs" in body else {})
    answer = send(client, "response", body, **query)
    assert (answer["stored"], answer["failed"]) == (1, 1) and "float32" in answer["problems"][0]["message"]
