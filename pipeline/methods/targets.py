"""Helpers for targets, class indices (N,) or distributions (N, C), and powers with finite derivatives."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def distribution(targets: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Return one-hot rows (N, C) for class indices; return distributions unchanged."""
    return (F.one_hot(targets, classes) if targets.ndim == 1 else targets).to(dtype)


def of_target(values_NC: Tensor, targets: Tensor) -> Tensor:
    """Return v_y (N,) for class indices; return all of v (N, C) for distributions."""
    return values_NC.gather(1, targets.unsqueeze(1)).squeeze(1) if targets.ndim == 1 else values_NC


def expectation(values: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of values from `of_target` (N,): v_y for class indices, sum_k t_k v_k for distributions."""
    return values if targets.ndim == 1 else (targets * values).sum(1)


def per_class(values_NC: Tensor, targets: Tensor) -> Tensor:
    """Return v_y for class indices, sum_k t_k v_k for distributions; (N,)."""
    return expectation(of_target(values_NC, targets), targets)


def of_class(value: float | Sequence[float], logits_NC: Tensor, targets: Tensor) -> Tensor | float:
    """Return the number that belongs to each target.

    One number for all classes is returned unchanged. From one number per class, select as `of_target` does.

    Raises:
        ValueError: The count of numbers is not the count of classes.
    """
    if isinstance(value, int | float):
        return value
    if len(value) != logits_NC.shape[1]:
        raise ValueError(f"got {len(value)} numbers for {logits_NC.shape[1]} classes; give one number per class")
    return of_target(_on(tuple(value), logits_NC.device, logits_NC.dtype).expand_as(logits_NC), targets)


@functools.lru_cache(maxsize=16)
def _on(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the values as a tensor on the device, from a cache."""
    with torch.inference_mode(False):  # a tensor cached in inference mode could not be used in training
        return torch.tensor(values, dtype=dtype, device=device)


def one_minus(log_p: Tensor) -> Tensor:
    """Return 1 - p from log p, without cancellation."""
    return -torch.expm1(log_p)


def power(base: Tensor, exponent: Tensor | float) -> Tensor:
    """Return base^exponent for base >= 0, with a finite derivative at 0.

    Below the dtype's smallest number the result is constant. For exponents under 1 the derivative of the power is
    infinite at 0, although that of the losses is 0 there.
    """
    return base.clamp_min(torch.finfo(base.dtype).tiny) ** exponent


def constant(weight: Tensor, gra: bool) -> Tensor:
    """Return the weight; with `gra` detach it, so that it is a constant for the gradient."""
    return weight.detach() if gra else weight
