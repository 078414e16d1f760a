"""Sharpness-aware minimisation (SAM): a step along the gradient at the worst weights nearby."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def at_worst_weights(net: nn.Module, rho: float) -> Iterator[None]:
    """Move the weights by rho g / |g| inside the block, where g is the gradient in their `grad`; then move them back.

    The norm is over all weights that learn. Without a gradient (|g| = 0) the weights stay. Inside the block, batch
    normalisation uses the batch's statistics and leaves its running statistics as they are: they belong to the
    weights that the net keeps.

    Args:
        net: The net, after a backward pass.
        rho: Radius of the step, from above 0.

    References:
        Foret et al. 2021, Sharpness-Aware Minimization for Efficiently Improving Generalization, equation 2 (p = 2).

    Examples:
        >>> net = nn.Linear(2, 1, bias=False)
        >>> _ = net.weight.data.fill_(1.0)
        >>> net.weight.grad = torch.tensor([[3.0, 4.0]])
        >>> with at_worst_weights(net, 0.5):
        ...     print(net.weight.data)
        tensor([[1.3000, 1.4000]])
        >>> net.weight.data
        tensor([[1., 1.]])
    """
    moved = [parameter for parameter in net.parameters() if parameter.grad is not None]
    gradients = [parameter.grad for parameter in moved if parameter.grad is not None]
    kept = [parameter.detach().clone() for parameter in moved]
    counting = [module for module in net.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    with torch.no_grad():
        norm = nn.utils.get_total_norm(gradients) if gradients else torch.zeros(())
        scale = torch.where(norm > 0, rho / norm.clamp_min(torch.finfo(norm.dtype).tiny), 0)
        for parameter, gradient in zip(moved, gradients, strict=True):
            parameter.add_(gradient * scale)
    for module in counting:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in counting:
            module.track_running_stats = True
        _restore(moved, kept)


@torch.no_grad()
def _restore(parameters: Sequence[nn.Parameter], values: Sequence[Tensor]) -> None:
    """Give parameters their earlier values, bit for bit."""
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
