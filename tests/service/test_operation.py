"""Health, metrics, errors of the framework, failures inside, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline import bundle as bundles
from service import runtime
from service.app import create_app
from service.settings import Settings
from service.store import StoreError
from tests.service.app_client import Client
from tests.service.tiny_bundle import pictures, write_bundle

ROOT = Path(__file__).parents[2]


def test_importing_the_app_loads_no_training_libraries() -> None:
    code = (
        "import sys, service.app, service.__main__;"
        "print([m for m in ('torch', 'prefect', 'dvc', 'matplotlib', 'sklearn') if m in sys.modules],"
        " sorted(m for m in sys.modules if m.startswith('pipeline.') and m.count('.') == 1))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert found.startswith("[] ")
    floor_0 = {"bundle", "calibrators", "config", "errors", "files", "metrics", "pictures"}
    assert {name.split(".")[1] for name in eval(found[3:])} <= floor_0


def test_ready_once_a_bundle_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "LOOK_SECONDS", 0.02)
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
        bundles.publish(write_bundle(tmp_path / "bundle"), settings.models)
        deadline = time.monotonic() + 10
        while client.get("/health/ready").status_code != 200 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert client.get("/health/ready").json()["model"] == "tiny"
        assert len(client.predict(pictures(1))) == 1


def test_a_damaged_bundle_is_not_served(settings: Settings) -> None:
    with (bundles.find_default(settings.models) / bundles.MODEL).open("ab") as file:
        file.write(b"x")
    with Client(create_app(settings)) as client:
        answer = client.get("/health/ready")
        assert answer.status_code == 503
        assert "altered or damaged" in answer.json()["error"]["message"]


def test_metrics(client: Client) -> None:
    ids = [p["id"] for p in client.predict(pictures(3))]
    client.predict(pictures(1))
    client.label([{"id": ids[0], "label": 0}, {"id": ids[1], "label": 0}])
    client.label([{"id": ids[0], "label": 1, "correct": True}])
    client.get("/nothing")
    text = client.get("/metrics").text
    key = f'{{model="tiny",version="{client.report()["version"]}"}}'
    for line in [
        'trueodds_requests_total{route="/predict",status="200"} 2.0',
        'trueodds_requests_total{route="unknown",status="404"} 1.0',
        'trueodds_request_seconds_count{route="/predict"} 2.0',
        "trueodds_batch_images_sum 4.0",
        "trueodds_predictions_total 4.0",
        'trueodds_labels_total{outcome="stored"} 2.0',
        'trueodds_labels_total{outcome="corrected"} 1.0',
        f"trueodds_answers{key} 4.0",
        f"trueodds_labelled{key} 2.0",
        f"trueodds_ece{key} {client.report()['ece']!r}",
    ]:
        assert line in text


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/nothing", 404, "there is no /nothing"),
        ("GET", "/predict", 405, "use POST"),
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


def test_the_unexpected_is_a_500_with_an_id_and_no_trace(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def explode(*_: Any) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(client.app.state.runtime.store, "put_labels", explode)
    answer = client.post("/feedback", json={"id": "x", "label": 0}, headers={"x-request-id": "q7"})
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "q7"
    assert "q7" in answer.json()["error"]["message"]
    assert "secret" not in answer.text


def test_a_failing_store_is_a_503(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: Any) -> None:
        raise StoreError("the store cannot be written: database or disk is full")

    monkeypatch.setattr(client.app.state.runtime.store, "put_predictions", full)
    answer = client.post("/predict", json={"instances": pictures(1)})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "disk is full" in answer.json()["error"]["message"]


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEODDS_MAX_BATCH", "7")
    assert Settings().max_batch == 7
    assert Settings(max_batch=9).max_batch == 9
