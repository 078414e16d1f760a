"""BentoML as in its documentation: a service class, one API for arrays and one for encoded images.

export ORT_DISABLE_TELEMETRY=1 BENTOML_DO_NOT_TRACK=True
MODEL=model.onnx WORKERS=2 BATCH=32 WAIT_MS=1000 python -m bentoml serve bentoml_server:Service --port 8000
"""

from __future__ import annotations

from typing import Annotated, Any

import bentoml
import numpy as np
from bentoml.validators import DType
from common import BATCH, WAIT_MS, WORKERS, Classifier, answer, image

BATCHING: dict[str, Any] = {"batchable": True, "max_batch_size": BATCH, "max_latency_ms": int(WAIT_MS) or 1000}
OPTIONS = BATCHING if BATCH > 1 else {}


@bentoml.service(workers=WORKERS, traffic={"timeout": 60}, logging={"access": {"enabled": False}})
class Service:
    def __init__(self) -> None:
        self.classifier = Classifier()

    @bentoml.api(route="/predict", **OPTIONS)
    def predict(self, instances: Annotated[np.ndarray, DType("uint8")]) -> list[dict[str, Any]]:
        return [answer(row) for row in self.classifier.probabilities(instances)]

    @bentoml.api(route="/predict_png", **OPTIONS)
    def predict_png(self, instances: list[dict[str, str]]) -> list[dict[str, Any]]:
        return [answer(row) for row in self.classifier.probabilities(np.stack([image(i) for i in instances]))]
