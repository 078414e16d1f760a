"""Answers of an invented version, and statements as work, for benchmarks of a store."""

from __future__ import annotations

import numpy as np

from service.ids import new_ids
from service.store.rows import PredictionBatch, Version
from service.store.work.statements import Insert, Work
from trueodds.calibrators import Temperature
from trueodds.metrics import softmax

VERSION = Version("benchmark", "v1", tuple(f"class {k}" for k in range(100)), Temperature(1.7), {})
START = 1_700_000_000_000
YEAR = 365 * 24


def batch(count: int, now: int, rng: np.random.Generator) -> PredictionBatch:
    """Return answers of 100 classes, half of them very confident."""
    logits_NC = rng.normal(0, 1.2, (count, 100)).astype(np.float32)
    logits_NC[:, 3] += rng.normal(9.9, 5.6, count).clip(0)
    logits_NC -= logits_NC.max(axis=1, keepdims=True)
    probabilities_NC = VERSION.calibrator(logits_NC)
    index_N, row_N = probabilities_NC.argmax(axis=1), np.arange(count)
    return PredictionBatch(
        model=VERSION.model,
        version=VERSION.version,
        created_ms_N=np.full(count, now),
        ids=new_ids(count, now),
        request_ids=["request"] * count,
        logits_NC=logits_NC,
        probabilities_NC=probabilities_NC,
        index_N=index_N,
        raw_confidence_N=softmax(logits_NC.astype(np.float64))[row_N, index_N],
        confidence_N=probabilities_NC[row_N, index_N],
        digests=[None] * count,
        tags=[None] * count,
        propensities=[None] * count,
    )


def execute(*statements: Insert) -> Work[None]:
    """Return these statements as work."""
    yield from statements
