"""The pool of an ensemble: several nets that answer as one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def pool_logits(logits_MNC: Sequence[Tensor]) -> Tensor:
    """Return the log of the mean probabilities of M nets, log (1/M) sum_m softmax(z_m), as logits (N, C).

    Their softmax is the mean of the nets' probabilities, so a calibrator takes them like the logits of one net.

    Args:
        logits_MNC: Logits (N, C) of each net.

    References:
        Lakshminarayanan et al. 2017, Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles,
        section 2.4.

    Examples:
        >>> pool_logits([torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, math.log(3.0)]])]).exp()
        tensor([[0.3750, 0.6250]])
    """
    log_p_MNC = torch.stack([torch.log_softmax(logits_NC, 1) for logits_NC in logits_MNC])
    return torch.logsumexp(log_p_MNC, 0) - math.log(len(logits_MNC))


class Pool(nn.Module):
    """Nets whose pooled logits (`pool_logits`) are the output.

    Args:
        members: The nets.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the pooled logits (N, C) of inputs as each net takes them."""
        return pool_logits([member(inputs) for member in self.members])
