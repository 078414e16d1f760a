"""Helpers of the penalties: checks of inputs, top-1 confidence and correctness, and a root with a gradient at 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor


def check_inputs(logits_NC: Tensor, labels_N: Tensor, *, rows: int = 1) -> Tensor:
    """Check the inputs and return the logits, raised to float32 from half precision.

    Kernels and bins are narrower than the steps of half precision near 1.

    Raises:
        ValueError: Shapes, types or labels are invalid, or there are fewer than two classes or than `rows` rows.
    """
    if logits_NC.ndim != 2 or labels_N.shape != logits_NC.shape[:1] or logits_NC.shape[1] < 2:
        shapes = f"logits {tuple(logits_NC.shape)} and labels {tuple(labels_N.shape)}"
        raise ValueError(f"{shapes} do not fit; expected (N, C) and (N,) with C at least 2")
    if len(labels_N) < rows:
        reason = "it compares pairs of rows; raise batch_size" if rows > 1 else "an empty batch has no mean"
        raise ValueError(f"logits have {len(labels_N)} rows; this penalty needs at least {rows}, because {reason}")
    if not logits_NC.is_floating_point() or labels_N.dtype != torch.int64:
        types = f"logits are {logits_NC.dtype}, labels {labels_N.dtype}"
        raise ValueError(f"{types}; expected floating point and int64 class indices")
    # On CUDA, reading the labels would wait for the queue. The gather of the primary loss checks the range there.
    if labels_N.device.type == "cpu":
        low, high = int(labels_N.min()), int(labels_N.max())
        if low < 0 or high >= logits_NC.shape[1]:
            raise ValueError(f"labels run from {low} to {high}; allowed are 0 to {logits_NC.shape[1] - 1}")
    return logits_NC if logits_NC.dtype == torch.float64 else logits_NC.float()


def positive(**options: float) -> None:
    """Raise ValueError unless every option is a finite number above 0; `bins` must be a whole number."""
    for name, value in options.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}; allowed are numbers above 0")
    bins: object = options.get("bins", 1)
    if not isinstance(bins, Integral):
        raise ValueError(f"bins is {bins}; allowed are whole numbers from 1 up")


def one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise ValueError unless `value` is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; allowed: {', '.join(map(repr, choices))}")


def correct(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Return correctness a = 1[argmax z = y] (N,); of equal logits the first is the answer."""
    return (logits_NC.detach().argmax(1) == labels_N).to(logits_NC.dtype)


def top(logits_NC: Tensor, labels_N: Tensor, probabilities_NC: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return confidence c = p_answer and correctness a = 1[answer = y], both (N,), where answer = argmax z.

    The argmax is over logits, not probabilities: saturated probabilities are equal although the logits differ.
    """
    p_NC = torch.softmax(logits_NC, 1) if probabilities_NC is None else probabilities_NC
    answer_N = logits_NC.detach().argmax(1)
    return p_NC.gather(1, answer_N.unsqueeze(1)).squeeze(1), (answer_N == labels_N).to(p_NC.dtype)


def soft_correct(probabilities_NC: Tensor, labels_N: Tensor, temperature: float) -> Tensor:
    """Return the all-pairs soft accuracy relu(2 - rank), rank = 1/2 + sum_j sigmoid((p_j - p_y) / temperature); (N,).

    The true class itself adds 1/2, so the top answer has rank 1 (Qin et al. 2010; Bohdal et al. 2021).
    """
    true_N1 = probabilities_NC.gather(1, labels_N.unsqueeze(1))
    rank_N = 0.5 + torch.sigmoid((probabilities_NC - true_N1) / temperature).sum(1)
    return torch.relu(2 - rank_N)


def root(value: Tensor, order: float) -> Tensor:
    """Return max(value, 0)^(1 / order) with gradient 0, not infinity, at 0; NaN stays NaN."""
    if order == 1:
        return value
    nothing = value <= 0
    return torch.where(nothing, 0.0, torch.where(nothing, 1.0, value) ** (1 / order))
