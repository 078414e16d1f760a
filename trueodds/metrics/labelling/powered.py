"""Prediction-powered estimates: few human labels, and a judge's label of every answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.inputs import Array, as_numbers, as_numbers_with_gaps, check_level, range_error

FEWEST = 30
"""Smallest number of human labels for an estimate of all answers."""
FEWEST_EFFECTIVE = 10.0
"""Smallest effective number of human labels, in a bin of confidence too."""
UNLIKE = 0.001
"""p-value below which the judge's labels show that human labels are no random sample."""


@dataclass(frozen=True)
class PoweredMean:
    """Mean of all answers, from human labels and a judge's labels, beside that from the human labels alone.

    Examples:
        >>> human = [1, 1, 1, 0] * 25 + [None] * 900
        >>> judge = [1, 1, 1, 0] * 250
        >>> mean = metrics.powered_mean(human, judge)
        >>> print(f"{mean.lower:.3f} to {mean.upper:.3f}, worth {mean.saving:.1f}")
        0.713 to 0.786, worth 5.4
        >>> print(f"human labels alone: {mean.human_lower:.3f} to {mean.human_upper:.3f}")
        human labels alone: 0.655 to 0.826
    """

    value: float
    lower: float
    upper: float
    human_value: float
    """Estimate from the human labels alone."""
    human_lower: float
    human_upper: float
    weight: float
    """Weight of the judge, from 0 (its labels are not used) to 1."""
    saving: float
    """Squared ratio of the two intervals' widths before they are cut: how many times as many human labels it is worth.
    At least 1.
    """
    squared_correlation: float
    """Squared correlation of the judge's labels with the human ones, weighted; 0 if either does not vary."""
    labels: int
    """Human labels."""
    answers: int
    effective_n: float
    """Kish's effective number of human labels: (sum w)^2 / sum w^2."""
    unlike_p_value: float
    """p-value of the null hypothesis that the human labels are a random sample with the given propensities."""

    @property
    def unlike(self) -> bool:
        """Whether the judge's labels of the sample differ from those of all answers by more than chance."""
        return self.unlike_p_value < UNLIKE


