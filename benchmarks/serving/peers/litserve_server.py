"""LitServe as in its documentation: decode, (batch,) predict, encode; as many workers as cores if that is fastest.

ORT_DISABLE_TELEMETRY=1 MODEL=model.onnx PORT=8000 WORKERS=2 BATCH=32 WAIT_MS=0 FAST_QUEUE=1 python litserve_server.py
"""

# No `from __future__ import annotations`: LitServe 0.2.19 reads the type of `request` and takes a text for a query.
import os
from typing import Any

import litserve
from common import BATCH, WAIT_MS, WORKERS, Classifier, Rows, answer
from fastapi import Request


class Api(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.classifier = Classifier()

    def decode_request(self, request: Request) -> Rows:
        body: Any = request  # LitServe has parsed it already
        return self.classifier.row(body["instances"][0])

    def predict(self, x: Rows) -> Any:
        found = self.classifier.probabilities(x if BATCH > 1 else x[None])
        return found if BATCH > 1 else found[0]

    def encode_response(self, output: Any) -> dict[str, Any]:
        return {"predictions": [answer(output)]}


if __name__ == "__main__":
    server = litserve.LitServer(
        Api(max_batch_size=BATCH, batch_timeout=WAIT_MS / 1000),
        accelerator="cpu",
        workers_per_device=WORKERS,
        fast_queue=os.environ.get("FAST_QUEUE") == "1",
    )
    server.run(host="127.0.0.1", port=int(os.environ["PORT"]), generate_client_file=False, log_level="warning")
