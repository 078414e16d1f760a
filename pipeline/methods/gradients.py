"""Gradients of an objective and of penalties, computed separately and then combined (survey, Training strategies)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


def add_nothing(_gradients: Sequence[Tensor]) -> None:
    """Do nothing: with one process there are no gradients to add up."""


def backward(
    objective: Tensor,
    apart: Sequence[tuple[float, Tensor]],
    net: nn.Module,
    add_up: Callable[[Sequence[Tensor]], None] = add_nothing,
) -> None:
    """Write g + sum_j weight_j |g| h_j / |h_j| into the `grad` of every parameter.

    g is the gradient of the objective and h_j that of the j-th penalty. Norms are over all parameters. A term with
    h_j = 0 is 0. If `apart` is empty, this is the plain backward pass.

    The survey asks for gradients "computed separately, then combined with appropriate weighting", so that no objective
    dominates, and gives no formula. Equal norms times a weight are this project's choice. (A sum without the norms
    would be the gradient of the sum.)

    Args:
        objective: Scalar objective.
        apart: Pairs (weight, penalty).
        net: The net whose parameters get the gradient.
        add_up: Function that sums the gradients of one term over all processes, in place, before norms are computed.
    """
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if not apart:
        torch.autograd.backward(objective)
        if add_up is not add_nothing:
            for parameter in parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            add_up([parameter.grad for parameter in parameters if parameter.grad is not None])
        return
    total = _gradient(objective, parameters)
    add_up(total)
    norm = nn.utils.get_total_norm(total)
    for weight, penalty in apart:
        own = _gradient(penalty, parameters)
        add_up(own)
        size = nn.utils.get_total_norm(own)
        scale = torch.where(size > 0, weight * norm / size.clamp_min(torch.finfo(size.dtype).tiny), 0)
        total = [g + scale * h for g, h in zip(total, own, strict=True)]
    for parameter, gradient in zip(parameters, total, strict=True):
        parameter.grad = gradient


def _gradient(value: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """Return the gradient of a scalar; keep the graph, which objective and penalties share."""
    return list(torch.autograd.grad(value, parameters, retain_graph=True, materialize_grads=True))
