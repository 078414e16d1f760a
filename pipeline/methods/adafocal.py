"""AdaFocal (Ghosh et al. 2022): a gamma for each confidence bin, moved now and then by the bin's validation gap."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.gaps import equal_mass, mean_gaps, top
from pipeline.methods.learner import Split
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import expected, of_target, one_minus, power

SWITCH = 0.2  # |gamma| below it jumps to the other sign: focal becomes inverse focal, and back
LEAST, GREATEST = -2.0, 20.0


class AdaFocal:
    """-(1 - p_y)^gamma_b log p_y where gamma_b > 0, inverse focal -(1 + p_y)^|gamma_b| log p_y where gamma_b < 0.

    b is the bin of p_y among `bins` equal-mass bins of the validation rows' top-1 confidence. `gamma` is that of every
    bin until the first validation. After each, with gap_b = mean confidence - accuracy of bin b's rows:
    gamma_b <- gamma_b exp(sign(gamma_b) rate gap_b), across the switch at |gamma| < .2, clipped to [-2, 20]
    (Ghosh et al. 2022, algorithm 1). A bin without rows keeps its gamma.

    That is once an epoch, or with `every` after each `every`-th step of the run and then not at an epoch's end (the
    public code's update_gamma_every, which counts anew in each epoch). Each time costs a pass over the validation rows.
    """

    learns_from: Split = "val"

    def __init__(
        self, *, gamma: float = 1.0, bins: int = 15, rate: float = 1.0, every: int = 0, gra: bool = False
    ) -> None:
        self.rate, self.every, self.gra = rate, every, gra
        self.gamma_B = torch.full((bins,), float(gamma), dtype=torch.float64)
        self.edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1]

    def __call__(self, logits_NC: Tensor, targets: Tensor, moment: Moment = START) -> Tensor:
        """One value per sample (N,)."""
        log_p = of_target(torch.log_softmax(logits_NC, 1), targets)
        p = log_p.exp()
        gamma = self.exponent(p.detach())
        weight = power(torch.where(gamma < 0, 1 + p, one_minus(log_p)), gamma.abs())
        return expected(-(weight.detach() if self.gra else weight) * log_p, targets)

    def learn(self, logits_NC: Tensor, labels_N: Tensor) -> None:
        bins = len(self.gamma_B)
        top_N, gap_N = top(logits_NC, labels_N)
        self.edges = equal_mass(top_N, bins)
        gap_B = mean_gaps(gap_N, torch.bucketize(top_N, self.edges, right=True), bins)
        gamma_B = self.gamma_B.to(top_N.device)
        moved_B = gamma_B * torch.exp(gamma_B.sign() * self.rate * gap_B)
        moved_B = torch.where(moved_B.abs() < SWITCH, -SWITCH * moved_B.sign(), moved_B)
        self.gamma_B = moved_B.clamp(LEAST, GREATEST)

    def figures(self) -> dict[str, float]:
        return {f"gamma_bin_{b}": gamma for b, gamma in enumerate(self.gamma_B.tolist(), 1)}

    def state(self) -> dict[str, Tensor]:
        return {"gamma": self.gamma_B, "edges": self.edges}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.gamma_B, self.edges = state["gamma"], state["edges"]

    def exponent(self, p: Tensor, moment: Moment = START) -> Tensor:
        """The gamma of each p's bin."""
        self.edges, self.gamma_B = self.edges.to(p.device), self.gamma_B.to(p.device)
        return self.gamma_B.to(p.dtype)[torch.bucketize(p, self.edges.to(p.dtype), right=True)]
