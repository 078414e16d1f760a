"""Requests that share a batch: what is wrong with one of them fails that one alone, over HTTP and with real stores."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from service.app import create_app
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.tiny_bundle import SHAPE, pictures, write_bundle
from trueodds.bundle import open_models

BLACK = [[[[0]] * SHAPE[1]] * SHAPE[0]]


@pytest.fixture(autouse=True)
def _undivided(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that waits is one batch, which can be held: the event loop scores nothing itself."""
    monkeypatch.setattr("service.models.lanes.FEW", 64)
    monkeypatch.setattr("service.models.loader.INLINE_SECONDS", 0.0)
    monkeypatch.setattr("service.models.loader.ONE_CORE_SECONDS", 0.0)


def answers_of_one_batch(
    client: Client, bodies: list[dict[str, Any]], meanwhile: Callable[[], None] = lambda: None
) -> list[httpx.Response]:
    """Each body is a call of its own; the model takes them together, after another call and what is done meanwhile."""
    engine = client.app.state.runtime.registry.default
    score, waits, go, sizes = engine._batchers[0]._score, threading.Event(), threading.Event(), []

    def held(batch: list[Any], alone: bool) -> Any:
        sizes.append(len(batch))
        waits.set()
        go.wait(10)
        return score(batch, alone)

    async def call() -> list[httpx.Response]:
        first = asyncio.create_task(client.http.post("/predict", json={"instances": pictures(1)}))
        assert await asyncio.to_thread(waits.wait, 10)
        calls = [asyncio.create_task(client.http.post("/predict", json=body)) for body in bodies]
        while len(engine._batchers[0]._queue) < len(bodies):
            await asyncio.sleep(0.001)
        meanwhile()
        go.set()
        await first
        return await asyncio.gather(*calls)

    engine._batchers[0]._score = held
    answers = client.run(call())
    assert sizes[:2] == [1, len(bodies)]
    engine._batchers[0]._score = score
    return answers


def bodies(bad: dict[str, Any]) -> list[dict[str, Any]]:
    """Five calls with eight images, and one more that `bad` is said of."""
    good: list[dict[str, Any]] = [{"instances": pictures(1 + k % 3, seed=k)} for k in range(5)]
    good[4]["ids"] = ["own-a", "own-b"]
    return [*good[:2], {"instances": pictures(1), **bad}, *good[2:]]


def check_stored(client: Client, answers: list[httpx.Response], bad: int) -> None:
    """All but the third call are answered and stored once; that one is not."""
    assert [answer.status_code for answer in answers] == [200, 200, bad, 200, 200, 200]
    ids = [p["id"] for answer in answers if answer.is_success for p in answer.json()["predictions"]]
    assert len(set(ids)) == 9 and {"own-a", "own-b"} < set(ids)
    assert client.label([{"id": id_, "index": 0} for id_ in ids])["stored"] == 9
    report = client.report()
    assert (report["answers"], report["labelled"]) == (10, 9)


def test_an_image_that_the_model_has_no_answer_for(tmp_path: Path) -> None:
    open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle", relative=True))
    with Client(
        create_app(Settings(models=tmp_path / "models", store=str(tmp_path / "s.sqlite"), threads=1))
    ) as client:
        check_stored(client, answers_of_one_batch(client, bodies({"instances": BLACK})), 422)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_rows_that_the_database_refuses(
    request: pytest.FixtureRequest, models: Path, tmp_path: Path, kind: str
) -> None:
    store = str(tmp_path / "s.sqlite") if kind == "sqlite" else request.getfixturevalue("cluster").database()
    with Client(create_app(Settings(models=models, store=store, threads=1))) as client:
        if kind == "sqlite":
            with sqlite3.connect(store) as db:
                db.execute(
                    "CREATE TRIGGER picky BEFORE INSERT ON predictions WHEN NEW.tag = 'bad'"
                    " BEGIN SELECT RAISE(ABORT, 'refused'); END"
                )
        else:
            client.run(forbid_a_tag(store))
        answers = answers_of_one_batch(client, bodies({"tags": ["bad"]}))
        check_stored(client, answers, 503)
        assert answers[2].json()["error"]["code"] == "store_unavailable"


async def forbid_a_tag(address: str) -> None:
    connection = await asyncpg.connect(address)
    await connection.execute("ALTER TABLE predictions ADD CONSTRAINT picky CHECK (tag <> 'bad')")
    await connection.close()


@pytest.mark.parametrize(
    ("damage", "status"), [("DELETE FROM versions", 503), ("UPDATE predictions SET logits = x'0000'", 500)]
)
def test_a_damaged_answer_to_an_own_id(
    models: Path, settings: Settings, tmp_path: Path, damage: str, status: int
) -> None:
    """It cannot be repeated; the new answers beside it can be given."""
    repeated = {"instances": pictures(1), "ids": ["order-1"]}
    with Client(create_app(settings)) as client:
        assert client.post("/predict", json=repeated).is_success
    with sqlite3.connect(settings.store) as db:
        db.execute(damage)
    open_models(models).publish(write_bundle(tmp_path / "newer", seed=1))
    with Client(create_app(settings)) as client:
        check_stored(client, answers_of_one_batch(client, bodies(repeated)), status)


def test_a_failing_store_is_asked_once_for_a_batch(client: Client, settings: Settings) -> None:
    """Not once for each request: a store in trouble would get many times the work."""
    store, path, jobs = client.app.state.runtime.store, Path(settings.store), []
    database = store.database
    commit = database._commit

    def counted(group: list[Any]) -> Any:
        outcomes = commit(group)  # jobs that were queued meanwhile join the group
        jobs.extend(group)
        return outcomes

    def lose() -> None:
        path.rename(path.with_suffix(".aside"))
        database._commit = counted

    client.predict(pictures(1))  # the store knows the version from now on, and need not read it
    answers = answers_of_one_batch(client, bodies({}), lose)
    assert [answer.status_code for answer in answers] == [503] * 6
    assert all("was deleted or replaced" in answer.json()["error"]["message"] for answer in answers)
    assert len(jobs) == 2  # of the first call, and of the six
    path.with_suffix(".aside").rename(path)
    client.predict(pictures(1))
    assert client.report()["answers"] == 2
