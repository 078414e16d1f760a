"""A service that only reads, on a real standby that a primary streams to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest

import trueodds
from benchmarks.faults import postgres
from pipeline.cli import doctor
from service.app import create_app
from service.settings import Settings
from service.store import StoreError, open_store
from tests.service.app_client import Client
from tests.service.hooks import until
from tests.service.test_process import server
from tests.service.tiny_bundle import SHAPE
from trueodds.replay import ReplayError
from trueodds.replay.caller import Caller

LABELS = 60
WRITES = (
    ("POST", "/predict"),
    ("POST", "/feedback"),
    ("POST", "/observe"),
    ("POST", "/v2/models/m/infer"),
    ("POST", "/admin/alarm/acknowledge"),
    ("DELETE", "/predictions/x"),
)


def reader_of(address: str, tmp_path: Path) -> Client:
    return Client(create_app(Settings(store=address, models=tmp_path / "none", read_only=True)))


@pytest.fixture(scope="module")
def standby(cluster: postgres.Cluster) -> Iterator[postgres.Cluster]:
    server = postgres.Cluster(cluster)
    yield server
    server.remove()


def images(count: int) -> list[Any]:
    return np.random.default_rng(0).integers(0, 256, (count, *SHAPE)).tolist()  # type: ignore[no-any-return]


def of_store(report: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on who reports: which versions answer is known from the models."""
    return {name: part for name, part in report.items() if name != "known"}


@pytest.mark.full
def test_a_standby_reports_what_the_primary_stores(
    cluster: postgres.Cluster, standby: postgres.Cluster, settings: Settings, tmp_path: Path
) -> None:
    address = cluster.database()
    with ExitStack() as stack:
        primary = stack.enter_context(Client(create_app(settings.model_copy(update={"store": address}))))
        answers = primary.predict(images(LABELS))
        primary.label([{"id": one["id"], "index": k % 2} for k, one in enumerate(answers)])
        until(lambda: primary.report()["alarm"]["nulls"][0]["labels"] == LABELS)
        until(lambda: has_versions(standby.follows(address)))
        reader = stack.enter_context(reader_of(standby.follows(address), tmp_path))
        until(lambda: reader.report()["alarm"]["nulls"][0]["labels"] == LABELS)
        assert of_store(reader.report(by="class")) == of_store(primary.report(by="class"))
        assert [one["role"] for one in reader.report()["known"]] == ["unknown"]

        assert reader.get("/health/ready").json() == {"status": "ready"}
        kept = [line for line in primary.get("/metrics").text.splitlines() if line.startswith("trueodds_answers{")]
        scraped = reader.get("/metrics").text.splitlines()
        assert kept and set(kept) <= set(scraped) and "trueodds_read_only 1.0" in scraped
        stored = reader.get(f"/predictions/{answers[0]['id']}")
        assert stored.json() == primary.get(f"/predictions/{answers[0]['id']}").json() and stored.status_code == 200
        page = reader.get("/calibration-report", headers={"accept": "text/html"}).text
        assert 'method="post"' not in page
        document = reader.get("/openapi.json").json()["paths"]
        assert "/calibration-report" in document and "/predict" not in document

        for method, path in WRITES:
            refused = reader.run(reader.http.request(method, path, json={}))
            assert refused.status_code == 403 and "read-only" in refused.text, refused.text
        assert primary.report()["answers"] == LABELS

        with pytest.raises(StoreError, match=r"accepts no writes.*--read-only"):
            asyncio.run(open_store(standby.follows(address)))


async def test_a_reader_makes_no_tables(cluster: postgres.Cluster) -> None:
    address = cluster.database()
    with pytest.raises(StoreError, match="has no TrueOdds tables"):
        await open_store(address, read_only=True)
    connection = await asyncpg.connect(address)
    assert not await connection.fetch("SELECT 1 FROM pg_tables WHERE schemaname = current_schema()")
    await connection.close()
    with pytest.raises(StoreError, match=r"accepts no writes.*--read-only"):
        await open_store(f"{address}&default_transaction_read_only=on")


@pytest.mark.full
def test_from_the_command_line(cluster: postgres.Cluster, tmp_path: Path) -> None:
    address = cluster.database()
    with server(tmp_path, "--store", address) as (client, _):
        made = client.post("/predict", json={"instances": []})
        assert made.status_code == 503  # no model; the tables are made
    with server(tmp_path, "--store", address, "--read-only") as (client, process):
        assert client.get("/health/ready").json() == {"status": "ready"}
        assert client.post("/predict", json={"instances": []}).status_code == 403
        url = str(client.base_url)
        reader = trueodds.Client(url)
        assert reader.ready() is None and reader.models() == []
        assert doctor.service(reader, expected=True).state == "ok"
        with Caller(url) as caller, pytest.raises(ReplayError, match="answers no predictions"):
            caller.signature()
        process.terminate()
        assert process.wait(60) == 0


async def test_a_reader_of_a_database_that_takes_no_writes(cluster: postgres.Cluster, tmp_path: Path) -> None:
    address = cluster.database()
    await (await open_store(address)).close()
    with reader_of(f"{address}&default_transaction_read_only=on", tmp_path) as reader:
        assert reader.get("/health/ready").status_code == 200
        empty = reader.get("/calibration-report")
        assert empty.status_code == 503 and "read-only" in empty.json()["error"]["message"]
        with pytest.raises(StoreError, match="opened read-only"):
            reader.run(reader.app.state.runtime.store.prune(1))


def test_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="postgresql:// URL"):
        asyncio.run(open_store(str(tmp_path / "store.sqlite"), read_only=True))
    assert not (tmp_path / "store.sqlite").exists()


def has_versions(address: str) -> bool:
    """Whether what the primary has stored has arrived."""

    async def look() -> bool:
        try:
            store = await open_store(address, read_only=True)
        except StoreError:
            return False
        try:
            return bool(await store.read_versions())
        finally:
            await store.close()

    return asyncio.run(look())
