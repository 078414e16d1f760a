"""Health, metrics, errors of the framework, failures inside, and what importing costs."""

from __future__ import annotations

import asyncio
import platform
import re
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime as ort
import psutil
import pytest

from service.app import create_app
from service.models import registry
from service.settings import Settings
from service.store import StoreError
from service.store.rows import PredictionBatch
from tests.service.app_client import Client
from tests.service.tiny_bundle import pictures, write_bundle
from trueodds.bundle import MODEL, open_models

JSON = {"content-type": "application/json"}
ROOT = Path(__file__).parents[2]


def test_importing_the_app_loads_no_training_libraries() -> None:
    """Nor parts of scipy that the first report needs: scipy.special was an eighth of a service's start."""
    code = (
        "import sys, service.app, service.cli.serving;"
        "print(*{'torch', 'prefect', 'dvc', 'matplotlib', 'sklearn', 'pipeline', 'scipy.special', 'scipy.optimize'}"
        " & set(sys.modules))"
    )
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output.strip() == ""


def test_ready_once_a_bundle_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LOOK_SECONDS", 0.02)
    settings = Settings(models=tmp_path / "models", store=tmp_path / "s.sqlite", threads=1)
    with Client(create_app(settings)) as client:
        assert client.get("/health/live").json() == {"status": "live"}
        for method, path, body in [
            ("GET", "/health/ready", None),
            ("POST", "/predict", {"instances": pictures(1)}),
            ("GET", "/calibration-report", None),
        ]:
            answer = client.run(client.http.request(method, path, json=body))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert "no model yet" in answer.json()["error"]["message"]
        open_models(settings.models).publish(write_bundle(tmp_path / "bundle"))
        deadline = time.monotonic() + 60
        while client.get("/health/ready").status_code != 200 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert client.get("/health/ready").json()["model"] == "tiny"
        assert len(client.predict(pictures(1))) == 1


def test_a_damaged_bundle_is_not_served(settings: Settings) -> None:
    with (open_models(settings.models).default() / MODEL).open("ab") as file:
        file.write(b"x")
    with Client(create_app(settings)) as client:
        answer = client.get("/health/ready")
        assert answer.status_code == 503
        assert "altered or damaged" in answer.json()["error"]["message"]


def test_metrics(client: Client) -> None:
    ids = [p["id"] for p in client.predict(pictures(3))]
    client.predict(pictures(1))
    client.label([{"id": ids[0], "index": 0}, {"id": ids[1], "index": 0}])
    client.label([{"id": ids[0], "index": 1, "correct": True}])
    assert client.post("/feedback", json={"id": "f" * 36, "index": 1}).status_code == 404
    client.get("/nothing")
    text = client.get("/metrics").text
    key = f'{{model="tiny",version="{client.report()["version"]}"}}'
    version = client.report()["version"]
    for line in [
        f'trueodds_requests_total{{model="tiny",route="/predict",status="200",version="{version}"}} 2.0',
        'trueodds_requests_total{model="",route="unknown",status="404",version=""} 1.0',
        f'trueodds_request_seconds_count{{model="tiny",route="/predict",version="{version}"}} 2.0',
        f"trueodds_batch_images_sum{key} 4.0",
        f"trueodds_predictions_total{key} 4.0",
        f"trueodds_queue_images{key} 0.0",
        'trueodds_labels_total{outcome="stored"} 2.0',
        'trueodds_labels_total{outcome="corrected"} 1.0',
        'trueodds_labels_total{outcome="unmatched"} 1.0',
        'trueodds_bundle_loads_total{outcome="loaded"} 1.0',
        f'trueodds_version_ready{{model="tiny",role="default",version="{version}"}} 1.0',
        f"trueodds_answers{key} 4.0",
        f"trueodds_labelled{key} 2.0",
        f"trueodds_calibration_ece{key} {client.report()['ece']!r}",
        f"trueodds_label_coverage{key} 0.5",
    ]:
        assert line in text
    (build,) = re.findall(r"trueodds_build_info{(.+)} 1.0", text)
    versions = {"numpy": np.__version__, "onnxruntime": ort.__version__, "version": client.app.version}
    versions["python"] = platform.python_version()
    assert dict(re.findall(r'(\w+)="(.+?)"', build)) == versions


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="process metrics are read from /proc")
def test_what_the_process_takes_from_the_machine(client: Client) -> None:
    numbers = dict(re.findall(r"^(process_\w+) (\S+)$", client.get("/metrics").text, re.MULTILINE))
    process = psutil.Process()
    assert float(numbers["process_resident_memory_bytes"]) == pytest.approx(process.memory_info().rss, rel=0.2)
    assert float(numbers["process_start_time_seconds"]) == pytest.approx(process.create_time(), abs=2)
    assert 0 < float(numbers["process_cpu_seconds_total"]) <= sum(process.cpu_times()[:2]) + 0.02
    assert 0 < float(numbers["process_open_fds"]) <= float(numbers["process_max_fds"])


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/nothing", 404, "the path /nothing does not exist"),
        (
            "POST",
            "/predict/",
            404,
            "Paths do not end with a slash: try /predict",
        ),
        ("GET", "/predict", 405, "use OPTIONS, POST"),
        ("PUT", "/metrics", 405, ""),
    ],
)
def test_the_frameworks_own_errors_have_the_same_body(
    client: Client, method: str, path: str, status: int, words: str
) -> None:
    answer = client.run(client.http.request(method, path))
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]
    assert answer.json()["error"]["code"] in ("not_found", "method_not_allowed")
    assert answer.headers["x-request-id"]


