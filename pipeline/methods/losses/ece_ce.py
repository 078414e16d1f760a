"""Cross entropy weighted by how far off the calibration is where the row lies (the BSCE-GRA paper's public code)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pipeline.methods.gaps import class_errors, equal_mass, equal_width, mean_gaps, top
from pipeline.methods.learner import Split
from pipeline.methods.losses.cross_entropy import cross_entropy
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import expected, of_target


class Gaps(NamedTuple):
    """How far off the calibration of some rows is, in float64.

    width_B and mass_B: mean confidence - accuracy in bins of equal width and of equal mass; edges: between the latter.
    error_C: ECE of each class.
    """

    width_B: Tensor
    mass_B: Tensor
    edges: Tensor
    error_C: Tensor


class EceCE:
    """w CE, w = l + (1 - l) (|g_b| + |a_b'| + classwise e_y) / 3, a constant for the gradient; l = 1 - progress.

    g_b: mean confidence - accuracy of the rows whose top label's confidence is in bin b, of `bins` bins of equal width;
    a_b': the same of bins of equal mass; b and b' are where p_y lies. e_k: ECE of class k,
    sum_b |sum_{n in b} (p_nk - [y_n = k])| / N. They are taken anew after each epoch, of the training rows as its steps
    made them, or with `split` val of the validation rows. Until then w = 1.

    No paper prints it: it is ECELoss in the public code of the BSCE-GRA paper. There l moves once an epoch, b' is that
    of the row's rank in its batch, and in the first five epochs, of cross entropy, the rows are those of validation.
    """

    every = 0

    def __init__(self, *, bins: int = 15, classwise: float = 2.0, split: Split = "train") -> None:
        self.bins, self.classwise, self.learns_from = bins, classwise, split
        self.gaps: Gaps | None = None

    def __call__(self, logits_NC: Tensor, targets: Tensor, moment: Moment = START) -> Tensor:
        """One value per sample (N,)."""
        if self.gaps is None:
            return cross_entropy(logits_NC, targets)
        log_p = of_target(torch.log_softmax(logits_NC, 1), targets)
        gap = self._gap(log_p.detach().exp(), targets, self.gaps)
        return expected(-(1 - moment.progress + moment.progress * gap) * log_p, targets)

    def learn(self, logits_NC: Tensor, labels_N: Tensor) -> None:
        top_N, gap_N = top(logits_NC, labels_N)
        edges = equal_mass(top_N, self.bins)
        self.gaps = Gaps(
            mean_gaps(gap_N, torch.bucketize(top_N, equal_width(self.bins, top_N)), self.bins),
            mean_gaps(gap_N, torch.bucketize(top_N, edges, right=True), self.bins),
            edges,
            class_errors(logits_NC, labels_N, self.bins),
        )

    def figures(self) -> dict[str, float]:
        """The largest gap of a bin, and the mean ECE of a class, as the weights are made of them."""
        if self.gaps is None:
            return {"gap_greatest": float("nan"), "gap_classwise": float("nan")}
        return {"gap_greatest": float(self.gaps.width_B.abs().max()), "gap_classwise": float(self.gaps.error_C.mean())}

    def state(self) -> dict[str, tuple[Tensor, ...] | None]:
        return {"gaps": None if self.gaps is None else tuple(self.gaps)}

    def restore(self, state: dict[str, tuple[Tensor, ...] | None]) -> None:
        self.gaps = None if state["gaps"] is None else Gaps(*state["gaps"])

    def _gap(self, p: Tensor, targets: Tensor, gaps: Gaps) -> Tensor:
        """(|g_b| + |a_b'| + classwise e_y) / 3, of the shape of p: of the targets' classes (N,), or of all (N, C)."""
        width_B, mass_B, edges, error_C = (tensor.to(p) for tensor in gaps)
        gap = width_B[torch.bucketize(p, equal_width(self.bins, p))].abs()
        gap = gap + mass_B[torch.bucketize(p, edges, right=True)].abs()
        return (gap + self.classwise * (error_C[targets] if targets.ndim == 1 else error_C)) / 3
