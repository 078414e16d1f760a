"""The toy with a known posterior: its parts by hand, and the record that is kept."""

from __future__ import annotations

import json
import math

import pytest
import torch

from benchmarks import gaussians
from tests import reference_losses as reference
from tests.methods.batches import batch


def test_posterior_by_hand() -> None:
    means = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 30.0], [9.0, 9.0], [-9.0, 9.0]])
    middle, origin = gaussians.posterior(torch.tensor([[1.0, 5.0], [0.0, 0.0]]), means)
    assert middle[:2].tolist() == pytest.approx([0.5, 0.5], abs=1e-6)
    densities = [math.exp(-float(mean.square().sum()) / 2) for mean in means]
    assert origin.tolist() == pytest.approx([d / math.fsum(densities) for d in densities], rel=1e-6)


@pytest.mark.parametrize("shape", gaussians.SHAPES)
def test_weights_are_those_of_the_losses(shape: str) -> None:
    logits, labels = batch(5)
    weights = gaussians.weight(shape, logits, labels, **gaussians.TRAINED[shape]).tolist()
    for u, z, y in zip(weights, logits.tolist(), labels.tolist(), strict=True):
        p = reference.softmax(z)
        below = max((value for value in p if value < p[y]), default=0.0)
        gaps = [value - (i == y) for i, value in enumerate(p)]
        assert u == pytest.approx(
            {"FL": (1 - p[y]) ** 3, "DFL": (1 - p[y] + below) ** 5, "gBS": math.fsum(gap**2 for gap in gaps)}[shape]
        )
    certain = torch.tensor([[800.0, 0, 0, 0, 0]], dtype=torch.float64)
    assert gaussians.weight(shape, certain, torch.tensor([0])).tolist() == [0]


def test_the_record_orders_the_weights_as_trained_like_the_paper() -> None:
    record = json.loads(gaussians.RESULT.read_text(encoding="utf-8"))
    figures = [record["weights"][shape]["as_trained"][0] for shape in ("FL", "DFL", "gBS")]
    assert figures == sorted(figures)
    assert gaussians.markdown(record).count("\n") == 4
    trained, best = gaussians.reading(record["weights"]).splitlines()
    assert trained.endswith("FL 0.339 < DFL 0.398 < gBS 0.440, the order of the paper")
    assert best.endswith("DFL 0.706, not the order of the paper")
