"""AdaFocal (Ghosh et al. 2022): focal loss with one gamma per confidence bin, updated from the bin's validation gap."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.learner import Split
from pipeline.methods.losses.gaps import equal_mass, mean_gaps, top
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import expectation, of_target, one_minus, power

SWITCH = 0.2  # a |gamma| below it changes sign: focal becomes inverse focal, or the reverse
LEAST, GREATEST = -2.0, 20.0


class AdaFocal:
    """AdaFocal: focal loss whose gamma depends on the confidence bin and adapts during the run.

    The loss of a row is -(1 - p_y)^gamma_b log p_y where gamma_b > 0. It is the inverse focal loss
    -(1 + p_y)^|gamma_b| log p_y where gamma_b < 0. b is the bin of p_y. The `bins` bins have equal mass: their edges
    are quantiles of the top-1 confidence of the validation rows.

    Before the first validation every bin has the gamma `gamma`. Each validation then updates it:
    gamma_b <- gamma_b exp(sign(gamma_b) rate gap_b), with gap_b = mean confidence - accuracy of the bin's rows.
    A result with |gamma_b| < 0.2 becomes 0.2 with the opposite sign. The result is clipped to [-2, 20].
    A bin without rows keeps its gamma.

    Args:
        gamma: Gamma of every bin before the first validation.
        bins: Number of bins.
        rate: Rate of the update.
        every: Number of steps of the run between two updates; 0 updates at the end of each epoch. (The public code has
            update_gamma_every, which starts counting again in each epoch.) Each update costs a pass over the validation
            rows.
        gra: Whether the weight of log p_y is a constant for the gradient.

    References:
        Ghosh, Schaaf and Gormley (2022), AdaFocal: calibration-aware adaptive focal loss, algorithm 1.

    Examples:
        >>> loss = AdaFocal(gamma=1.0, bins=5)
        >>> loss(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor([0.0719])
    """

    learns_from: Split = "val"

    def __init__(
        self, *, gamma: float = 1.0, bins: int = 15, rate: float = 1.0, every: int = 0, gra: bool = False
    ) -> None:
        self.rate, self.every, self.gra = rate, every, gra
        self.gamma_B = torch.full((bins,), float(gamma), dtype=torch.float64)
        self.edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1]

    def __call__(self, logits_NC: Tensor, targets: Tensor, moment: Moment = START) -> Tensor:
        """Return the loss of each row (N,)."""
        log_p = of_target(torch.log_softmax(logits_NC, 1), targets)
        p = log_p.exp()
        gamma = self.exponent(p.detach())
        weight = power(torch.where(gamma < 0, 1 + p, one_minus(log_p)), gamma.abs())
        return expectation(-(weight.detach() if self.gra else weight) * log_p, targets)

    def learn(self, logits_NC: Tensor, labels_N: Tensor) -> None:
        """Update the bins' edges and gammas from validation rows."""
        bins = len(self.gamma_B)
        top_N, gap_N = top(logits_NC, labels_N)
        self.edges = equal_mass(top_N, bins)
        gap_B = mean_gaps(gap_N, torch.bucketize(top_N, self.edges, right=True), bins)
        gamma_B = self.gamma_B.to(top_N.device)
        moved_B = gamma_B * torch.exp(gamma_B.sign() * self.rate * gap_B)
        moved_B = torch.where(moved_B.abs() < SWITCH, -SWITCH * moved_B.sign(), moved_B)
        self.gamma_B = moved_B.clamp(LEAST, GREATEST)

    def figures(self) -> dict[str, float]:
        """Return the gamma of each bin as a column of history."""
        return {f"gamma_bin_{b}": gamma for b, gamma in enumerate(self.gamma_B.tolist(), 1)}

    def state(self) -> dict[str, Tensor]:
        """Return gammas and edges for a checkpoint."""
        return {"gamma": self.gamma_B, "edges": self.edges}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore a `state`."""
        self.gamma_B, self.edges = state["gamma"], state["edges"]

    def exponent(self, p: Tensor, moment: Moment = START) -> Tensor:
        """Return the gamma of the bin of each p."""
        self.edges, self.gamma_B = self.edges.to(p.device), self.gamma_B.to(p.device)
        return self.gamma_B.to(p.dtype)[torch.bucketize(p, self.edges.to(p.dtype), right=True)]
