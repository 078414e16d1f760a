"""Acting alone: the lowest confidence from which answers may act without a person, with a bound on their errors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.decisions.risk import least_count, least_counts, risk_p_value
from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.sums.frames import check_index
from trueodds.sums.inputs import (
    GAP_CURE,
    Array,
    as_array,
    as_numbers,
    as_numbers_with_gaps,
    as_vector,
    is_number,
    range_error,
    without_noise,
)

Reason = Literal["certified", "too_few", "none"]
JUDGED = 20
"""Smallest number of labelled answers, the ones with the highest confidences, that an error rate is estimated from.

The estimate gives the number of labels that are still needed.
"""
SURE = 0.99
"""Probability of passing, under the guess of `_first`, that is enough for the first threshold."""
LEAST_SHARE = 0.05
"""Smallest share of the answers that is worth acting alone. The reason "none" refers to shares from here on."""
LOSSES = 200
"""Largest number of counts of wrong answers that the choice of the first threshold evaluates."""
_MOST_LABELS = 10**8
_ALLOWED = "allowed are 0 and 1, or False and True, and NaN where there is no label"


@dataclass(frozen=True)
class ActingThreshold:
    """The confidence from which answers may act alone, and the labelled answers that show it.

    Examples:
        >>> found = trueodds.threshold([0.99] * 59, [1] * 59)
        >>> found.threshold, found.reason, found.acted, found.wrong
        (0.99, 'certified', 59, 0)
    """

    threshold: float | None
    """Answers with at least this confidence may act. None: no answer may act, or each group has its own threshold."""
    risk: float
    """Largest share of wrong answers among those that act. With costs, their largest mean cost."""
    confidence: float
    """Probability, over the labels, that the bound holds. With groups, that it holds in all of them at once."""
    answers: int
    """Number of answers, with or without a label."""
    labels: int
    acted: int
    """Number of labelled answers that would have acted."""
    wrong: int
    """Number of wrong answers among `acted`."""
    loss: float
    """Mean loss of `acted`: wrong / acted, or the mean cost; 0 if there are none."""
    share: float
    """Share of all answers, labelled or not, that would act."""
    share_lower: float
    """Clopper-Pearson limit of the share at `confidence`, at the chosen threshold."""
    share_upper: float
    reason: Reason
    """Reason for the result: "certified", "too_few" or "none".

    too_few: there are too few labels for a decision. none: even the 5% of the answers with the highest confidences are
    wrong too often.
    """
    more_labels: int | None = None
    """Estimated number of labels still needed, if there are too few.

    None: the number suffices, but the case is not clear.
    """
    tried: int = 0
    """Number of labelled answers above the first threshold that was tested; 0 if there were too few for a test."""
    tried_wrong: int = 0
    group: str = ""
    """Name of the group."""
    groups: tuple[ActingThreshold, ...] = ()
    """One result per group, by name, each at the confidence 1 - (1 - confidence) / groups."""


def threshold(
    confidence_N: npt.ArrayLike,
    correct_N: npt.ArrayLike,
    *,
    risk: float = 0.05,
    confidence: float = 0.95,
    groups_N: npt.ArrayLike | None = None,
    cost_N: npt.ArrayLike | None = None,
) -> ActingThreshold:
    """Find the lowest confidence from which at most `risk` of the answers are wrong, with probability `confidence`.

    The method is Learn then Test in a fixed sequence. The candidates are the confidences that occur, from a first one
    downwards. Each is tested by the exact binomial p-value P(Bin(acted, risk) <= wrong) at the significance level 1 -
    confidence. The search ends at the first candidate that fails, and the candidate before it is the result. No further
    correction is needed, because the order does not depend on labels. Equal confidences act together.

    The first candidate also depends on the confidences alone. Assume that an answer of confidence c is wrong with
    probability 2 (1 - c) + .2 risk + s r / n, where r is its rank and s is the smaller of 2 risk and 4 mean(1 - c). The
    first candidate is the one with the fewest acting answers that then passes its test with a probability of 99%. For a
    risk of 5% at 95% confidence it has at least 59 acting answers. If no candidate reaches 99%, the one with the
    largest probability comes first. This guess affects how much is certified, but never whether the bound holds.

    The bound assumes that the labelled answers are drawn independently from those that will act, and chosen without
    regard to their correctness. `cost_N` gives each answer's cost if it is wrong. Then `risk` bounds the mean cost of
    an answer that acts, by Hoeffding and Bentkus if costs differ. No later cost may exceed the largest one given.

    Args:
        confidence_N: Confidence of each answer, in [0, 1].
        correct_N: 1 if the answer is right, 0 if it is wrong, NaN (or None, or pandas' NA) if it has no label.
        risk: Largest share of wrong answers, inside (0, 1). With costs, largest mean cost, in their unit.
        confidence: Probability with which the bound holds, inside (0, 1).
        groups_N: Name of each answer's group. Each group gets its own threshold, and 1 - confidence is divided evenly.
        cost_N: Cost of each answer if it is wrong, above 0.

    Returns:
        The threshold, the labelled answers that support it, and the reason if there is none.

    Raises:
        ValueError: Shapes differ, confidences are outside [0, 1], labels are not 0, 1 or NaN, the risk is not a share
            or not below the largest cost, or `confidence` is outside (0, 1).

    References:
        Angelopoulos et al. 2022, Learn then Test: calibrating predictive algorithms to achieve risk control.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> confidence_N = rng.uniform(0.5, 1, 4_000)
        >>> found = trueodds.threshold(confidence_N, rng.random(4_000) < confidence_N)
        >>> print(f"{found.threshold:.3f}: {found.share:.1%} ({found.share_lower:.1%} to {found.share_upper:.1%})")
        0.930: 13.5% (12.5% to 14.6%)
        >>> trueodds.threshold([0.99] * 58, [1] * 58).more_labels
        1
    """
    check_index(confidence=confidence_N, correct=correct_N, cost=cost_N, groups=groups_N)
    c_N, right_N, price_N = _check(confidence_N, correct_N, cost_N, risk, confidence)
    if groups_N is None:
        return _of_group(c_N, right_N, price_N, risk, 1 - confidence, confidence)
    names_N = as_vector(as_array(groups_N, "groups"))
    if names_N.dtype.kind == "f" and np.isnan(names_N).any():
        raise ValueError(f"groups[{int(np.isnan(names_N).argmax())}] is nan, a missing value; {GAP_CURE}")
    if names_N.shape != c_N.shape:
        raise ValueError(f"groups {names_N.shape} must be a vector of one name for each of {len(c_N):,} answers")
    names, code_N = np.unique(names_N.astype(str), return_inverse=True)
    alpha, each = (1 - confidence) / len(names), 1 - (1 - confidence) / len(names)
    results = []
    for code, name in enumerate(names.tolist()):
        own_N = code_N == code
        one = _of_group(c_N[own_N], right_N[own_N], price_N[own_N], risk, alpha, each)
        results.append(replace(one, group=name))
    return _combine(results, risk, confidence)


def _check(
    confidence_N: npt.ArrayLike, correct_N: npt.ArrayLike, cost_N: npt.ArrayLike | None, risk: float, confidence: float
) -> tuple[Array, Array, Array]:
    if not is_number(confidence) or not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence!r}; allowed is (0, 1), such as 0.95")
    c_N = without_noise(as_vector(as_numbers(confidence_N, "confidence")).astype(np.float64))
    right_N = as_vector(as_numbers_with_gaps(correct_N, "correct", _ALLOWED))
    price_N = np.ones(c_N.shape) if cost_N is None else as_vector(as_numbers(cost_N, "cost")).astype(np.float64)
    if c_N.ndim != 1 or right_N.shape != c_N.shape or price_N.shape != c_N.shape:
        shapes = f"confidence {c_N.shape}, correct {right_N.shape} and cost {price_N.shape}"
        raise ValueError(f"{shapes} must be vectors of one length: give each answer's confidence")
    if not len(c_N):
        raise ValueError("there are no answers; give at least one")
    if not ((c_N >= 0) & (c_N <= 1)).all():
        raise range_error(c_N, "confidence")
    bad_N = ~np.isnan(right_N) & (right_N != 0) & (right_N != 1)
    if bad_N.any():
        raise ValueError(f"correct holds {right_N[bad_N][0]}; {_ALLOWED}")
    if not (np.isfinite(price_N) & (price_N > 0)).all():
        raise ValueError(
            "cost holds a value that is not a positive number; give the cost of each answer if it is wrong"
        )
    most = float(price_N.max())
    if not (is_number(risk) and 0 < risk < most):
        unit = "(0, 1)" if cost_N is None else f"(0, {most:g}): no answer costs more than the most expensive error"
        raise ValueError(f"risk is {risk!r}; allowed is {unit}")
    return c_N, right_N, price_N


def _of_group(
    c_N: Array, right_N: Array, price_N: Array, risk: float, alpha: float, confidence: float
) -> ActingThreshold:
    known_N = ~np.isnan(right_N)
    order = np.argsort(-c_N[known_N], kind="stable")
    c_L, price_L = c_N[known_N][order], price_N[known_N][order]
    wrong_L = 1 - right_N[known_N][order]
    n, most = len(c_L), float(price_N.max())
    limit, binary = risk / most, bool((price_N == most).all())
    empty = ActingThreshold(None, risk, confidence, len(c_N), n, 0, 0, 0.0, 0.0, 0.0, 0.0, "too_few")
    count_L, total_L = np.cumsum(wrong_L), np.cumsum(price_L * wrong_L)
    if limit >= 1:  # no error of this group costs more than the risk, so all of its answers may act
        return _certify(empty, c_N, float(c_N.min()), count_L, total_L, n)
    needed = least_count(limit, alpha)
    loss_L = total_L / most
    if n < needed:
        more = _more(loss_L, limit, alpha, binary, needed)
        return replace(empty, more_labels=more or math.ceil(needed / LEAST_SHARE) - n)
    start = _first(c_L, price_L / most, limit, alpha, binary)
    ends_K = np.append(np.flatnonzero(np.diff(c_L)), n - 1)  # the last of each run of equal confidences
    ends_K = ends_K[ends_K + 1 >= start]
    changed_M = np.append(0, np.flatnonzero(np.diff(loss_L[ends_K])) + 1)  # p rises only with a new error
    fails_M = risk_p_value(loss_L[ends_K[changed_M]], ends_K[changed_M] + 1, limit, binary=binary) > alpha
    first = int(ends_K[0])
    tried = replace(empty, tried=first + 1, tried_wrong=round(float(count_L[first])))
    passed = int(changed_M[fails_M.argmax()]) if fails_M.any() else len(ends_K)
    if not passed:
        more = _more(loss_L, limit, alpha, binary, needed)
        surest = math.ceil(n * LEAST_SHARE)
        if more is None and surest >= JUDGED:
            sets = np.array([surest, first + 1])
            if (scipy.special.bdtr(np.ceil(loss_L[sets - 1]) - 1, sets, limit) >= 1 - alpha).all():
                return replace(tried, reason="none")
        return replace(tried, more_labels=more or max(math.ceil(needed / LEAST_SHARE) - n, 0) or None)
    last = int(ends_K[passed - 1])
    return _certify(tried, c_N, float(c_L[last]), count_L, total_L, last + 1)


def _certify(
    base: ActingThreshold, c_N: Array, at: float, count_L: Array, total_L: Array, count: int
) -> ActingThreshold:
    """Return the result for the threshold `at`, which lets the first `count` labelled answers act."""
    acting = int((c_N >= at).sum())
    lower, upper = binomial_interval(acting, len(c_N), level=base.confidence)
    return replace(
        base,
        threshold=at,
        acted=count,
        wrong=round(float(count_L[count - 1])) if count else 0,
        loss=float(total_L[count - 1] / count) if count else 0.0,
        share=acting / len(c_N),
        share_lower=float(lower),
        share_upper=float(upper),
        reason="certified",
    )


def _first(c_L: Array, price_L: Array, risk: float, alpha: float, binary: bool) -> int:
    """Choose how many answers the first threshold lets act, from confidences alone (see `threshold`)."""
    n = len(c_L)
    rank_L, doubt_L = np.arange(1, n + 1), 1 - c_L
    slope = min(2 * risk, 4 * float(doubt_L.mean()))
    guess_L = np.minimum(2 * doubt_L + 0.2 * risk + slope * rank_L / n, 1) * price_L
    mean_L = np.cumsum(guess_L) / rank_L
    loss_K = np.unique(np.geomspace(1, n * risk + 1, LOSSES).round()) - 1
    acted_K = least_counts(loss_K, risk, alpha, n, binary=binary)
    loss_K, acted_K = loss_K[acted_K <= n], acted_K[acted_K <= n].astype(np.int64)
    passes_K = scipy.special.bdtr(loss_K, acted_K, mean_L[acted_K - 1])
    sure_K = np.flatnonzero(passes_K >= SURE)
    return int(acted_K[sure_K[0] if len(sure_K) else passes_K.argmax()])


def _more(loss_L: Array, risk: float, alpha: float, binary: bool, least: int) -> int | None:
    """Estimate how many more labels would certify some threshold, if the error rates stay as they are.

    The error rate of the k answers with the highest confidences is estimated as (loss + 1/2) / (k + 1). The k that
    needs the fewest labels counts. None: no k has a rate below the risk. Then the caller requests the labels that would
    show the top 5%.
    """
    n = len(loss_L)
    if n < least and (n < JUDGED or not loss_L[-1]):
        return least - n
    rank_K = np.unique(np.geomspace(min(JUDGED, n), n, 30).astype(int))
    rate_K = (loss_L[rank_K - 1] + 0.5) / (rank_K + 1)
    rank_K, rate_K = rank_K[rate_K < risk], rate_K[rate_K < risk]
    if not len(rank_K):
        return None
    acted_M = np.ceil(np.geomspace(least, _MOST_LABELS, 150))
    p_KM = risk_p_value(np.floor(rate_K[:, None] * acted_M), acted_M[None], risk, binary=binary)
    reached_K = (p_KM <= alpha).any(axis=1)
    if not reached_K.any():
        return None
    acted_K = acted_M[(p_KM <= alpha).argmax(axis=1)][reached_K]
    more = max(float((acted_K * n / rank_K[reached_K]).min()) - n, least)
    digits = 1 - math.floor(math.log10(more))
    return math.ceil(round(more * 10**digits, 6)) * 10**-digits if digits < 0 else math.ceil(more)


def _combine(results: list[ActingThreshold], risk: float, confidence: float) -> ActingThreshold:
    """Combine the results of the groups. Each group keeps its own threshold."""
    reasons: tuple[Reason, ...] = ("certified", "too_few", "none")
    answers, acted = sum(one.answers for one in results), sum(one.acted for one in results)
    acting = round(sum(one.share * one.answers for one in results))
    lower, upper = binomial_interval(acting, answers, level=confidence) if acting else (0.0, 0.0)
    return ActingThreshold(
        threshold=None,
        risk=risk,
        confidence=confidence,
        answers=answers,
        labels=sum(one.labels for one in results),
        acted=acted,
        wrong=sum(one.wrong for one in results),
        loss=sum(one.loss * one.acted for one in results) / max(acted, 1),
        share=acting / answers,
        share_lower=float(lower),
        share_upper=float(upper),
        reason=next(reason for reason in reasons if any(one.reason == reason for one in results)),
        groups=tuple(results),
    )
