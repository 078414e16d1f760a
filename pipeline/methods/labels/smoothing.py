"""Label smoothing, the same for every row or more where it is harder or surer."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.learner import Split
from pipeline.methods.targets import distribution, of_target, one_minus

MOST = 0.5  # of a class's smoothing: beyond it the label is no longer the likeliest class


def smooth(targets: Tensor, classes: int, epsilon: float | Tensor, dtype: torch.dtype) -> Tensor:
    """Label smoothing t' = (1 - epsilon) t + epsilon / K (Szegedy et al. 2016, section 7); shape (N, C).

    epsilon in [0, 1]: one for all, or one per sample (N,).
    """
    if isinstance(epsilon, Tensor):
        epsilon = epsilon.unsqueeze(1)
    return (1 - epsilon) * distribution(targets, classes, dtype) + epsilon / classes


class Smoothing:
    """Label smoothing, the same for every row: t' = (1 - epsilon) t + epsilon / K."""

    draws = False

    def __init__(self, *, epsilon: float = 0.1) -> None:
        self.epsilon = epsilon

    def batch(self, inputs: Tensor, targets: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return inputs, targets

    def targets(self, logits_NC: Tensor, targets: Tensor) -> Tensor:
        return smooth(targets, logits_NC.shape[1], self.strength(logits_NC.detach(), targets), logits_NC.dtype)

    def strength(self, logits_NC: Tensor, targets: Tensor) -> float | Tensor:
        """epsilon, for all or per row (N,)."""
        return self.epsilon


class ConfidenceSmoothing(Smoothing):
    """Smoothing with epsilon_n = epsilon max_k p_nk, a constant for the gradient: sure answers are smoothed more.

    The survey (section Label smoothing) names the idea without a formula; this one is the project's.
    """

    def strength(self, logits_NC: Tensor, targets: Tensor) -> Tensor:
        return self.epsilon * torch.softmax(logits_NC, 1).amax(1)


class ClassSmoothing(Smoothing):
    """Smoothing with epsilon_k = min(epsilon d_k / mean d, 1/2): classes that are harder are smoothed more.

    d_k is the mean of 1 - p_y over the validation rows of class k and one row more at the overall mean, so that a rare
    class is not judged by a row or two. Until the first validation epsilon_k = epsilon.
    The survey (section Label smoothing) names the idea without a formula; this one is the project's.
    """

    learns_from: Split = "val"
    every = 0

    def __init__(self, *, epsilon: float = 0.1) -> None:
        super().__init__(epsilon=epsilon)
        self.epsilon_C: Tensor | None = None

    def strength(self, logits_NC: Tensor, targets: Tensor) -> float | Tensor:
        if self.epsilon_C is None:
            return self.epsilon
        epsilon_C = self.epsilon_C.to(logits_NC)
        return epsilon_C[targets] if targets.ndim == 1 else targets.to(logits_NC.dtype) @ epsilon_C

    def learn(self, logits_NC: Tensor, labels_N: Tensor) -> None:
        missed_N = one_minus(of_target(torch.log_softmax(logits_NC.double(), 1), labels_N))
        zero_C = missed_N.new_zeros(logits_NC.shape[1])
        count_C = zero_C.index_add(0, labels_N, torch.ones_like(missed_N))
        difficulty_C = (zero_C.index_add(0, labels_N, missed_N) + missed_N.mean()) / (count_C + 1)
        mean = difficulty_C.mean().clamp_min(torch.finfo(difficulty_C.dtype).tiny)
        self.epsilon_C = (self.epsilon * difficulty_C / mean).clamp_max(MOST)

    def figures(self) -> dict[str, float]:
        epsilon_C = torch.tensor([self.epsilon]) if self.epsilon_C is None else self.epsilon_C
        ends = {"min": epsilon_C.min(), "max": epsilon_C.max(), "mean": epsilon_C.mean()}
        return {f"class_smoothing_{name}": float(value) for name, value in ends.items()}

    def state(self) -> dict[str, Tensor | None]:
        return {"epsilon": self.epsilon_C}

    def restore(self, state: dict[str, Tensor | None]) -> None:
        self.epsilon_C = state["epsilon"]
