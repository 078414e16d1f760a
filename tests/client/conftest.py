"""A real service process for the client, and a server between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.data import CALIBRATOR, CLASSES, SHAPE
from tests.client.relay import Relay
from tests.service.test_process import server
from tests.service.tiny_bundle import write_bundle
from trueodds.bundle import open_models
from trueodds.client import Client


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    bundle = write_bundle(folder / "bundle", shape=SHAPE, classes=CLASSES, calibrator=CALIBRATOR)
    open_models(folder / "models").publish(bundle)
    return folder


@pytest.fixture(scope="session")
def url(folder: Path) -> Iterator[str]:
    with server(folder) as (http, _):
        yield str(http.base_url).rstrip("/")


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def relay(url: str) -> Iterator[Relay]:
    with Relay(url) as relay:
        yield relay
