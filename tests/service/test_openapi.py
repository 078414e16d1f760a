"""The documentation is whole, and hostile requests made from it never cause a 5xx."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from service.app import create_app
from service.http.answers import answer_of
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.tiny_bundle import pictures, write_bundle
from trueodds.bundle import open_models
from trueodds.inputs.image.formats import ALLOWED

JSON = "application/json"
FEW = settings(
    max_examples=12,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def running(serve_once: Callable[..., Client]) -> Client:
    client = serve_once()
    client.predict(pictures(3))
    return client


@pytest.fixture(scope="module")
def vectors(serve_once: Callable[..., Client]) -> Client:
    """Serves a model of vectors."""
    return serve_once(features=("length", "width"), missing=True)


OPERATIONS = (
    "POST /predict",
    "POST /observe",
    "POST /observe/decisions",
    "POST /kserve/logger",
    "POST /feedback",
    "POST /judge-labels",
    "GET /admin/labelled.npz",
    "POST /admin/labels/void",
    "POST /admin/labels/settle",
    "POST /admin/alarm/acknowledge",
    "POST /admin/alarm/test",
    "POST /admin/recalibration/undecided",
    "POST /admin/alarm/rearm",
    "POST /admin/alarm/groups/acknowledge",
    "POST /admin/alarm/groups/rearm",
    "GET /calibration-report",
    "GET /multi-label-report",
    "GET /audit",
    "GET /questions",
    "GET /label-queue",
    "POST /label-queue",
    "POST /label-queue/lease",
    "POST /label-queue/answers",
    "GET /predictions",
    "GET /predictions/{id}",
    "DELETE /predictions/{id}",
    "GET /v2",
    "GET /v2/health/live",
    "GET /v2/health/ready",
    "GET /v2/models/stats",
    "POST /v2/repository/index",
    "GET /v2/models/{model}",
    "GET /v2/models/{model}/config",
    "GET /v2/models/{model}/stats",
    "GET /v2/models/{model}/ready",
    "POST /v2/models/{model}/infer",
    "GET /v2/models/{model}/versions/{version}",
    "GET /v2/models/{model}/versions/{version}/ready",
    "GET /v2/models/{model}/versions/{version}/config",
    "GET /v2/models/{model}/versions/{version}/stats",
    "POST /v2/models/{model}/versions/{version}/infer",
    "GET /models",
    "GET /health/live",
    "GET /health/ready",
    "GET /metrics",
)


def send(running: Client, case: Any) -> httpx.Response:
    """As `requests` would put it on the wire: schemathesis speaks its dialect."""
    wanted = case.as_transport_kwargs(base_url="http://service")
    known = {k: v for k, v in wanted.items() if k in ("method", "url", "headers", "params", "json", "data", "files")}
    ready = requests.Request(**known).prepare()
    body = ready.body.encode() if isinstance(ready.body, str) else ready.body
    assert ready.method and ready.url and (body is None or isinstance(body, bytes))
    headers = {name: str(value) for name, value in ready.headers.items()}
    answer: httpx.Response = running.run(running.http.request(ready.method, ready.url, content=body, headers=headers))
    return answer


def served(running: Client) -> dict[str, Any]:
    """The documentation, in which only the model and version that are there can be asked: else all would be 404."""
    document: dict[str, Any] = json.loads(json.dumps(running.app.openapi()))
    model, version = running.app.state.runtime.registry.served_version()
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter["schema"]["enum"] = [{"model": model, "version": version, "id": "any"}[parameter["name"]]]
    return document


OF_INPUTS = ("POST /predict", "POST /v2/models/{model}/infer")


@pytest.fixture(scope="module")
def documented(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """The documentation of a service as schemathesis reads it, once for all tests."""
    import schemathesis  # here alone: it takes a processor half a second, and each process reads this file

    return cache(lambda service: schemathesis.openapi.from_dict(served(request.getfixturevalue(service))))


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("service", "operation"), [*(("running", o) for o in OPERATIONS), *(("vectors", o) for o in OF_INPUTS)]
)
def test_no_documented_request_causes_a_server_error(
    request: pytest.FixtureRequest, documented: Callable[[str], Any], service: str, operation: str
) -> None:
    from schemathesis import GenerationMode

    running: Client = request.getfixturevalue(service)
    method, path = operation.split()
    requests_of = documented(service)[path][method]
    modes = GenerationMode.NEGATIVE, GenerationMode.POSITIVE

    @FEW
    @given(case=st.sampled_from(modes).flatmap(requests_of.as_strategy))
    def check(case: Any) -> None:
        answer = send(running, case)
        assert answer.status_code < 500, answer.text
        assert answer.headers["x-request-id"]
        if answer.status_code >= 400:
            assert set(answer.json()) == {"error"}

    check()


PAIR = ("request", "response", "questions", "answers", "model", "type", "choices", "criteria", "probabilities")
JSON_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["b64", "id", "label", "length", "width", "logits", "version", *PAIR]), inner)
    ),
    max_leaves=20,
)


@pytest.mark.full
@settings(FEW, max_examples=60)
@given(value=JSON_VALUE, key=st.sampled_from(["instances", "labels", "observations", "decisions"]))
def test_no_json_causes_a_server_error(running: Client, vectors: Client, value: object, key: str) -> None:
    paths = ("/predict", "/feedback", "/observe", "/observe/decisions")
    for service, path in (*((running, path) for path in paths), (vectors, "/predict")):
        for body in (value, {key: value}, {key: [value]}):
            assert 200 <= service.post(path, json=body).status_code < 500


KINDS = [
    "application/json",
    "multipart/form-data; boundary=b",
    "x",
    "application/x-npy",
    "application/octet-stream",
    "image/png",
    "text/csv",
]


@settings(FEW, max_examples=60)
@given(body=st.binary(max_size=200), kind=st.sampled_from(KINDS))
def test_no_bytes_cause_a_server_error(running: Client, vectors: Client, body: bytes, kind: str) -> None:
    framed = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n' + body + b"\r\n--b--\r\n"
    for content in (body, framed, b"\x93NUMPY\x01\x00" + body):
        answer = running.post("/predict", content=content, headers={"content-type": kind})
        whole = kind == "application/octet-stream" and content and len(content) % 16 == 0
        assert answer.status_code == 200 if whole else 400 <= answer.status_code < 500
        assert vectors.post("/predict", content=content, headers={"content-type": kind}).status_code < 500
        header = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(content) // 2)}
        assert 400 <= running.post("/v2/models/tiny/infer", content=content, headers=header).status_code < 500


def test_documentation_is_whole(running: Client) -> None:
    document = running.get("/openapi.json").json()
    assert {f"{m.upper()} {path}" for path, methods in document["paths"].items() for m in methods} == set(OPERATIONS)
    for path in document["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            assert operation["description"]
            assert operation["tags"]
    predict = document["paths"]["/predict"]["post"]
    kinds = {"application/json", "multipart/form-data", "application/x-npy", "application/octet-stream", "text/csv"}
    kinds |= {"image/*"}
    assert set(predict["requestBody"]["content"]) == kinds
    assert {"model", "version", "top_k", "x-prediction-id"} <= {p["name"] for p in predict["parameters"]}
    assert {"200", "400", "413", "415", "422", "503"} <= set(predict["responses"])
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert ALLOWED in str(document) and "PNG or JPEG" not in str(document), "all that is read is named"
    assert running.get("/docs").status_code == 200


def test_two_forms_of_answers_do_not_share_a_name() -> None:
    with pytest.raises(ValueError, match="two forms of answers are named ErrorAnswer; rename one"):
        answer_of(type("ErrorAnswer", (), {}))


def examples(client: Client) -> Iterator[tuple[str, str, str, str, Any]]:
    """Method, path, its example in full, media type and body of every example, and of every call without a body."""
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            names = {p["name"]: p["example"] for p in operation.get("parameters", ()) if p["in"] == "path"}
            for kind, content in operation.get("requestBody", {"content": {"": {}}})["content"].items():
                bodies = [example["value"] for example in content.get("examples", {}).values()]
                for body in bodies if kind else [None]:
                    yield method, path, path.format(**names), kind, body


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "bundle",
    [
        {},
        {"shape": (8, 8, 1), "classes": ("a, b", "c")},
        {"shape": (48, 48, 3), "resized": True},
        {"features": ("length", "width")},
    ],
    ids=str,
)
def test_every_example_is_answered_as_documented(serve: Callable[..., Client], bundle: dict[str, Any]) -> None:
    """All that /docs sends by `Try it out`, nothing changed: the status, the media type and the body are as it says."""
    client, sent = serve(**bundle), Counter[tuple[str, str]]()
    document = client.get("/openapi.json").json()
    others = {
        "/admin/alarm/acknowledge": (409, "nothing_to_acknowledge"),
        "/admin/alarm/rearm": (409, "nothing_to_rearm"),
        "/admin/alarm/groups/acknowledge": (409, "nothing_to_acknowledge"),
        "/admin/alarm/groups/rearm": (409, "nothing_to_rearm"),
        "/admin/labelled.npz": (404, "no_labels"),
        "/multi-label-report": (404, "unknown_model"),
        "/audit": (409, "too_few_labels"),
        "/predictions/{id}": (404, "unknown_id"),
        "POST /label-queue": (409, "nothing_to_draw"),
        "/label-queue/answers": (404, "unknown_id"),
    }  # of a service that nothing was asked before
    for method, path, url, kind, body in examples(client):
        content = body.encode() if isinstance(body, str) else b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": kind} if kind else {}
        answer = client.run(client.http.request(method, url, content=content, headers=headers))
        status, code = others.get(f"{method.upper()} {path}", others.get(path, (200, "")))
        assert answer.status_code == status, f"{path}: {answer.text}"
        media_type = answer.headers["content-type"].partition(";")[0]
        documented = document["paths"][path][method]["responses"][str(status)]["content"][media_type]
        if media_type == JSON:
            value, schema = answer.json(), {**documented["schema"], "components": document["components"]}
            jsonschema_rs.validator_for(schema).validate(value)
            assert not code or value["error"]["code"] == code
            assert not value.get("failed"), f"{path}: {answer.text}"
        sent[path, kind] += 1
    small = bundle.get("shape") != (48, 48, 3)
    infer = {"/v2/models/{model}/infer", "/v2/models/{model}/versions/{version}/infer"} if small else set()
    assert {call: count for call, count in sent.items() if call[1]} == {
        ("/predict", JSON): 2 if "features" in bundle else 3 if small else 1,
        ("/kserve/logger", "application/cloudevents+json"): 2,
        ("/observe", JSON): 4,
        ("/observe", "application/x-ndjson"): 1,
        ("/observe", "text/csv"): 1,
        ("/observe/decisions", JSON): 2,
        ("/observe/decisions", "application/x-ndjson"): 1,
        ("/feedback", JSON): 3,
        ("/feedback", "text/csv"): 1,
        ("/feedback", "application/x-ndjson"): 1,
        ("/admin/alarm/acknowledge", JSON): 1,
        ("/admin/alarm/rearm", JSON): 1,
        ("/admin/alarm/groups/acknowledge", JSON): 2,
        ("/admin/alarm/groups/rearm", JSON): 1,
        ("/admin/recalibration/undecided", JSON): 1,
        ("/admin/labels/void", JSON): 2,
        ("/label-queue", JSON): 1,
        ("/label-queue/lease", JSON): 1,
        ("/label-queue/answers", JSON): 1,
        ("/admin/labels/settle", JSON): 2,
        **{(path, JSON): 1 for path in infer},
    }


def test_the_document_is_made_once_for_each_version(running: Client, tmp_path: Path) -> None:
    first = running.app.openapi()
    assert running.app.openapi() is first and json.loads(running.get("/openapi.json").content) == first
    below = httpx.AsyncClient(transport=httpx.ASGITransport(running.app, root_path="/odds"), base_url="http://service")
    assert running.run(below.get("/odds/openapi.json")).json() == {**first, "servers": [{"url": "/odds"}]}
    models = open_models(tmp_path / "models")
    models.publish(write_bundle(tmp_path / "one"))
    with Client(create_app(Settings(models=tmp_path / "models", store=tmp_path / "s.sqlite", threads=1))) as client:
        before = client.get("/openapi.json").text
        models.publish(write_bundle(tmp_path / "two", seed=7))
        client.run(client.app.state.runtime.registry.look())
        after = client.get("/openapi.json").text
        version = client.app.state.runtime.registry.default.version.version
        assert version in after and version not in before


def test_the_documentation_is_there_before_a_model_is(tmp_path: Path) -> None:
    with Client(create_app(Settings(models=tmp_path / "none", store=tmp_path / "s.sqlite"))) as client:
        assert "/predict" in client.get("/openapi.json").json()["paths"]


def test_documentation_loads_nothing_from_elsewhere(running: Client) -> None:
    page = running.get("/docs").text
    links = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert links and all(link.startswith("/") for link in links)
    assert all(running.get(link).status_code == 200 for link in links)
    assert running.get("/redoc").status_code == 404, "its script fetches a logo from cdn.redoc.ly"
