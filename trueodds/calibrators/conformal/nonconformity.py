"""Nonconformity scores: how unusual each class would be as the true one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trueodds.errors import unknown
from trueodds.processes.choices import SET_METHODS, SetMethod
from trueodds.sums.inputs import Array, check_probabilities

RANKED: tuple[SetMethod, ...] = ("aps", "raps")
"""Methods that add up sorted probabilities. They need three classes."""
_PERSON = b"trueodds set"
"""Personalisation of the hash, which keeps this draw independent of other draws with the same id."""


def draws_of(ids: Sequence[str]) -> Array:
    """Draw a number in [0, 1) for each id. The number is always the same for an id.

    Examples:
        >>> conformal.draws_of(["a", "b", "a"]).round(3)
        array([0.125, 0.76 , 0.125])
    """
    texts = (id_.encode("utf-8", "surrogatepass") for id_ in ids)
    hashes = (hashlib.blake2b(text, digest_size=7, person=_PERSON).digest() for text in texts)
    return np.array([int.from_bytes(digest, "big") * 2.0**-56 for digest in hashes], np.float64)


def check_method(method: object, classes: int) -> None:
    """Check a method's name, and that it works with so many classes.

    Raises:
        ConfigError: The name is unknown.
        ValueError: There is one class, or the method needs three.
    """
    if method not in SET_METHODS:
        raise unknown("conformal method", method, SET_METHODS)
    if classes < 2:
        raise ValueError(f"there is {classes} class; a set needs at least two classes")
    if classes == 2 and method in RANKED:
        raise ValueError(
            f"{method} needs three classes or more, and there are two; use lac or class, or choose a threshold of the"
            " confidence (trueodds threshold)"
        )


def scores_of(
    probabilities_NC: npt.ArrayLike,
    method: SetMethod,
    draws_N: npt.ArrayLike,
    *,
    penalty: float = 0.0,
    free_ranks: int = 0,
) -> Array:
    """Compute the score of every class of every row.

    With p the row's probabilities, r_k the rank of class k among them (1 for the largest; equal ones by their index)
    and u the row's draw:

        lac, class:   s_k = 1 - p_k
        aps:          s_k = sum of p_j over r_j < r_k, + u p_k
        raps:         s_k = aps + penalty max(0, r_k - free_ranks)

    Args:
        probabilities_NC: Calibrated probabilities, shape (N, C).
        method: Name of the method.
        draws_N: Uniform numbers in [0, 1), shape (N,). lac and class do not use them.
        penalty: Penalty of raps for each rank, from 0 on.
        free_ranks: Number of ranks without a penalty (k_reg).

    Returns:
        Scores, shape (N, C).

    Raises:
        ConfigError: The method is unknown.
        ValueError: The probabilities are invalid, there are too few classes, or the draws have another length.

    References:
        Sadinle, Lei and Wasserman 2019, Least Ambiguous Set-Valued Classifiers; Romano, Sesia and Candes 2020,
        Classification with Valid and Adaptive Coverage; Angelopoulos et al. 2021, Uncertainty Sets for Image
        Classifiers using Conformal Prediction.

    Examples:
        >>> conformal.scores_of([[0.5, 0.3, 0.2]], "aps", [0.5])
        array([[0.25, 0.65, 0.9 ]])
    """
    p_NC = check_probabilities(probabilities_NC).astype(np.float64, copy=False)
    check_method(method, p_NC.shape[1])
    if method not in RANKED:
        lac_NC: Array = 1.0 - p_NC
        return lac_NC
    draws = np.asarray(draws_N, np.float64)
    if draws.shape != (len(p_NC),):
        raise ValueError(f"draws has shape {draws.shape}; expected ({len(p_NC)},), one number in [0, 1) per row")
    order_NC = np.argsort(-p_NC, axis=1, kind="stable")
    sorted_NC = np.take_along_axis(p_NC, order_NC, axis=1)
    ranked_NC = sorted_NC.cumsum(axis=1) - sorted_NC * (1 - draws[:, None])
    if method == "raps":
        ranked_NC += penalty * np.maximum(0, np.arange(1, p_NC.shape[1] + 1) - free_ranks)
    scores_NC = np.empty_like(ranked_NC)
    np.put_along_axis(scores_NC, order_NC, ranked_NC, axis=1)
    return scores_NC