def test_no_redirect_leads_to_a_host_that_the_caller_names(client: Client) -> None:
    paths = [*client.app.openapi()["paths"], "/docs", "/redoc", "/static-offline-docs"]
    paths += [f"{path}/" for path in paths]
    assert len(paths) > 30
    for path in paths:
        answer = client.get(path.replace("{", "").replace("}", ""), headers={"host": "evil.example"})
        assert "evil" not in str(answer.headers), path
    assert client.get("/", headers={"host": "evil.example"}).headers["location"] == "/docs"


@pytest.mark.parametrize("path", ["/health/ready", "/metrics", "/calibration-report", "/v2/models/tiny", "/docs"])
def test_head_is_get_without_the_body(client: Client, path: str) -> None:
    answer, head = client.get(path), client.run(client.http.head(path))
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == answer.headers["content-type"]


def test_ready_only_while_the_store_can_be_written(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full() -> None:
        raise StoreError("the store cannot be written: disk full")

    monkeypatch.setattr(client.app.state.runtime.store, "ping", full)
    for path in ("/health/ready", "/v2/health/ready"):
        answer = client.get(path)
        assert answer.status_code == 503 and "disk full" in answer.text


def test_an_answer_that_takes_too_long_is_given_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    with Client(create_app(settings.model_copy(update={"answer_seconds": 0.5}))) as client:
        store = client.app.state.runtime.store
        put = store.put_predictions

        async def held(batch: PredictionBatch) -> Any:
            await asyncio.to_thread(go.wait, 10)
            return await put(batch)

        monkeypatch.setattr(store, "put_predictions", held)
        answer = client.post("/predict", json={"instances": pictures(1)})
        go.set()
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "more than 0.5 s" in answer.text
        assert len(client.predict(pictures(1))) == 1


def test_a_large_hostile_body_is_refused_before_it_is_read(client: Client) -> None:
    """16 MB of what is slowest to read: reading these four would take 5 s of processor time, none of it for others."""
    size = 16 * 1024**2 - 100
    bodies = [
        b'{"instances":[' + b"[]," * (size // 3) + b"[]]}",
        b'{"instances":[' + b"[0,0,0]," * (size // 8) + b"[]]}",
        b"{" + b",".join(b'"%d":0' % k for k in range(1_200_000)) + b"}",
        b'{"instances":[' + b'"",' * (size // 3) + b'""]}',
    ]
    before = time.process_time()
    answers = [client.post("/predict", content=body, headers=JSON) for body in bodies]
    assert time.process_time() - before < 1
    assert [answer.status_code for answer in answers] == [413] * 4
    assert answers[0].json()["error"]["code"] == "too_many_values"


def test_the_unexpected_is_a_500_with_an_id_and_no_trace(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def explode(*_: Any) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(client.app.state.runtime.store, "put_labels", explode)
    answer = client.post("/feedback", json={"id": "x", "index": 0}, headers={"x-request-id": "q7"})
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "q7"
    assert "q7" in answer.json()["error"]["message"]
    assert "secret" not in answer.text


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEODDS_MAX_BATCH", "7")
    assert Settings().max_batch == 7
    assert Settings(max_batch=9).max_batch == 9


@pytest.mark.parametrize("path", ["/predict", "/v2/models/tiny/infer"])
def test_below_a_prefix_the_framework_finds_the_same_routes(client: Client, path: str) -> None:
    """The short way of `FastRoutes` knows whole paths only; a proxy that keeps its prefix takes the long one."""
    instance = np.zeros((4, 4, 1), int).tolist()
    tensor = {"name": "images", "shape": [1, 4, 4, 1], "datatype": "UINT8", "data": [0] * 16}
    bodies: list[dict[str, Any]] = [{"instances": [instance]}, {"inputs": [tensor]}, {"wrong": 1}]

    async def ask(root: str) -> list[tuple[int, Any]]:
        transport = httpx.ASGITransport(client.app, root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            answers = [await http.post(root + path, json=body) for body in bodies]
        return [(a.status_code, a.json().get("error") or sorted(a.json())) for a in answers]

    short, long = client.run(ask("")), client.run(ask("/odds"))
    assert short == long
    assert sorted(status for status, _ in short) == [200, 422, 422]
    counted = re.findall(
        r'trueodds_requests_total\{model="tiny",route="([^"]+)",status="200"', client.get("/metrics").text
    )
    assert counted == ["/predict" if path == "/predict" else "/v2/models/{model}/infer"], "both ways under one name"


def test_a_store_that_fails_is_told_in_the_form_that_was_asked_for(client: Client, settings: Settings) -> None:
    """A browser that asks for the report gets a page, everybody else JSON, the Open Inference Protocol its own."""
    (prediction,) = client.predict(pictures(1))
    with closing(sqlite3.connect(settings.store)) as db:
        db.execute("DROP TABLE predictions")
        db.execute("ALTER TABLE versions RENAME TO elsewhere")
    tensor = {"name": "images", "shape": [1, 4, 4, 1], "datatype": "UINT8", "data": [0] * 16}
    for answer in (
        client.post("/predict", json={"instances": pictures(1)}),
        client.post("/feedback", json={"id": prediction["id"], "index": 0}),
        client.get("/calibration-report"),
        client.get("/metrics", headers={"accept": "text/html"}),
        client.post("/v2/models/tiny/infer", json={"inputs": [tensor]}),
        client.get("/calibration-report", headers={"accept": "text/html"}),
    ):
        assert answer.status_code == 503 and "no such table" in answer.text, answer.text
        code = "store_unavailable" if answer.headers.get("retry-after") == "1" else "store_damaged"
        if answer.request.url.path.startswith("/v2"):
            assert isinstance(answer.json()["error"], str)
        elif answer.headers["content-type"] == "application/json":
            assert answer.json()["error"]["code"] == code
    assert answer.headers["content-type"].startswith("text/html") and "<h1" in answer.text


STATIC = "/static-offline-docs/swagger-ui.css"


def test_every_path_names_all_its_methods(client: Client) -> None:
    """In a 405 and to OPTIONS, at every documented path and at those that are not documented."""
    paths: dict[str, Any] = client.get("/openapi.json").json()["paths"]
    documented = {path: {method.upper() for method in methods} for path, methods in paths.items()}
    others = {path: {"GET"} for path in ("/", "/docs", "/openapi.json", STATIC)}
    for path, methods in (documented | others).items():
        url = path.format(model="tiny", version="v", id="x")
        every = {*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}
        asked, refused = (client.run(client.http.request(method, url)) for method in ("OPTIONS", "PATCH"))
        assert (asked.status_code, asked.content, refused.status_code) == (204, b"", 405), path
        assert set(asked.headers["allow"].split(", ")) == every == set(refused.headers["allow"].split(", ")), path
    assert client.run(client.http.request("OPTIONS", "/nothing")).status_code == 404
