"""Average uncertainty."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trueodds.metrics import mean_entropy, softmax


def test_by_hand() -> None:
    """A fair coin holds log 2, a certain answer nothing, and 0 log 0 is 0."""
    assert mean_entropy([[0.5, 0.5], [1.0, 0.0]]) == pytest.approx(math.log(2) / 2)
    assert mean_entropy(np.full((7, 5), 0.2)) == pytest.approx(math.log(5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_slow_twin(dtype: type[np.floating]) -> None:
    p_NC = softmax(np.random.default_rng(0).normal(0, 3, (200, 4))).astype(dtype)
    rows = [-math.fsum(float(p) * math.log(p) for p in row if p > 0) for row in p_NC]
    assert mean_entropy(p_NC) == pytest.approx(math.fsum(rows) / 200, rel=1e-6)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="probabilities"):
        mean_entropy([[0.2, 0.2]])
