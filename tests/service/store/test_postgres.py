"""PostgreSQL by itself: a server that goes away and comes back, and words for what cannot be opened."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import asyncpg
import pytest

from benchmarks.faults import postgres
from service.store import StoreError, open_store
from service.store.databases.schema import VERSION
from tests.service.store.rows import batch, version


@pytest.fixture
def own_cluster() -> Iterator[postgres.Cluster]:
    """One that a test may stop."""
    if reason := postgres.missing():
        pytest.skip(reason)
    own = postgres.Cluster()
    yield own
    own.remove()


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_restarts_under_load(
    own_cluster: postgres.Cluster, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls fail with StoreError while it is gone, nothing acknowledged is lost, and the store goes on by itself."""
    address = own_cluster.database()

    async def main() -> None:
        store = await open_store(address)
        await store.put_version(version())
        acknowledged: list[str] = []
        failed: list[str] = []
        stopped = asyncio.Event()

        async def client(seed: int) -> None:
            while not stopped.is_set():
                answers = batch(3, seed=seed)
                try:
                    await store.put_predictions(answers)
                    acknowledged.extend(answers.ids)
                except StoreError as error:
                    failed.append(str(error))
                    await asyncio.sleep(0.01)

        clients = [asyncio.create_task(client(seed)) for seed in range(4)]
        await asyncio.sleep(0.3)
        await asyncio.to_thread(own_cluster.stop, number)
        with pytest.raises(StoreError, match="cannot be reached"):
            await store.ping()
        while not failed:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(own_cluster.start)
        before = len(acknowledged)
        while len(acknowledged) < before + 30:
            await asyncio.sleep(0.01)
        stopped.set()
        await asyncio.gather(*clients)
        await store.ping()
        assert set(await store.read_answers("m", acknowledged)) == set(acknowledged)
        sums = await store.read_sums("m", "v1")
        assert len(acknowledged) <= sums.answers <= len(acknowledged) + 3 * len(failed)
        assert all("postgresql://trueodds@127.0.0.1" in words for words in failed)
        await store.close()

    asyncio.run(asyncio.wait_for(main(), 300))
    assert [record.message for record in caplog.records if record.exc_info] == []


def test_words_for_what_cannot_be_opened(cluster: postgres.Cluster) -> None:
    address = cluster.database()
    for url, words in [
        ("postgresql://me:secret@127.0.0.1:1/x", r"the store postgresql://me@127.0.0.1:1/x cannot be opened"),
        (address.replace("/postgres?", "/nothing?"), r'database "nothing" does not exist'),
        (address.replace("trueodds@", "me:secret@"), r'role "me" does not exist'),
        ("postgresql://me:secret@[::1/x", "cannot be opened"),
    ]:
        with pytest.raises(StoreError, match=words) as refused:
            asyncio.run(open_store(url))
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("version", [4, VERSION + 1])
async def test_another_schema_is_refused_and_left_alone(cluster: postgres.Cluster, version: int) -> None:
    address = cluster.database()
    await (await open_store(address)).close()
    connection = await asyncpg.connect(address)
    await connection.execute("UPDATE trueodds_schema SET version = $1", version)
    for _ in range(2):
        words = f"has schema version {version}; this release reads version {VERSION}. Use the release that"
        with pytest.raises(StoreError, match=words):
            await open_store(address)
    assert await connection.fetchval("SELECT version FROM trueodds_schema") == version
    await connection.close()


@pytest.mark.full
async def test_a_server_that_takes_no_writes_is_not_ready(own_cluster: postgres.Cluster) -> None:
    address = own_cluster.database()
    store = await open_store(address)
    await store.ping()
    connection = await asyncpg.connect(address)
    await connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
    for _ in range(100):  # each process of the server reads its settings when it is next idle
        try:
            await store.ping()
        except StoreError as error:
            assert "accepts no writes" in str(error)
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail("still ready")
    await store.close()
