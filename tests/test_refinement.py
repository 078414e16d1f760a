"""The NLL that temperature scaling leaves: against a slow twin, and blind to how sharp the logits are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.training.measuring.refinement import refinement
from tests import reference_calibrators as reference
from trueodds import metrics
from trueodds.calibrators.temperature import SHRINKAGE
from trueodds.sums.inputs import softmax


def rows(n: int, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Logits of a calibrated net, and labels drawn from what it says."""
    random = np.random.default_rng(0)
    logits_NC = 2 * random.standard_normal((n, classes))
    labels_N = (softmax(logits_NC).cumsum(1) < random.random((n, 1))).sum(1)
    return torch.from_numpy(logits_NC), torch.from_numpy(labels_N)


def nll(logits_NC: Tensor, labels_N: Tensor) -> float:
    return metrics.nll(softmax(logits_NC.numpy()), labels_N.numpy())


def test_equals_the_slow_twin() -> None:
    logits, labels = rows(60)
    z, y = (3 * logits).tolist(), labels.tolist()
    low, high = 0.1, 20.0
    for _ in range(100):
        thirds = (2 * low + high) / 3, (low + 2 * high) / 3
        values = [reference.shrunk_nll(z, y, t, SHRINKAGE) for t in thirds]
        low, high = (low, thirds[1]) if values[0] < values[1] else (thirds[0], high)
    expected = reference.affine_nll(z, y, (np.eye(4) / low).tolist(), [0.0] * 4)
    assert refinement(3 * logits, labels) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 5.0])
def test_sharper_or_flatter_logits_are_as_refined(sharpness: float) -> None:
    logits, labels = rows(4000)
    calibrated = nll(logits, labels)
    assert refinement(sharpness * logits, labels) == pytest.approx(calibrated, rel=1e-3)
    if sharpness != 1:
        assert nll(sharpness * logits, labels) > 1.1 * calibrated


def test_other_rows_of_answers_are_less_refined() -> None:
    logits, labels = rows(4000)
    blurred = logits + torch.from_numpy(np.random.default_rng(1).standard_normal((4000, 4)))
    assert refinement(blurred, labels) > 1.05 * refinement(logits, labels)


def test_a_net_without_errors_and_one_that_says_nothing_are_finite() -> None:
    certain = 800 * torch.nn.functional.one_hot(torch.arange(3), 3).float()
    assert 0 <= refinement(certain, torch.arange(3)) < 1e-6
    assert refinement(torch.zeros(6, 3), torch.arange(6) % 3) == pytest.approx(np.log(3))
