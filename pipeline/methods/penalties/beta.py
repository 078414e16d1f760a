"""Beta calibration fitted inside the loss. The penalty is the NLL that the fit gains on the batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.penalties.inputs import check_inputs, correct

STEPS = 12  # worst of 600 random batches (logits of spread 30, nearly all wrong): 3e-7 nats left to gain
SHARES = (1.0, 0.5, 0.25, 0.1, 0.01, 0.0)
RIDGE = 1.0  # as strong as one row; without it separable batches have no best map


def beta_joint(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Return NLL(identity) - min over a, b, m of [NLL(beta map) + |(a, b, m) - (1, 1, 0)|^2 / (2 N)], in nats.

    The beta map of the confidence c is logit mu = a log c - b log(1 - c) + m. NLL is the mean of -log mu for right
    answers and -log(1 - mu) for wrong ones. The result is at least 0, and 0 if no map improves on c. Each batch has a
    new fit. At its minimum the gradient of the fit vanishes, so the map is a constant for the penalty's gradient (for
    the first derivative only).

    Args:
        logits_NC: Logits.
        labels_N: Class indices.

    Returns:
        A scalar.

    Raises:
        ValueError: Shapes, types or labels are invalid.

    References:
        Kull, Silva Filho and Flach (2017), Beta calibration.
        Survey, for its use inside a loss.

    Examples:
        >>> beta_joint(torch.log(torch.tensor([[0.1, 0.9]] * 20)), torch.tensor([0, 1] * 10)) > 0.1
        tensor(True)
    """
    logits = check_inputs(logits_NC, labels_N)
    log_p_NC = torch.log_softmax(logits, 1)
    answer_N1 = logits.detach().argmax(1, keepdim=True)
    log_c_N = log_p_NC.gather(1, answer_N1).squeeze(1)
    log_rest_N = log_p_NC.scatter(1, answer_N1, -torch.inf).logsumexp(1)  # log(1 - c) without cancellation
    features_N3 = torch.stack([log_c_N, -log_rest_N, torch.ones_like(log_c_N)], 1)
    a_N = correct(logits, labels_N)
    identity_3 = features_N3.new_tensor([1.0, 1.0, 0.0])
    best_3 = _fit(features_N3.detach().double(), a_N.double(), identity_3.double()).to(features_N3.dtype)
    total_2 = _objective(features_N3, a_N, torch.stack([identity_3, best_3]), identity_3)
    return (total_2[0] - total_2[1]) / len(a_N)


def _objective(features_N3: Tensor, a_N: Tensor, maps_M3: Tensor, identity_3: Tensor) -> Tensor:
    """Return the summed NLL and ridge of each map (M,)."""
    logit_NM = features_N3 @ maps_M3.T
    nll_M: Tensor = -F.logsigmoid(torch.where(a_N.unsqueeze(1) > 0, logit_NM, -logit_NM)).sum(0)
    distance_M: Tensor = ((maps_M3 - identity_3) ** 2).sum(1)
    return nll_M + distance_M * (RIDGE / 2)


@torch.no_grad()
def _fit(features_N3: Tensor, a_N: Tensor, identity_3: Tensor) -> Tensor:
    """Fit the map by Newton's method, with the best of several shares of each step; a share of 0 is among them.

    Every other step uses the curvature tanh(x / 2) / (2 x) of Jaakkola and Jordan's bound. Where wrong answers are
    saturated, the logistic's own curvature is 0 and Newton's step does not help.
    """
    share_S1 = features_N3.new_tensor(SHARES).unsqueeze(1)
    ridge_33 = RIDGE * torch.eye(3, dtype=features_N3.dtype, device=features_N3.device)
    map_3 = identity_3
    for step in range(STEPS):
        logit_N = features_N3 @ map_3
        mu_N = torch.sigmoid(logit_N)
        size_N = logit_N.abs().clamp_min(1e-6)
        curvature_N = mu_N * (1 - mu_N) if step % 2 else torch.tanh(size_N / 2) / (2 * size_N)
        gradient_3 = (mu_N - a_N) @ features_N3 + RIDGE * (map_3 - identity_3)
        hessian_33 = features_N3.T @ (curvature_N.unsqueeze(1) * features_N3) + ridge_33
        step_3 = torch.linalg.solve_ex(hessian_33, gradient_3).result
        maps_S3 = map_3 - share_S1 * step_3
        best = _objective(features_N3, a_N, maps_S3, identity_3).argmin(0, keepdim=True)
        map_3 = maps_S3.index_select(0, best).squeeze(0)
    return map_3
