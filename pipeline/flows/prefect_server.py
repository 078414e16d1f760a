"""Prefect's server, with two mends of how it uses SQLite. PostgreSQL needs neither.

Cyclic garbage is collected in a thread of its own; otherwise the server stands still.

A failed statement leaves its cursor behind in a cycle. Freeing it takes the lock of its connection. Where Python's
collector does that in the thread of the event loop, while this connection waits for another that is to commit in the
same event loop, the server answers nobody until SQLite gives up after 60 s. Measured with Prefect 3.8 and Python 3.11,
four clients that start runs and write artifacts: two such stand-stills in 90 s without this thread, none with it.

A transaction takes the write lock when it begins; otherwise "database is locked". Prefect begins most as readers.
SQLite refuses a reader that wants to write after another has written, at once, whatever its timeout is.

python -m pipeline.flows.prefect_server [options of prefect server start]
"""

from __future__ import annotations

import gc
import itertools
import runpy
import sys
import threading
import time
from contextlib import AbstractAsyncContextManager

from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

SECONDS = 0.5
"""Between two collections of the youngest objects; every 10th goes up to the second generation, every 100th to all."""


def collect_in_thread(seconds: float = SECONDS) -> threading.Thread:
    """Ends automatic collection in this process; a daemon thread collects instead."""

    def collect() -> None:
        for turn in itertools.count(1):
            time.sleep(seconds)
            gc.collect(2 if turn % 100 == 0 else 1 if turn % 10 == 0 else 0)

    gc.disable()
    thread = threading.Thread(target=collect, name="garbage collection", daemon=True)
    thread.start()
    return thread


def lock_at_once() -> None:
    """Have transactions over SQLite wait for the write lock when they begin, up to Prefect's 60 s."""
    begin = AioSqliteConfiguration.begin_transaction

    def begin_transaction(
        self: AioSqliteConfiguration, session: AsyncSession, with_for_update: bool = True
    ) -> AbstractAsyncContextManager[AsyncSessionTransaction]:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = begin_transaction  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    collect_in_thread()
    lock_at_once()
    sys.argv = ["prefect", "server", "start", *sys.argv[1:]]
    runpy.run_module("prefect", run_name="__main__", alter_sys=True)
