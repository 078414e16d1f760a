"""Cross entropy weighted by how easily noise changes the prediction (BSCE-GRA paper, section 16.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from pipeline.methods.learner import Split
from pipeline.methods.losses.cross_entropy import cross_entropy
from pipeline.methods.losses.gaps import binned_error
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import expectation, of_target, one_minus, power
from trueodds.errors import ConfigError

BINS = 15  # of the ECE that selects the strength of the noise
STRONGEST = 10.0
ELEMENTS = 2**22  # values in a block of draws x rows x classes: 16 MB in float32


class Consistency:
    """Consistency-weighted cross entropy (1 - c)^gamma CE. Before the fraction `start` of the run it is CE alone.

    c measures how well a row's prediction k withstands noise. Draws come from torch's global generator. The search of
    variant official uses a generator of its own.

    - variant mean: c is the mean over `count` draws of softmax(head(features + noise e))_k, with e standard normal.
      If the moment has no features, the noise is added to the logits.
    - variant vote: c is the share of the draws that predict k (Tao et al. 2024). It has no gradient.
    - variant official, the public code: c is the share of the draws z + s e of the logits that predict y, the TRUE
      class. s is `noise` until the first validation. After each validation s is the strength in [0, 10] with the least
      ECE of the validation rows in 15 bins. A row's confidence is there the share of the draws that keep its
      prediction. search fine takes the best of 20 strengths, then three times the best of 20 around it, each time ten
      times closer. search grid takes the best of 100. The public code has count 1000; its gamma is 1 where it is run
      and 3 in its class. Its first five epochs are cross entropy. It makes new draws for each strength; here all
      strengths share theirs.

    Args:
        count: Number of draws.
        noise: Standard deviation of the noise.
        gamma: Exponent.
        variant: mean, vote or official.
        search: Search of variant official: fine or grid.
        start: Fraction of the run before which the loss is cross entropy.
        gra: Whether the weight is a constant for the gradient, as in the paper. Without it, being sure of one class for
            every row is optimal, right or wrong (digits: loss .004 after two epochs at an error of .9).

    Raises:
        ConfigError: `search` is set for another variant than official.

    References:
        BSCE-GRA paper, section 16.1.
        Tao et al. (2024), for the share of votes.

    Examples:
        >>> loss = Consistency(count=8, noise=0.0, variant="vote")
        >>> loss(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1])).round(decimals=4)  # no noise: weight 0
        tensor([0.])
    """

    every = 0

    def __init__(
        self,
        *,
        count: int = 8,
        noise: float = 1.0,
        gamma: float = 1.0,
        variant: str = "mean",
        search: str = "fine",
        start: float = 0.0,
        gra: bool = True,
    ) -> None:
        if search != "fine" and variant != "official":
            raise ConfigError(
                f"option search of method consistency needs variant official, which searches for the strength of the"
                f" noise, and variant is {variant}; leave search out"
            )
        self.count, self.noise, self.gamma = count, noise, gamma
        self.variant, self.search, self.start, self.gra = variant, search, start, gra

    @property
    def learns_from(self) -> Split | None:
        """Split that the strength of the noise is chosen on; None for other variants than official."""
        return "val" if self.variant == "official" else None

    def __call__(self, logits_NC: Tensor, targets: Tensor, moment: Moment = START) -> Tensor:
        """Return the loss of each row (N,)."""
        if moment.progress < self.start:
            return cross_entropy(logits_NC, targets)
        if self.variant == "official":
            log_p = of_target(torch.log_softmax(logits_NC, 1), targets)
            weight = power(1 - of_target(self._shares(logits_NC.detach()), targets), self.gamma)
            return expectation(-weight * log_p, targets)
        return power(self._inconsistency(logits_NC, moment), self.gamma) * cross_entropy(logits_NC, targets)

    def learn(self, logits_NC: Tensor, labels_N: Tensor) -> None:
        """Choose the strength of the noise on validation rows."""
        right_N = (logits_NC.argmax(1) == labels_N).double()
        limit_TN = self._limits(logits_NC)

        def error(strength: float) -> float:
            share_N = (limit_TN >= strength).double().mean(0)
            return float(binned_error(share_N, share_N - right_N, BINS))

        self.noise = best_strength(error, self.search)

    def figures(self) -> dict[str, float]:
        """Return the strength of the noise as a column of history."""
        return {"noise": self.noise}

    def state(self) -> dict[str, float]:
        """Return the strength of the noise for a checkpoint."""
        return {"noise": self.noise}

    def restore(self, state: dict[str, float]) -> None:
        """Restore a `state`."""
        self.noise = state["noise"]

    def _inconsistency(self, logits_NC: Tensor, moment: Moment) -> Tensor:
        """Return 1 - c of the variants mean and vote (N,)."""
        answer_1N1 = logits_NC.detach().argmax(1)[None, :, None]
        with torch.set_grad_enabled(torch.is_grad_enabled() and not (self.gra or self.variant == "vote")):
            inner_ND = logits_NC if moment.features is None else moment.features
            noise_TND = torch.randn(self.count, *inner_ND.shape, dtype=inner_ND.dtype, device=inner_ND.device)
            draws_TND = inner_ND + self.noise * noise_TND
            perturbed_TNC = draws_TND if moment.features is None else moment.head(draws_TND)
            if self.variant == "vote":
                agrees_TN = perturbed_TNC.argmax(2) == answer_1N1.squeeze(2)
                return 1 - agrees_TN.to(logits_NC.dtype).mean(0)
            answers_TN1 = answer_1N1.expand(self.count, -1, 1)
            return one_minus(torch.log_softmax(perturbed_TNC, 2).gather(2, answers_TN1).squeeze(2)).mean(0)

    def _shares(self, logits_NC: Tensor) -> Tensor:
        """Return the share of the draws that predict each class (N, C)."""
        votes_NC = torch.zeros_like(logits_NC)
        for draws_TNC in self._draws(logits_NC, None):
            answer_NT = (logits_NC + self.noise * draws_TNC).argmax(2).T
            votes_NC.scatter_add_(1, answer_NT, torch.ones_like(answer_NT, dtype=votes_NC.dtype))
        return votes_NC / self.count

    def _limits(self, logits_NC: Tensor) -> Tensor:
        """Return, for each draw and row, the strength up to which the row keeps its prediction k (T, N).

        s e keeps it while s (e_j - e_k) <= z_k - z_j for all j, so up to the least (z_k - z_j) / (e_j - e_k) > 0. One
        set of draws therefore serves every strength.
        """
        top_N1, answer_N1 = logits_NC.max(1, keepdim=True)
        generator = torch.Generator(logits_NC.device).manual_seed(0)
        limits = []
        for draws_TNC in self._draws(logits_NC, generator):
            lead_TNC = draws_TNC - draws_TNC.gather(2, answer_N1.expand(len(draws_TNC), -1, 1))
            limits.append(torch.where(lead_TNC > 0, (top_N1 - logits_NC) / lead_TNC, torch.inf).amin(2))
        return torch.cat(limits)

    def _draws(self, logits_NC: Tensor, generator: torch.Generator | None) -> Iterator[Tensor]:
        """Yield `count` standard normal draws for every logit, in blocks (T, N, C)."""
        most = max(ELEMENTS // logits_NC.numel(), 1)
        for first in range(0, self.count, most):
            size = (min(most, self.count - first), *logits_NC.shape)
            yield torch.randn(size, generator=generator, dtype=logits_NC.dtype, device=logits_NC.device)


def best_strength(error: Callable[[float], float], search: str) -> float:
    """Return the strength in [0, 10] with the least error, the first if several have it (see `Consistency`)."""
    best: float = min(np.linspace(0, STRONGEST, 100 if search == "grid" else 20).tolist(), key=error)
    if search == "grid":
        return best
    for reach in (1.0, 0.1, 0.01):
        around = np.linspace(best - reach, best + reach, 20).clip(0, STRONGEST)
        best = min([best, *around.tolist()], key=error)
    return best
