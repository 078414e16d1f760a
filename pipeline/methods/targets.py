"""Shared by losses and changes of labels: targets, class indices (N,) or distributions (N, C), and stable powers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def distribution(targets: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """One-hot rows (N, C) for class indices; distributions as they are."""
    return (F.one_hot(targets, classes) if targets.ndim == 1 else targets).to(dtype)


def of_target(values_NC: Tensor, targets: Tensor) -> Tensor:
    """v_y (N,) for class indices; all of v (N, C) for distributions."""
    return values_NC.gather(1, targets.unsqueeze(1)).squeeze(1) if targets.ndim == 1 else values_NC


def expected(values: Tensor, targets: Tensor) -> Tensor:
    """Of what `of_target` selects: v_y for class indices, sum_k t_k v_k for distributions; shape (N,)."""
    return values if targets.ndim == 1 else (targets * values).sum(1)


def per_class(values_NC: Tensor, targets: Tensor) -> Tensor:
    """sum_k t_k v_k for distributions, v_y for class indices."""
    return expected(of_target(values_NC, targets), targets)


def one_minus(log_p: Tensor) -> Tensor:
    """1 - p from log p, without cancellation."""
    return -torch.expm1(log_p)


def power(base: Tensor, exponent: Tensor | float) -> Tensor:
    """base^exponent for base >= 0, with a finite derivative at 0: below the dtype's smallest number it is constant.

    For exponents under 1 the power's own derivative is infinite at 0, although that of the losses is 0 there.
    """
    return base.clamp_min(torch.finfo(base.dtype).tiny) ** exponent


def constant(weight: Tensor, gra: bool) -> Tensor:
    """The weight; with `gra` a constant for the gradient."""
    return weight.detach() if gra else weight