def powered_mean(
    human_N: npt.ArrayLike,
    judge_N: npt.ArrayLike,
    *,
    propensity_N: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> PoweredMean:
    """Estimate the mean of all answers from few human labels and a judge's labels, by prediction-powered inference.

    With y the human label, g the judge's, w = 1 / propensity, and means y_L, g_L over the human labels weighted by w:

        estimate = y_L + b (g_N - g_L),    g_N = mean of the judge's labels over all N answers

    The judge's bias cancels, whatever it is. The weight b in [0, 1] minimises the estimated variance

        V(b) = sum over all answers of (b (g - g_N) / N + a (e - e_L))^2,    e = y - b g,    a = w / sum w

    where a = 0 without a human label. For a plain sample this is b^2 var(g) / N + var(e) / n + 2 b cov(g, e) / N. In
    the notation of PPI++, lambda = b (1 - n / N). With b = 0 it is the estimate from the human labels alone. The
    interval is never wider than that one, on any sample. Only the cut at 0 and 1 may reverse this.

    Wald intervals fail with few labels: if the judge agrees with all of them, its errors look impossible. So four
    pairs (y, g), (0, 0) to (1, 1), are added as z^2 / 4 human labels each (Agresti and Coull; z is the normal
    quantile). The interval is `centre -+ t sqrt(V)`. Student's t has (sum w^2)^2 / sum w^4 - 1 degrees of freedom
    (Satterthwaite). V takes n_eff = (sum w)^2 / sum w^2 as the number of labels. The same is done for the human labels
    alone. For b, labels and pairs are each taken about their own mean. If that b exceeds the minimiser of V with the
    pairs, the latter is used.

    If kinds of answers differ in accuracy and propensity, each needs a few human labels. Coverage was at least .93 in
    21 settings with 3 and more expected labels of each kind, and .84 with 1.8 of one kind.

    Answers without a judge's label count with the judge's mean. This is unbiased if the judge does not know which
    answers have a human label.

    Measured (benchmarks/evidence/judged.py) in 676 settings of shares and nets: coverage .975 on average and at least
    .90, in samples of 100 to 500. With a squared correlation of 2/3 and 200 answers for each human label, the judge is
    worth 2.9 times as many human labels if there are 1,000, and 2.2 times if there are 30. The least is 1.0.

    Args:
        human_N: Human label of each answer as a number in [0, 1], such as whether it is right; NaN or None without one.
        judge_N: The judge's label of each answer, in [0, 1]; NaN or None without one.
        propensity_N: Probability with which each answer was chosen for a human label, in (0, 1]. Answers without a
            human label may have NaN. Human labels with NaN are left out. None: the human labels are a plain random
            sample.
        level: Confidence level of both limits together, inside (0, 1).

    Returns:
        The estimate. Its interval is about the population from which the answers come.

    Raises:
        ValueError: Shapes differ, a value is outside its range, `level` is outside (0, 1), there are fewer than 30
            human labels or an effective number below 10, or the judge labelled only answers with a human label or only
            answers without one.

    References:
        Angelopoulos, Bates, Fannjiang, Jordan and Zrnic 2023, Prediction-powered inference, Science 382.
        Angelopoulos, Duchi and Zrnic 2023, PPI++: efficient prediction-powered inference, section 6 (power tuning).
        Cassel, Sarndal and Wretman 1976, Some results on generalized difference estimation.
        Agresti and Coull 1998, Approximate is better than "exact".
        Satterthwaite 1946, An approximate distribution of estimates of variance components.

    Examples:
        >>> human, judge = [1, 1, 1, 0] * 25 + [None] * 900, [1, 1, 1, 0] * 250
        >>> round(metrics.powered_mean(human, judge).value, 3)
        0.75
    """
    human, judge = _optional(human_N, "human"), _optional(judge_N, "judge")
    return _estimate(human, judge, _propensities(propensity_N, human), (0.0, 1.0), level, FEWEST)


def powered_gap(
    confidence_N: npt.ArrayLike,
    human_N: npt.ArrayLike,
    judge_N: npt.ArrayLike,
    *,
    propensity_N: npt.ArrayLike | None = None,
    level: float = 0.95,
    fewest: int = FEWEST,
) -> PoweredMean:
    """Estimate accuracy minus mean confidence of all answers, or of those in a bin, from human and judge's labels.

    It is the estimate of `powered_mean` for y = human - confidence and g = judge - confidence. Negative means
    over-confident. The added pairs have the mean confidence c: they are (-c, -c) to (1 - c, 1 - c). If people choose
    answers by the judge's labels, the gap is biased without propensities.

    Args:
        confidence_N: Confidence of each answer, in [0, 1].
        human_N: Whether each answer is right by its human label; NaN or None without one.
        judge_N: Whether each answer is right by the judge's label; NaN or None without one.
        propensity_N: As for `powered_mean`.
        level: Confidence level of both limits together, inside (0, 1).
        fewest: Smallest number of human labels, at least 10.

    Returns:
        The estimate, with limits in [-c, 1 - c].

    Raises:
        ValueError: As for `powered_mean`; a confidence is outside [0, 1], or `fewest` is below 10.

    Examples:
        >>> human, judge = [1, 1, 1, 0] * 25 + [None] * 900, [1, 1, 1, 0] * 250
        >>> gap = metrics.powered_gap([0.9, 0.9, 0.7, 0.9] * 250, human, judge)
        >>> print(f"{gap.value:.3f}, {gap.lower:.3f} to {gap.upper:.3f}")
        -0.100, -0.139 to -0.062
    """
    if not fewest >= FEWEST_EFFECTIVE:
        raise ValueError(f"fewest is {fewest!r}; allowed is {FEWEST_EFFECTIVE:g} and more")
    human, judge = _optional(human_N, "human"), _optional(judge_N, "judge")
    confidence = as_numbers(confidence_N, "confidence").astype(np.float64)
    if confidence.shape != human.shape:
        raise ValueError(f"confidence has shape {confidence.shape}; expected {human.shape}, one for each answer")
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise range_error(confidence, "confidence")
    mean = float(confidence.mean()) if len(confidence) else 0.0
    propensity = _propensities(propensity_N, human)
    return _estimate(human - confidence, judge - confidence, propensity, (-mean, 1 - mean), level, fewest)


def _estimate(
    human_N: Array, judge_N: Array, propensity_N: Array, ends: tuple[float, float], level: float, fewest: int
) -> PoweredMean:
    """Compute the estimate of values whose human labels lie between `ends`."""
    check_level(level)
    if judge_N.shape != human_N.shape:
        raise ValueError(f"judge has shape {judge_N.shape}; expected {human_N.shape}, one for each answer")
    chosen_N = np.isfinite(human_N) & np.isfinite(propensity_N)
    labels = int(chosen_N.sum())
    if labels < fewest:
        raise ValueError(f"there are {labels} human labels; {fewest} are needed: label more answers")
    weight_L = relative_weights(propensity_N[chosen_N])
    effective_n = float(weight_L.sum() ** 2 / (weight_L @ weight_L))
    if effective_n < FEWEST_EFFECTIVE:
        raise ValueError(
            f"the {labels} human labels are as informative as {effective_n:.1f} plain ones;"
            f" {FEWEST_EFFECTIVE:g} are needed: label more answers, or draw with a larger floor"
        )
    judge_N = _without_gaps(judge_N, chosen_N)
    sample = _Sample(human_N[chosen_N], judge_N[chosen_N], weight_L / weight_L.sum(), judge_N, effective_n)
    z = float(scipy.special.ndtri((1 + level) / 2))
    t = float(scipy.special.stdtrit(degrees_of_freedom(weight_L), (1 + level) / 2))
    variance = sample.variance(ends, pseudo=z * z)
    own, both = variance.at(0.0), variance.at(variance.best)
    means = [float(sample.share_L @ part) for part in (sample.human_L, sample.judge_L)]
    estimates = [means[0] + b * (sample.mean - means[1]) for b in (0.0, variance.best)]
    limits = []
    for estimate, (centre, square) in zip(estimates, (own, both), strict=True):
        low, high = (min(max(centre + sign * t * square**0.5, ends[0]), ends[1]) for sign in (-1, 1))
        limits.append((min(max(estimate, low), high), low, high))
    return PoweredMean(
        *limits[1],
        *limits[0],
        weight=variance.best,
        saving=max(own[1] / both[1], 1.0),
        squared_correlation=sample.squared_correlation,
        labels=labels,
        answers=len(human_N),
        effective_n=effective_n,
        unlike_p_value=sample.unlike_p_value(means[1]),
    )


@dataclass(frozen=True)
class _Variance:
    """Variance V(b) = own - 2 b cross + b^2 square, and the centre of the interval."""

    own: float
    cross: float
    square: float
    most: float
    """Weight of the judge by the labels alone."""
    centre: float
    slope: float

    @property
    def best(self) -> float:
        """Weight in [0, 1]: that of the labels, or the minimiser of the variance if this is smaller."""
        return min(max(min(self.cross / self.square, self.most), 0.0), 1.0) if self.square > 0 else 0.0

    def at(self, b: float) -> tuple[float, float]:
        """Return the centre and the variance."""
        variance = self.own - 2 * b * self.cross + b * b * self.square
        return self.centre + b * self.slope, max(variance, 0.0)


@dataclass(frozen=True, eq=False)
class _Sample:
    """Human labels with the judge's, their shares of the weight, and the judge's labels of all answers."""

    human_L: Array
    judge_L: Array
    share_L: Array
    judge_N: Array
    effective_n: float

    @property
    def mean(self) -> float:
        """Mean of the judge's labels over all answers."""
        return float(self.judge_N.mean())

    def variance(self, ends: tuple[float, float], *, pseudo: float) -> _Variance:
        """Compute the variance of the estimate as a function of the judge's weight.

        Args:
            ends: Smallest and largest value, for the added pairs.
            pseudo: Number of added pairs.
        """
        low, high = ends
        n, answers = self.effective_n + pseudo, len(self.judge_N)
        human = np.concatenate([self.human_L, [low, low, high, high]])
        judge = np.concatenate([self.judge_L, [low, high, low, high]])
        share = np.concatenate([self.share_L * (self.effective_n / n), np.full(4, pseudo / 4 / n)])
        # A pair stands for pseudo / 4 labels with the share 1 / n each.
        square = np.concatenate([(self.share_L * (self.effective_n / n)) ** 2, np.full(4, pseudo / 4 / n**2)])
        square *= n / (n - 1)
        spread, means = float(self.judge_N.var()), (float(share @ human), float(share @ judge))
        own = float(square @ (human - means[0]) ** 2)
        if spread == 0:  # a judge that gives one label to all tells nothing
            return _Variance(own, 0.0, 0.0, 0.0, means[0], 0.0)

        def products(y: Array, g: Array) -> tuple[float, float]:
            """Return the coefficients of 2 b and of b^2, for centred values."""
            cross = float(square @ (y * g)) - float(share @ (off * y)) / answers
            return cross, float(square @ g**2) + spread / answers - 2 * float(share @ (off * g)) / answers

        off = judge - self.mean
        cross, squared = products(human - means[0], judge - means[1])
        # About its own mean, so that the distance of the pairs from the labels is no correlation.
        middle = (low + high) / 2
        of_labels = (self.share_L @ self.human_L, self.share_L @ self.judge_L)
        within = [
            np.concatenate([part - mean, ends_of - middle])
            for part, mean, ends_of in zip(
                (self.human_L, self.judge_L), of_labels, (human[-4:], judge[-4:]), strict=True
            )
        ]
        off = np.concatenate([within[1][:-4], np.zeros(4)])
        tuned, of_tuned = products(*within)
        most = tuned / of_tuned if of_tuned > 0 else 0.0
        return _Variance(own, cross, squared, most, means[0], self.mean - means[1])

    @property
    def squared_correlation(self) -> float:
        """Squared correlation of both labels over the human-labelled answers, weighted."""
        human, judge = (part - self.share_L @ part for part in (self.human_L, self.judge_L))
        scale = float((self.share_L @ human**2) * (self.share_L @ judge**2))
        return min(float(self.share_L @ (human * judge)) ** 2 / scale, 1.0) if scale > 1e-24 else 0.0

    def unlike_p_value(self, weighted_mean: float) -> float:
        """Test whether the judge's mean over the sample, weighted, is that over all answers (a z test)."""
        rest = float(self.share_L**2 @ (self.judge_L - self.mean) ** 2) - float(self.judge_N.var()) / len(self.judge_N)
        least = float(self.judge_N.var()) * max(1 / self.effective_n - 1 / len(self.judge_N), 0.0)
        variance = max(rest, least)
        if variance <= 1e-15:
            return 1.0
        return float(2 * scipy.special.ndtr(-abs(weighted_mean - self.mean) / variance**0.5))


def degrees_of_freedom(weight_L: Array) -> float:
    """Return the degrees of freedom of the variance of a weighted mean: m - 1 with m = (sum w^2)^2 / sum w^4.

    This is Satterthwaite's approximation for residuals of one variance. m is the number of labels if the weights are
    equal, and at most n_eff = (sum w)^2 / sum w^2. The result is at least 1.

    References:
        Satterthwaite 1946, An approximate distribution of estimates of variance components.
    """
    square_L = weight_L**2
    return max(float(square_L.sum() ** 2 / (square_L @ square_L)) - 1, 1.0)


def relative_weights(propensity_L: Array) -> Array:
    """Compute 1 / propensity over the largest of them, so that no sum leaves the range of float64."""
    weight_L: Array = propensity_L.min() / propensity_L
    return weight_L


def _without_gaps(judge_N: Array, chosen_N: npt.NDArray[np.bool_]) -> Array:
    """Put the judge's mean where it gave no label.

    Raises:
        ValueError: It labelled only answers with a human label, or only answers without one.
    """
    known_N = np.isfinite(judge_N)
    if known_N.all():
        return judge_N
    for which, of_N in (("with", ~chosen_N), ("without", chosen_N)):
        if of_N.any() and not known_N[of_N].any():
            raise ValueError(
                f"the judge labelled only answers {which} a human label; let it label all answers, or a random sample"
            )
    filled: Array = np.where(known_N, judge_N, judge_N[known_N].mean())
    return filled


def _propensities(propensity_N: npt.ArrayLike | None, human_N: Array) -> Array:
    """Return the propensities. Without any, those of a plain sample of the same size."""
    if propensity_N is None:
        return np.full(len(human_N), max(np.isfinite(human_N).sum(), 1) / max(len(human_N), 1))
    propensity = _optional(propensity_N, "propensity")
    if propensity.shape != human_N.shape:
        raise ValueError(f"propensity has shape {propensity.shape}; expected {human_N.shape}, one for each answer")
    if (propensity == 0).any():
        raise ValueError("propensity holds 0; allowed is (0, 1], and NaN without a human label")
    return propensity


def _optional(values: npt.ArrayLike, name: str) -> Array:
    """Convert numbers in [0, 1] with gaps: NaN, None and pandas' NA.

    Raises:
        ValueError: A value is outside [0, 1] or masked, or the array is not one-dimensional.
    """
    array = as_numbers_with_gaps(values, name, "allowed are numbers in [0, 1], and NaN for none")
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; expected (N,), one for each answer")
    bad_N = ~np.isnan(array) & ~((array >= 0) & (array <= 1))
    if bad_N.any():
        raise ValueError(f"{name} holds {array[bad_N][0]}; allowed are [0, 1], and NaN for none")
    return array
