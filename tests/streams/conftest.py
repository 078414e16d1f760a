"""One cluster for the tests of a process, and a service that only watches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.test_process import server
from tests.streams.cluster import REAL, Kafka, cluster


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    with cluster(REAL) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with server(tmp_path_factory.mktemp("service")) as (http, _):
        yield http


@pytest.fixture
def url(service: httpx.Client) -> str:
    return str(service.base_url).rstrip("/")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
