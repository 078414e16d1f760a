"""Histogram binning: the share of hits in each bin of a score, alone or averaged over numbers of bins (BBQ)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import scipy

from trueodds.calibrators.base import Labels, Logits
from trueodds.calibrators.checks import Number, OneOf, OptionCheck
from trueodds.calibrators.score_curves import ScoreCurves, columns, curve_fields
from trueodds.sums.inputs import Array

PRIOR = 2.0
"""N', the prior's equivalent sample size."""
SPREAD = 10
"""C of the paper: models have N^(1/3) / C to C N^(1/3) bins."""
NEGLIGIBLE = 1e-9
"""Smallest weight of a model, relative to the best one. 365 models below it change nothing above 4e-7."""


@dataclass(frozen=True, eq=False)
class Histogram(ScoreCurves):
    """Histogram binning: the calibrated score is the share of hits in its bin.

    Options of `fit`:

    - form: "top_label" (default) bins the top probability, and a hit is a right top label. "one_vs_rest" bins per
      class.
    - binning: "width" (default) has `bins` equal intervals (lo, hi], with 0 in the first, like `metrics.ece`. An empty
      bin returns its middle. "mass" has bins of equal count; equal scores share a bin.
    - bins: Number of bins (15).

    `mixed` = 1 / (N + 1) of the uncalibrated softmax is mixed in.

    References:
        Zadrozny and Elkan 2001, Obtaining calibrated probability estimates. Guo et al. 2017, On calibration of modern
        neural networks, section 4.1.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "histogram")([[2, 0]]).round(3)
        array([[0.751, 0.249]])
    """

    name: ClassVar[str] = "histogram"
    keeps_argmax = False
    checks: ClassVar[Mapping[str, OptionCheck]] = {
        "form": OneOf(("top_label", "one_vs_rest")),
        "binning": OneOf(("width", "mass")),
        "bins": Number(1, 10_000, whole=True),
    }

    @property
    def free_parameters(self) -> int:
        """All parameters: each bin's share depends on its own rows alone."""
        return self.parameters

    @classmethod
    def fit(
        cls,
        logits_NC: Logits,
        labels_N: Labels,
        *,
        form: Literal["top_label", "one_vs_rest"] = "top_label",
        binning: Literal["width", "mass"] = "width",
        bins: int = 15,
    ) -> Self:
        cls.check_values(form=form, binning=binning, bins=bins)
        fitted = []
        for score_N, hit_N in columns(logits_NC, labels_N, form, cls.name):
            inner_B = np.arange(1, bins) / bins if binning == "width" else equal_mass(np.sort(score_N), bins)
            fitted.append((inner_B, _shares(score_N, hit_N, inner_B)))
        return cls(form, **curve_fields(fitted, len(logits_NC)))


def equal_mass(sorted_N: Array, bins: int) -> Array:
    """Return the inner edges of bins (lo, hi] whose counts are as equal as ties allow. Edges are scores of the data."""
    last_B = np.round(np.arange(1, bins) * len(sorted_N) / bins).astype(np.intp) - 1
    edge_B: Array = np.unique(sorted_N[last_B[last_B >= 0]])
    # an edge at the largest score would be the lower end of an empty bin
    return edge_B[: np.searchsorted(edge_B, sorted_N[-1])]


def _shares(score_N: Array, hit_N: Array, inner_B: Array) -> Array:
    bin_N = np.searchsorted(inner_B, score_N)
    count_B = np.bincount(bin_N, minlength=len(inner_B) + 1)
    edge_B = np.concatenate([[0.0], inner_B, [1.0]])
    middle_B = (edge_B[1:] + edge_B[:-1]) / 2
    hits_B = np.bincount(bin_N, hit_N, len(inner_B) + 1)
    shares_B: Array = np.where(count_B > 0, hits_B / np.maximum(count_B, 1), middle_B)
    return shares_B


