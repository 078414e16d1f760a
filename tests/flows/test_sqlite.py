"""Prefect's database in one file, written by several at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa


def test_transactions_that_read_and_then_write_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its server takes seconds of each process that collects the tests, so it is loaded here.
    from prefect.server.database.configurations import AioSqliteConfiguration

    from pipeline.flows import prefect_server

    monkeypatch.setattr(
        AioSqliteConfiguration, "begin_transaction", AioSqliteConfiguration.begin_transaction
    )  # put back at the end
    prefect_server.lock_at_once()

    async def count() -> int:
        database = AioSqliteConfiguration(f"sqlite+aiosqlite:///{tmp_path}/prefect.db")
        engine = await database.engine()

        async def add_one() -> None:
            async with await database.session(engine) as session, database.begin_transaction(session):
                n = (await session.execute(sa.text("SELECT n FROM counted"))).scalar_one()
                await asyncio.sleep(0.05)
                await session.execute(sa.text(f"UPDATE counted SET n = {n + 1}"))

        async with await database.session(engine) as session, database.begin_transaction(session):
            await session.execute(sa.text("CREATE TABLE counted (n INTEGER)"))
            await session.execute(sa.text("INSERT INTO counted VALUES (0)"))
        await asyncio.gather(*(add_one() for _ in range(4)))
        async with await database.session(engine) as session:
            n = int((await session.execute(sa.text("SELECT n FROM counted"))).scalar_one())
        await engine.dispose()
        return n

    assert asyncio.run(count()) == 4
