"""Prefect's server, with cyclic garbage collected in a thread of its own; otherwise it stands still over SQLite.

A failed statement leaves its cursor behind in a cycle. Freeing it takes the lock of its connection. Where Python's
collector does that in the thread of the event loop, while this connection waits for another that is to commit in the
same event loop, the server answers nobody until SQLite gives up after 60 s. Measured with Prefect 3.8 and Python 3.11,
four clients that start runs and write artifacts: two such stand-stills in 90 s without this thread, none with it.

python -m pipeline.flows.prefect_server [options of prefect server start]
"""

from __future__ import annotations

import gc
import itertools
import runpy
import sys
import threading
import time

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


if __name__ == "__main__":
    collect_in_thread()
    sys.argv = ["prefect", "server", "start", *sys.argv[1:]]
    runpy.run_module("prefect", run_name="__main__", alter_sys=True)
