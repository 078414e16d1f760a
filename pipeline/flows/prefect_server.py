"""Prefect's server with two fixes for its use of SQLite. PostgreSQL needs neither.

1. Cyclic garbage is collected in a thread of its own. Otherwise the server can freeze. A failed statement leaves its
   cursor behind in a reference cycle. Freeing it takes the lock of its connection. If Python's collector does that in
   the thread of the event loop while the connection waits for a commit that needs the same event loop, the server
   answers nobody until SQLite gives up after 60 s. Measured with Prefect 3.8, Python 3.11 and four clients that start
   runs and write artifacts: two such freezes in 90 s without this thread, none with it. 2. A transaction takes the
   write lock when it begins. Otherwise "database is locked" errors occur. Prefect begins most transactions as readers.
   SQLite refuses a reader that wants to write after another write at once, whatever its timeout.

Usage: `python -m pipeline.flows.prefect_server [options of prefect server start]`.
"""

from __future__ import annotations

import gc
import itertools
import runpy
import signal
import sys
import threading
import time
from contextlib import AbstractAsyncContextManager

from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

SECONDS = 0.5
"""Seconds between two collections of the youngest objects. Every 10th includes generation 1, every 100th all."""


def collect_in_thread(seconds: float = SECONDS) -> threading.Thread:
    """Stop automatic garbage collection in this process and collect in a daemon thread instead."""

    def collect() -> None:
        for turn in itertools.count(1):
            time.sleep(seconds)
            gc.collect(2 if turn % 100 == 0 else 1 if turn % 10 == 0 else 0)

    gc.disable()
    thread = threading.Thread(target=collect, name="garbage collection", daemon=True)
    thread.start()
    return thread


def lock_at_once() -> None:
    """Make transactions on SQLite wait for the write lock when they begin, up to Prefect's 60 s."""
    begin = AioSqliteConfiguration.begin_transaction

    def begin_transaction(
        self: AioSqliteConfiguration, session: AsyncSession, with_for_update: bool = True
    ) -> AbstractAsyncContextManager[AsyncSessionTransaction]:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = begin_transaction  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in worker.py
    collect_in_thread()
    lock_at_once()
    sys.argv = ["prefect", "server", "start", *sys.argv[1:]]
    runpy.run_module("prefect", run_name="__main__", alter_sys=True)
