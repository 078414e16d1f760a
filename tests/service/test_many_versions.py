"""Many versions: a scrape of bounded size. A service that only reads lists what the store knows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.faults import postgres
from service.app import create_app
from service.settings import Settings
from service.status import gauges
from service.store import open_store
from tests.service.app_client import Client
from tests.service.store.rows import HOUR, START, batch, version
from trueodds.bundle.contents import shadow_of


async def write(address: str, count: int) -> None:
    """As many versions, the first of which has the latest answers."""
    store = await open_store(address)
    for number in range(count):
        of = version(f"v{number}")
        await store.put_version(of)
        await store.put_predictions(batch(2, of, now=START - number * HOUR))
    await store.compact()
    await store.close()


def test_only_the_active_versions_have_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "MOST_VERSIONS", 3)
    address = str(tmp_path / "store.sqlite")
    asyncio.run(write(address, 8))
    with Client(create_app(Settings(store=address, models=str(tmp_path / "none")))) as client:
        lines = client.get("/metrics").text.splitlines()
        assert "trueodds_versions_left_out 5.0" in lines
        shown = [line for line in lines if line.startswith("trueodds_answers{")]
        assert [f'version="v{number}"' in line for number, line in enumerate(shown)] == [True] * 3
        runtime_store = client.app.state.runtime.store
        client.run(runtime_store.put_predictions(batch(1, version("v7"), now=START - 100 * HOUR)))
        shown = [line for line in client.get("/metrics").text.splitlines() if line.startswith("trueodds_answers{")]
        assert any('version="v7"' in line for line in shown) and len(shown) == 3


async def test_a_service_that_only_reads_lists_what_the_store_knows(cluster: postgres.Cluster, tmp_path: Path) -> None:
    address = cluster.database()
    await write(address, 2)
    store = await open_store(address)
    await store.put_version(version("v9", shadow_of("m")))
    await store.close()
    with Client(create_app(Settings(store=address, models=str(tmp_path / "none"), read_only=True))) as reader:
        listed = reader.get("/models").json()
        (model,) = listed["models"]
        assert (model["model"], model["default"], model["shadow"]) == ("m", None, None)
        rows = [(row["version"], row["state"], row["meant_as"]) for row in model["versions"]]
        assert rows == [("v0", "stored", []), ("v1", "stored", []), ("v9", "stored", ["shadow"])]
        assert [one["role"] for one in reader.report(model="m", version="v0")["known"]] == ["unknown"] * 2 + ["unknown"]
