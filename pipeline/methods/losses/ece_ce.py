"""Cross entropy weighted by the calibration gap at a row's confidence (the BSCE-GRA paper's public code)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pipeline.methods.learner import Split
from pipeline.methods.losses.cross_entropy import cross_entropy
from pipeline.methods.losses.gaps import class_errors, equal_mass, equal_width, mean_gaps, top
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import expectation, of_target


class Gaps(NamedTuple):
    """Calibration gaps of a set of rows, in float64.

    Attributes:
        width_B: Mean confidence - accuracy in bins of equal width.
        mass_B: The same in bins of equal mass.
        edges: Edges between the bins of equal mass.
        error_C: ECE of each class.
    """

    width_B: Tensor
    mass_B: Tensor
    edges: Tensor
    error_C: Tensor


class EceCE:
    """Cross entropy weighted by calibration gaps: w CE with w = l + (1 - l) (|g_b| + |a_b'| + classwise e_y) / 3.

    l = 1 - progress. w is a constant for the gradient.

    - g_b is mean confidence - accuracy of the rows whose top label's confidence is in bin b of `bins` bins of equal
      width. a_b' is the same for bins of equal mass. b and b' are the bins of p_y.
    - e_k is the ECE of class k, sum_b |sum_{n in b} (p_nk - [y_n = k])| / N.

    The gaps are computed after each epoch. They use the training rows with the logits of the epoch's steps, or the
    validation rows with split val. Before the first epoch ends w = 1.

    No paper prints this loss. It is ECELoss in the public code of the BSCE-GRA paper. There l moves once an epoch, b'
    is the bin of the row's rank in its batch, and the first five epochs, which are cross entropy, use the validation
    rows.

    Args:
        bins: Number of bins.
        classwise: Weight of e_y.
        split: Rows of the gaps: train or val.

    Examples:
        >>> loss = EceCE(bins=5)  # before the first epoch ends: cross entropy
        >>> loss(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor([0.2877])
    """

    every = 0

    def __init__(self, *, bins: int = 15, classwise: float = 2.0, split: Split = "train") -> None:
        self.bins, self.classwise, self.learns_from = bins, classwise, split
        self.gaps: Gaps | None = None

    def __call__(self, logits_NC: Tensor, targets: Tensor, moment: Moment = START) -> Tensor:
        """Return the loss of each row (N,)."""
        if self.gaps is None:
            return cross_entropy(logits_NC, targets)
        log_p = of_target(torch.log_softmax(logits_NC, 1), targets)
        gap = self._gap(log_p.detach().exp(), targets, self.gaps)
        return expectation(-(1 - moment.progress + moment.progress * gap) * log_p, targets)

    def learn(self, logits_NC: Tensor, labels_N: Tensor) -> None:
        """Compute the gaps from labelled rows."""
        top_N, gap_N = top(logits_NC, labels_N)
        edges = equal_mass(top_N, self.bins)
        self.gaps = Gaps(
            mean_gaps(gap_N, torch.bucketize(top_N, equal_width(self.bins, top_N)), self.bins),
            mean_gaps(gap_N, torch.bucketize(top_N, edges, right=True), self.bins),
            edges,
            class_errors(logits_NC, labels_N, self.bins),
        )

    def figures(self) -> dict[str, float]:
        """Return the largest gap of a bin and the mean ECE of a class, from which the weights are computed."""
        if self.gaps is None:
            return {"gap_greatest": float("nan"), "gap_classwise": float("nan")}
        return {"gap_greatest": float(self.gaps.width_B.abs().max()), "gap_classwise": float(self.gaps.error_C.mean())}

    def state(self) -> dict[str, tuple[Tensor, ...] | None]:
        """Return the gaps for a checkpoint."""
        return {"gaps": None if self.gaps is None else tuple(self.gaps)}

    def restore(self, state: dict[str, tuple[Tensor, ...] | None]) -> None:
        """Restore a `state`."""
        self.gaps = None if state["gaps"] is None else Gaps(*state["gaps"])

    def _gap(self, p: Tensor, targets: Tensor, gaps: Gaps) -> Tensor:
        """Return (|g_b| + |a_b'| + classwise e_y) / 3 in the shape of p: (N,) of the targets' classes, or (N, C)."""
        width_B, mass_B, edges, error_C = (tensor.to(p) for tensor in gaps)
        gap = width_B[torch.bucketize(p, equal_width(self.bins, p))].abs()
        gap = gap + mass_B[torch.bucketize(p, edges, right=True)].abs()
        return (gap + self.classwise * (error_C[targets] if targets.ndim == 1 else error_C)) / 3
