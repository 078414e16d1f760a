"""onnxruntime alone, in process, without HTTP, JSON and storage. Prints a line of JSON.

ORT_DISABLE_TELEMETRY=1 MODEL=model.onnx SPINNING=1 python raw_onnxruntime.py <images per call> <seconds>
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from common import Classifier


def main(batch: int, seconds: float) -> None:
    classifier = Classifier()
    images_NHWC = np.random.default_rng(0).integers(0, 256, (batch, 32, 32, 3), np.uint8)
    for _ in range(3):
        classifier.logits(images_NHWC)
    times, begin = [], time.perf_counter()
    while (now := time.perf_counter()) - begin < seconds:
        classifier.logits(images_NHWC)
        times.append(time.perf_counter() - now)
    p50, p99 = 1e3 * np.quantile(times, [0.5, 0.99])
    found = {"requests": batch * len(times), "seconds": time.perf_counter() - begin, "failed": 0, "broken": 0}
    print(json.dumps({**found, "p50_ms": p50, "p99_ms": p99, "max_ms": 1e3 * max(times)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
