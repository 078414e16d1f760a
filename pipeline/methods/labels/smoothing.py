"""Label smoothing with one strength for all rows, or more for harder classes or surer answers."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.learner import Split
from pipeline.methods.targets import distribution, of_target, one_minus

MOST = 0.5  # greatest smoothing of a class; beyond it the label may no longer be the likeliest class


def smooth(targets: Tensor, classes: int, epsilon: float | Tensor, dtype: torch.dtype) -> Tensor:
    """Return smoothed targets t' = (1 - epsilon) t + epsilon / K (N, C).

    Args:
        targets: Class indices (N,) or distributions (N, C).
        classes: Number of classes K.
        epsilon: Strength in [0, 1]: one for all rows, or one per row (N,).
        dtype: dtype of the result.

    References:
        Szegedy et al. (2016), Rethinking the Inception architecture for computer vision, section 7.

    Examples:
        >>> smooth(torch.tensor([1]), 2, 0.1, torch.float32)
        tensor([[0.0500, 0.9500]])
    """
    if isinstance(epsilon, Tensor):
        epsilon = epsilon.unsqueeze(1)
    return (1 - epsilon) * distribution(targets, classes, dtype) + epsilon / classes


class Smoothing:
    """Label smoothing with one strength for every row: t' = (1 - epsilon) t + epsilon / K."""

    draws = False

    def __init__(self, *, epsilon: float = 0.1) -> None:
        self.epsilon = epsilon

    def batch(self, inputs: Tensor, targets: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return inputs and targets unchanged."""
        return inputs, targets

    def targets(self, logits_NC: Tensor, targets: Tensor) -> Tensor:
        """Return the smoothed targets (N, C)."""
        return smooth(targets, logits_NC.shape[1], self.strength(logits_NC.detach(), targets), logits_NC.dtype)

    def strength(self, logits_NC: Tensor, targets: Tensor) -> float | Tensor:
        """Return epsilon: one for all rows, or one per row (N,)."""
        return self.epsilon


class ConfidenceSmoothing(Smoothing):
    """Label smoothing with epsilon_n = epsilon max_k p_nk, a constant for the gradient: sure answers are smoothed more.

    The survey (section Label smoothing) names the idea without a formula. This formula is the project's.
    """

    def strength(self, logits_NC: Tensor, targets: Tensor) -> Tensor:
        """Return epsilon of each row (N,)."""
        return self.epsilon * torch.softmax(logits_NC, 1).amax(1)


class ClassSmoothing(Smoothing):
    """Label smoothing with epsilon_k = min(epsilon d_k / mean d, 1/2): harder classes are smoothed more.

    d_k is the difficulty of class k: the mean of 1 - p_y over its validation rows and one extra row at the overall
    mean. The extra row keeps a rare class from being judged by one or two rows. Before the first validation epsilon_k =
    epsilon. The survey (section Label smoothing) names the idea without a formula. This formula is the project's.
    """

    learns_from: Split = "val"
    every = 0

    def __init__(self, *, epsilon: float = 0.1) -> None:
        super().__init__(epsilon=epsilon)
        self.epsilon_C: Tensor | None = None

    def strength(self, logits_NC: Tensor, targets: Tensor) -> float | Tensor:
        """Return epsilon of each row (N,), or one for all before the first validation."""
        if self.epsilon_C is None:
            return self.epsilon
        epsilon_C = self.epsilon_C.to(logits_NC)
        return epsilon_C[targets] if targets.ndim == 1 else targets.to(logits_NC.dtype) @ epsilon_C

    def learn(self, logits_NC: Tensor, labels_N: Tensor) -> None:
        """Compute epsilon of each class from validation rows."""
        missed_N = one_minus(of_target(torch.log_softmax(logits_NC.double(), 1), labels_N))
        zero_C = missed_N.new_zeros(logits_NC.shape[1])
        count_C = zero_C.index_add(0, labels_N, torch.ones_like(missed_N))
        difficulty_C = (zero_C.index_add(0, labels_N, missed_N) + missed_N.mean()) / (count_C + 1)
        mean = difficulty_C.mean().clamp_min(torch.finfo(difficulty_C.dtype).tiny)
        self.epsilon_C = (self.epsilon * difficulty_C / mean).clamp_max(MOST)

    def figures(self) -> dict[str, float]:
        """Return the least, greatest and mean epsilon of a class as columns of history."""
        epsilon_C = torch.tensor([self.epsilon]) if self.epsilon_C is None else self.epsilon_C
        ends = {"min": epsilon_C.min(), "max": epsilon_C.max(), "mean": epsilon_C.mean()}
        return {f"class_smoothing_{name}": float(value) for name, value in ends.items()}

    def state(self) -> dict[str, Tensor | None]:
        """Return epsilon of each class for a checkpoint."""
        return {"epsilon": self.epsilon_C}

    def restore(self, state: dict[str, Tensor | None]) -> None:
        """Restore a `state`."""
        self.epsilon_C = state["epsilon"]
