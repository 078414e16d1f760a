"""The service over models in a bucket: from an empty disk, through swaps and outages, and back from its cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import buckets
from benchmarks.faults.buckets import URL, Store, served, until_problem
from benchmarks.faults.ledger import Ledger
from benchmarks.faults.process import Service
from pipeline.recalibrate import Recalibration, check_folder
from tests.service.tiny_bundle import CLASSES, SHAPE, write_bundle
from trueodds.bundle import Bundle, open_models
from trueodds.calibrators import Temperature
from trueodds.client import Client

SECONDS = "0.2"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    with Store() as store:
        for name, value in (store.environment | {"TRUEODDS_MODELS_CACHE": str(tmp_path / "mine")}).items():
            monkeypatch.setenv(name, value)
        yield store


@pytest.fixture
def bundles(tmp_path: Path) -> tuple[Path, Path]:
    return tuple(write_bundle(tmp_path / f"{t}", calibrator=Temperature(t)) for t in (1.5, 3.0))  # type: ignore[return-value]


@pytest.fixture
def service(store: Store, tmp_path: Path) -> Iterator[Service]:
    options = ("--models-cache", str(tmp_path / "cache"), "--models-seconds", SECONDS)
    with Service(tmp_path, URL, *options) as service:
        yield service


def until(is_so: Callable[[], object], service: Service) -> None:
    end = time.monotonic() + 300  # as long as a busy machine needs
    while not is_so():
        assert time.monotonic() < end, service.log()[-3000:]
        time.sleep(0.05)


def listed(service: Service) -> Any:
    return service.get("/models").json()


@pytest.mark.full
def test_from_an_empty_disk_to_a_restart_without_the_bucket(
    service: Service, store: Store, bundles: tuple[Path, Path]
) -> None:
    question = {"instances": [[[[9]] * SHAPE[1]] * SHAPE[0]]}
    service.start()
    answer = service.until(503)
    assert service.get("/health/live").status == 200
    assert f"no model yet: {URL}/default does not exist" in answer.json()["error"]["message"]
    first, second = (Bundle.load(bundle) for bundle in bundles)
    models = open_models(URL)
    models.publish(bundles[0])
    assert served(service) == first.version and service.post("/predict", question).status == 200
    check_folder(Recalibration(Client(service.url), models))  # as recalibrate and judge do first
    models.publish(bundles[1], "shadow")
    models.promote("tiny", second.version)
    until(lambda: served(service) == second.version, service)
    store.call("PUT", "/bucket/some/models/tiny/half/model.onnx", b"half")
    store.call("PUT", "/bucket/some/models/tiny/default", b"half")
    until(lambda: store.requests[-2:] == ["GET /bucket"] * 2, service)
    assert served(service) == second.version and listed(service)["problems"] == []

    store.fault = "denies"
    until_problem(service, there=True)
    assert service.post("/predict", question).status == 200
    assert "denies access (AccessDenied)" in listed(service)["problems"][0]
    service.stop()
    assert service.log().count("denies access") == 1
    store.stop()
    service.start()
    assert served(service) == second.version and service.post("/predict", question).status == 200
    assert "cannot be reached" in listed(service)["problems"][0]
    unfetched = service.get(f"/predict?model=tiny&version={first.version}")
    assert unfetched.status in (404, 405)
    store.heal()
    until_problem(service, there=False)
    until(lambda: f"{URL} can be read again" in service.log(), service)


@pytest.mark.full
def test_no_bucket_and_no_cache(service: Service, store: Store, bundles: tuple[Path, Path]) -> None:
    open_models(URL).publish(bundles[0])
    store.stop()
    service.start()
    answer = service.until(503)
    assert service.get("/health/live").status == 200
    message = answer.json()["error"]["message"]
    assert message.startswith(f"not ready: {URL} cannot be reached") and "nothing was fetched before" in message
    store.heal()
    service.until(200)


@pytest.mark.full
def test_faults_under_load(service: Service, store: Store, bundles: tuple[Path, Path], tmp_path: Path) -> None:
    ledger = Ledger(0, len(CLASSES), SHAPE, pause=0.02)
    done = buckets.interrupt(service, ledger, store, bundles, tmp_path / "publisher", 1)
    assert set(done.values()) == {1} and ledger.labels
