"""Both stores: each test of the contract runs on a SQLite file and on a database of a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from benchmarks.faults.postgres import Cluster
from service.store import open_store

T = TypeVar("T")


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store is."""
    if request.param == "sqlite":
        return str(tmp_path / "store.sqlite")
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.database()


Run = Callable[[Callable[..., Awaitable[T]]], T]


@pytest.fixture
def run(address: str) -> Run[object]:
    """`run(test)`: `await test(store, ...)` with as many open stores as it has parameters, all on one database."""

    def start(test: Callable[..., Awaitable[T]]) -> T:
        async def main() -> T:
            count = test.__code__.co_argcount
            stores = [await open_store(address) for _ in range(count)]
            try:
                return await asyncio.wait_for(test(*stores), 60)
            finally:
                for store in stores:
                    await store.close()

        return asyncio.run(main())

    return start
