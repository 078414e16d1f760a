"""Histogram binning: the share of hits in each bin of a score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np

from trueodds.calibrators.base import Labels, Logits
from trueodds.calibrators.checks import Check, Choice, Number
from trueodds.calibrators.scores import Curves, columns, curves
from trueodds.sums.inputs import Array


@dataclass(frozen=True, eq=False)
class Histogram(Curves):
    """Each bin's share of hits (Zadrozny & Elkan 2001; Guo et al. 2017, section 4.1).

    form "top_label" (default): bins of the top probability, hit = top label right. "one_vs_rest": bins per class.
    binning "width": `bins` (15) equal intervals (lo, hi], 0 in the first, the bins of `metrics.ece`; an empty one says
    its middle. "mass": bins of equal count; equal scores share a bin.

    >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
    >>> calibrators.fit(logits, labels, "histogram")([[2, 0]]).round(3)
    array([[0.751, 0.249]])
    """

    name: ClassVar[str] = "histogram"
    checks: ClassVar[Mapping[str, Check]] = {
        "form": Choice(("top_label", "one_vs_rest")),
        "binning": Choice(("width", "mass")),
        "bins": Number(1, 10_000, whole=True),
    }

    @property
    def free_parameters(self) -> int:
        """All: each bin's share is of its own rows alone."""
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
        return cls(form, **curves(fitted, len(logits_NC)))


def equal_mass(sorted_N: Array, bins: int) -> Array:
    """Inner edges of bins (lo, hi] of as nearly equal counts as the ties allow, at scores of the data."""
    last_B = np.round(np.arange(1, bins) * len(sorted_N) / bins).astype(np.intp) - 1
    edge_B: Array = np.unique(sorted_N[last_B[last_B >= 0]])
    return edge_B[
        : np.searchsorted(edge_B, sorted_N[-1])
    ]  # one at the largest score would be the lower end of an empty bin


def _shares(score_N: Array, hit_N: Array, inner_B: Array) -> Array:
    bin_N = np.searchsorted(inner_B, score_N)
    count_B = np.bincount(bin_N, minlength=len(inner_B) + 1)
    edge_B = np.concatenate([[0.0], inner_B, [1.0]])
    middle_B = (edge_B[1:] + edge_B[:-1]) / 2
    hits_B = np.bincount(bin_N, hit_N, len(inner_B) + 1)
    shares_B: Array = np.where(count_B > 0, hits_B / np.maximum(count_B, 1), middle_B)
    return shares_B