@dataclass(frozen=True, eq=False)
class BBQ(ScoreCurves):
    """Bayesian binning into quantiles (BBQ): the average of equal-count histograms of all sizes.

    The weight of each is its marginal likelihood.

    In the model with B bins, the probability of bin b has the prior Beta(alpha_b, beta_b) with alpha_b = N'/B m_b,
    beta_b = N'/B - alpha_b and N' = 2, where m_b is the bin's middle (within [1e-6, 1 - 1e-6]). With n_b rows and h_b
    hits in bin b, the model's weight is prod_b [B(h_b + alpha_b, n_b - h_b + beta_b) / B(alpha_b, beta_b)], where B is
    the beta function. Its prediction is the posterior mean (h_b + alpha_b) / (n_b + N'/B). B runs from max(1, N^(1/3) /
    10) to 10 N^(1/3), with a flat prior. The average of step functions is one step function, which is stored. Options
    of `fit`:

    - form: "top_label" (default) for the confidence, or "one_vs_rest" for every class.

    References:
        Naeini, Cooper and Hauskrecht 2015, Obtaining well calibrated probabilities using Bayesian binning, eq. 4.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.fit(logits, labels, "bbq")([[2, 0]]).round(3)
        array([[0.748, 0.252]])
    """

    name: ClassVar[str] = "bbq"
    keeps_argmax = False
    checks: ClassVar[Mapping[str, OptionCheck]] = {"form": OneOf(("top_label", "one_vs_rest"))}

    @classmethod
    def fit(
        cls, logits_NC: Logits, labels_N: Labels, *, form: Literal["top_label", "one_vs_rest"] = "top_label"
    ) -> Self:
        cls.check_values(form=form)
        fitted = [average_models(*pair) for pair in columns(logits_NC, labels_N, form, cls.name)]
        return cls(form, **curve_fields(fitted, len(logits_NC)))


def average_models(score_N: Array, hit_N: Array) -> tuple[Array, Array]:
    """Return the knots and values of the average of all models."""
    order_N = np.argsort(score_N)
    sorted_N, hits_N = score_N[order_N], np.concatenate([[0.0], np.cumsum(hit_N[order_N])])
    root = np.cbrt(len(score_N))
    sizes = range(max(1, int(root / SPREAD)), min(int(np.ceil(SPREAD * root)), len(score_N)) + 1)
    # ties can give several sizes the same edges; such a model counts once
    models = {inner_B.tobytes(): inner_B for inner_B in (equal_mass(sorted_N, size) for size in sizes)}
    scored = [_model(sorted_N, hits_N, inner_B) for inner_B in models.values()]
    score_M = np.array([score for score, _, _ in scored])
    weight_M = np.exp(score_M - score_M.max())
    kept = [(w, inner_B, mean_B) for w, (_, inner_B, mean_B) in zip(weight_M, scored, strict=True) if w > NEGLIGIBLE]
    knots_U = np.unique(np.concatenate([inner_B for _, inner_B, _ in kept]))
    inside_U = np.concatenate([knots_U, [2.0]])  # a point of each interval: its closed right end
    total = sum(w for w, _, _ in kept)
    values_U = sum(w * mean_B[np.searchsorted(inner_B, inside_U)] for w, inner_B, mean_B in kept) / total
    return knots_U, np.asarray(values_U)


def _model(sorted_N: Array, hits_N: Array, inner_B: Array) -> tuple[float, Array, Array]:
    """Return the log score, the inner edges and the posterior means of one binning."""
    place_B = np.concatenate([[0], np.searchsorted(sorted_N, inner_B, side="right"), [len(sorted_N)]])
    count_B, hit_B = np.diff(place_B), np.diff(hits_N[place_B])
    edge_B = np.concatenate([[0.0], inner_B, [1.0]])
    share = PRIOR / len(count_B)
    alpha_B = share * np.clip((edge_B[1:] + edge_B[:-1]) / 2, 1e-6, 1 - 1e-6)
    beta_B = share - alpha_B
    score = (
        scipy.special.gammaln(hit_B + alpha_B)
        - scipy.special.gammaln(alpha_B)
        + scipy.special.gammaln(count_B - hit_B + beta_B)
        - scipy.special.gammaln(beta_B)
    )
    score += scipy.special.gammaln(share) - scipy.special.gammaln(count_B + share)
    return float(score.sum()), inner_B, (hit_B + alpha_B) / (count_B + share)
