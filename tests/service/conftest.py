"""Fixtures: a published bundle, its settings, and applications that serve it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import postgres
from service.app import create_app
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.hooks import Hook
from tests.service.tiny_bundle import write_bundle
from tools import chromium
from tools.chromium import Chromium
from trueodds.bundle import open_models


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    executable = chromium.find()
    assert executable is not None
    with Chromium(executable) as tab:
        yield tab


@pytest.fixture
def tab(browser: Chromium) -> Iterator[Chromium]:
    """A desktop with script, on which nothing may go wrong unseen."""
    browser.open("about:blank")  # what the page before had still under way is not this test's problem
    browser.screen(1200)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    browser.problems.clear()
    yield browser
    assert browser.problems == []


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of tests that are coroutines: that of the service."""
    return "asyncio"


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    """A PostgreSQL of these tests; they are skipped where there is none."""
    if reason := postgres.missing():
        pytest.skip(reason)
    server = postgres.Cluster()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `models` copies: a bundle, and a folder in which it is published."""
    folder = tmp_path_factory.mktemp("published")
    open_models(folder / "models").publish(write_bundle(folder / "bundle"))
    return folder


@pytest.fixture
def models(published: Path, tmp_path: Path) -> Path:
    """A folder with one published bundle, the default."""
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    return tmp_path / "models"


@pytest.fixture
def settings(models: Path, tmp_path: Path) -> Settings:
    return Settings(models=models, store=tmp_path / "store.sqlite", threads=1)


Serve = Callable[..., Client]


@contextmanager
def serving(folder: Path) -> Iterator[Serve]:
    """Serve a bundle written with other options: `serve(shape=(8, 8, 3))`; `limits` are settings."""
    open_clients: list[Client] = []

    def start(limits: dict[str, Any] | None = None, **bundle: Any) -> Client:
        here = folder / f"served-{len(open_clients)}"
        open_models(here / "models").publish(write_bundle(here / "bundle", **bundle))
        settings = Settings(models=here / "models", store=here / "store.sqlite", threads=1, **(limits or {}))
        open_clients.append(Client(create_app(settings)).__enter__())
        return open_clients[-1]

    yield start
    for client in open_clients:
        client.__exit__()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with serving(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def serve_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """For tests that leave nothing in the service's store."""
    with serving(tmp_path_factory.mktemp("served")) as start:
        yield start


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A webhook that takes what it is sent."""
    with Hook() as hook:
        yield hook


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with Client(create_app(settings)) as client:
        yield client
