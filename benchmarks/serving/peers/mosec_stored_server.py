"""mosec that stores as our service does: a worker commits each batch to SQLite (WAL, synchronous FULL), then answers.

STORE=answers.sqlite MODEL=model.onnx WORKERS=1 BATCH=32 WAIT_MS=1 python mosec_stored_server.py --port 8000
"""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from typing import Any

import numpy as np
from common import BATCH, WAIT_MS, WORKERS
from mosec import Server
from mosec_server import Predict

TABLE = """CREATE TABLE IF NOT EXISTS predictions
(id TEXT PRIMARY KEY, time INTEGER, label INTEGER, confidence REAL, probabilities BLOB) WITHOUT ROWID"""


class StoredPredict(Predict):
    """The only stage. Each answer gets an id, by which a label may come later."""

    def __init__(self) -> None:
        super().__init__()
        self._database = sqlite3.connect(os.environ["STORE"], timeout=30, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(TABLE)

    def forward(self, data: Any) -> Any:
        found = super().forward(data)
        answers, now, rows = found if BATCH > 1 else [found], time.time_ns() // 1_000_000, []
        for one in answers:
            one["id"] = uuid.uuid4().hex
            best = one["predictions"][0]
            probabilities = np.asarray(best["probabilities"], np.float32).tobytes()
            rows.append((one["id"], now, best["index"], best["confidence"], probabilities))
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("INSERT INTO predictions VALUES (?, ?, ?, ?, ?)", rows)
        self._database.execute("COMMIT")
        return found


if __name__ == "__main__":
    server = Server()
    server.append_worker(StoredPredict, num=WORKERS, max_batch_size=BATCH, max_wait_time=int(WAIT_MS), route="/predict")
    server.run()
