"""Shared by losses and changes of labels: targets, class indices (N,) or distributions (N, C), and stable powers."""

from __future__ import annotations

import functools
from collections.abc import Sequence

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


def of_class(value: float | Sequence[float], logits_NC: Tensor, targets: Tensor) -> Tensor | float:
    """One number for all classes as it is; of a number for each class what `of_target` selects.

    Raises:
        ValueError: there is another number of them than of classes.
    """
    if isinstance(value, int | float):
        return value
    if len(value) != logits_NC.shape[1]:
        raise ValueError(f"{len(value)} numbers are given for {logits_NC.shape[1]} classes; give one for each class")
    return of_target(_on(tuple(value), logits_NC.device, logits_NC.dtype).expand_as(logits_NC), targets)


@functools.lru_cache(maxsize=16)
def _on(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # a tensor kept from inference mode could not be used in training
        return torch.tensor(values, dtype=dtype, device=device)


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
