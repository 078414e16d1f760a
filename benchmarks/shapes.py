"""Simulated nets: their logits, and the probability that their top class is right.

A has 100 classes and accuracy .79, B 10 classes and .95, C two classes and .71, D 10 classes and .996.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SHAPES: dict[str, tuple[int, float, float]] = {
    "A": (100, 9.9, 5.6),
    "B": (10, 10.0, 4.1),
    "C": (2, 0.0, 0.0),
    "D": (10, 16.0, 4.0),
}
"""Number of classes, and mean and standard deviation of the largest logit, by the name of the shape."""


def pool_logits(shape: str, rows: int, seed: int) -> Array:
    """Return logits of one of the SHAPES."""
    rng = np.random.default_rng(seed)
    classes, mean, spread = SHAPES[shape]
    if shape == "C":
        return np.stack([np.abs(rng.normal(0, 1.3, rows)), np.zeros(rows)], axis=1)
    logits_NC = rng.normal(0, 1.2, (rows, classes))
    logits_NC[:, 0] += np.maximum(rng.normal(mean, spread, rows), 0)
    return logits_NC


def chance_at(logits_NC: Array, temperature: float) -> Array:
    """Return how often the top class is right if the truth is softmax(z / T)."""
    # 1 / sum exp((z - top) / T): the top class alone is needed, so no N x C probabilities are kept
    chance: Array = 1 / np.exp((logits_NC - logits_NC.max(axis=1, keepdims=True)) / temperature).sum(axis=1)
    return chance
