"""Both stores: each test of the contract runs on a SQLite file and on a database of a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.faults.postgres import Cluster
from service.store import Store, open_store

SECONDS = 60
"""Time after which a test that waits for a store is ended."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store is."""
    if request.param == "sqlite":
        return str(tmp_path / "store.sqlite")
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.database()


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Store]:
    store = await open_store(address)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(address: str) -> AsyncIterator[Store]:
    """An open store. The test has a minute from here on."""
    async with asyncio.timeout(SECONDS), opened(address) as store:
        yield store


@pytest.fixture
async def other(address: str, store: Store) -> AsyncIterator[Store]:
    """A second store on the database of `store`, as another worker has it."""
    async with opened(address) as other:
        yield other


@pytest.fixture
async def third(address: str, other: Store) -> AsyncIterator[Store]:
    async with opened(address) as third:
        yield third
