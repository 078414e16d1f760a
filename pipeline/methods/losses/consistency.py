"""Cross entropy weighted by how little an answer withstands noise (BSCE-GRA paper, section 16.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.methods.losses.cross_entropy import cross_entropy
from pipeline.methods.method import START, Moment
from pipeline.methods.targets import one_minus


def consistency(
    logits_NC: Tensor,
    targets: Tensor,
    moment: Moment = START,
    *,
    count: int = 8,
    noise: float = 1.0,
    variant: str = "mean",
    gra: bool = True,
) -> Tensor:
    """(1 - consistency) CE (BSCE-GRA paper, section 16.1); shape (N,).

    consistency = mean over `count` draws of softmax(head(features + noise e))_k, e standard normal, k the unperturbed
    answer. variant vote: the share of draws that answer k (Tao et al. 2024); it has no gradient of its own. Where the
    moment has no features, the logits are perturbed. Draws come from torch's global generator.

    `gra` is on unless switched off, as in the paper: with a gradient through the weight, being sure of one class for
    every row is optimal, right or wrong (digits: loss .004 after two epochs at an error of .9).
    """
    answer_1N1 = logits_NC.detach().argmax(1)[None, :, None]
    with torch.set_grad_enabled(torch.is_grad_enabled() and not (gra or variant == "vote")):
        inner_ND = logits_NC if moment.features is None else moment.features
        draws_TND = inner_ND + noise * torch.randn(count, *inner_ND.shape, dtype=inner_ND.dtype, device=inner_ND.device)
        perturbed_TNC = draws_TND if moment.features is None else moment.head(draws_TND)
        if variant == "vote":
            agrees_TN = perturbed_TNC.argmax(2) == answer_1N1.squeeze(2)
            weight_N = 1 - agrees_TN.to(logits_NC.dtype).mean(0)
        else:
            log_p_TN = torch.log_softmax(perturbed_TNC, 2).gather(2, answer_1N1.expand(count, -1, 1)).squeeze(2)
            weight_N = one_minus(log_p_TN).mean(0)
    return weight_N * cross_entropy(logits_NC, targets)
