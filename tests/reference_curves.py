"""Slow, obvious twins of what is logged in training: one row at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pipeline.methods.method import Method
from tests.reference import Rows, top
from tests.reference_losses import softmax


def by_outcome(rows: Rows, labels: Sequence[int]) -> dict[str, float | None]:
    """Means of -log p_y, of the entropy and of p_y, over right rows and over wrong ones."""
    values: dict[str, list[float]] = {
        f"{name}_{outcome}": [] for name in ("nll", "entropy", "p") for outcome in ("right", "wrong")
    }
    for row, label in zip(rows, labels, strict=True):
        p, outcome = softmax(row), "right" if top(row) == label else "wrong"
        values[f"nll_{outcome}"].append(-math.log(max(p[label], 2.2250738585072014e-308)))
        values[f"entropy_{outcome}"].append(-math.fsum(value * math.log(value) for value in p if value > 0))
        values[f"p_{outcome}"].append(p[label])
    return {name: math.fsum(sample) / len(sample) if sample else None for name, sample in values.items()}


def gradient_norms(
    method: Method, head: nn.Linear, features_ND: Tensor, labels_N: Tensor, progress: float
) -> list[float]:
    """The whole gradient by the last layer's weights and bias, by autograd, for each row's loss."""
    losses = method.per_sample(head(features_ND), labels_N, features_ND, head=head, progress=progress)
    norms = []
    for loss in losses:
        gradient = torch.autograd.grad(loss, [head.weight, head.bias], retain_graph=True)
        norms.append(math.sqrt(math.fsum(float(g.square().sum()) for g in gradient)))
    return norms
