"""mosec as in its documentation: workers that take a batch; with DECODERS, a separate stage decodes.

ORT_DISABLE_TELEMETRY=1 MODEL=model.onnx WORKERS=1 BATCH=32 WAIT_MS=1 DECODERS=0 python mosec_server.py --port 8000

JSON is read and written by orjson, as in our service.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import orjson
from common import BATCH, WAIT_MS, WORKERS, Classifier, Rows, answer, image
from mosec import Server, Worker

DECODERS = int(os.environ.get("DECODERS", "0"))


class _Json(Worker):
    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps(data)


class Decode(_Json):
    """The first of two stages, one request per call."""

    def forward(self, data: Any) -> Rows:
        return image(data["instances"][0])


class Predict(_Json):
    """The second of two stages, or the only one."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = Classifier()

    def forward(self, data: Any) -> Any:
        rows = data if BATCH > 1 else [data]
        images = rows if DECODERS else [self.classifier.row(row["instances"][0]) for row in rows]
        found = [{"predictions": [answer(one)]} for one in self.classifier.probabilities(np.stack(images))]
        return found if BATCH > 1 else found[0]


if __name__ == "__main__":
    server = Server()
    if DECODERS:
        server.append_worker(Decode, num=DECODERS, route="/predict")
    server.append_worker(Predict, num=WORKERS, max_batch_size=BATCH, max_wait_time=int(WAIT_MS), route="/predict")
    server.run()
