"""Gradients of an objective and of penalties, taken separately and combined (survey, Training strategies)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


def nothing(_gradients: Sequence[Tensor]) -> None:
    """Of one process there is nothing to add up."""


def backward(
    objective: Tensor,
    apart: Sequence[tuple[float, Tensor]],
    net: nn.Module,
    add_up: Callable[[Sequence[Tensor]], None] = nothing,
) -> None:
    """Put into every parameter's `grad`: g + sum_j weight_j |g| h_j / |h_j|, where h_j = 0 contributes nothing.

    g is the gradient of the objective, h_j that of the j-th (weight, penalty) of `apart`; norms are over all
    parameters. Without `apart` it is the plain backward pass.

    The survey asks for gradients "computed separately, then combined with appropriate weighting", so that neither
    objective dominates, and gives no formula; equal norms times a weight are the project's. (A sum without the norms
    would be the gradient of the sum.)

    add_up: what several processes do with the gradients of each of the terms, in place, before norms are taken.
    """
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if not apart:
        torch.autograd.backward(objective)
        if add_up is not nothing:
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
    """Keeps the graph: objective and penalties share the net's."""
    return list(torch.autograd.grad(value, parameters, retain_graph=True, materialize_grads=True))
