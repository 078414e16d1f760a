"""Beta calibration fitted inside the loss: what it could still gain on the batch is the penalty."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.penalties.inputs import checked, correct

STEPS = 12  # least regular of 600 random batches (logits of spread 30, all but all wrong): 3e-7 nats left to gain
SHARES = (1.0, 0.5, 0.25, 0.1, 0.01, 0.0)
RIDGE = 1.0  # of one sample's weight, without which separable batches have no best map


def beta_joint(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """NLL(identity) - min over a, b, m of [NLL(beta map) + |(a, b, m) - (1, 1, 0)|^2 / (2 N)], nats; at least 0.

    The beta map is logit mu = a log c - b log(1 - c) + m of the confidence c (Kull et al. 2017), NLL the
    mean of -log mu if right, -log(1 - mu) if wrong. 0 if no such map improves on c. The fit is new for each batch;
    at its minimum its own gradient vanishes, so it is a constant for the penalty's (for its first derivative only).

    Raises:
        ValueError: inputs that do not fit.
    """
    logits = checked(logits_NC, labels_N)
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
    """Summed NLL and ridge of each map (M,)."""
    logit_NM = features_N3 @ maps_M3.T
    nll_M: Tensor = -F.logsigmoid(torch.where(a_N.unsqueeze(1) > 0, logit_NM, -logit_NM)).sum(0)
    distance_M: Tensor = ((maps_M3 - identity_3) ** 2).sum(1)
    return nll_M + distance_M * (RIDGE / 2)


@torch.no_grad()
def _fit(features_N3: Tensor, a_N: Tensor, identity_3: Tensor) -> Tensor:
    """Newton's method; of several shares of each step the best, none among them, so it never gets worse.

    Every other step takes the curvature tanh(x / 2) / (2 x) of Jaakkola and Jordan's bound: where wrong answers are
    saturated, the logistic's own is 0 and Newton's step goes nowhere.
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
