"""Candidates' fits among folds: the held-out NLL of each, and its fit on all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trueodds.calibrators import registry
from trueodds.calibrators.base import Calibrator, Labels, Logits
from trueodds.calibrators.curve import PIECES, TopCurve, top_scores
from trueodds.calibrators.held_out import FOLDS, calibrated_nll, stratified
from trueodds.sums.inputs import Array


class Folds:
    """Rows in stratified folds, and what calibrators fitted without each of them say of it.

    A `TopCurve` costs no fit of its base where that is a candidate too: they share them.
    """

    def __init__(self, logits_NC: Logits, labels_N: Labels, folds: int) -> None:
        self.logits_NC, self.labels_N, self._folds = logits_NC, labels_N, folds
        self._fold_N = stratified(labels_N, folds)
        self._fits: dict[tuple[str, str], list[Calibrator]] = {}
        self._scores: dict[str, tuple[Array, Array]] = {}

    def held_out(self, name: str, options: Mapping[str, Any]) -> Array:
        """-ln p_y of every row, by the fit on the other folds.

        Raises:
            ConfigError: an unknown name or option.
            ValueError: a value that an option does not take.
            FitError: the rows without some fold do not determine this calibrator.
        """
        registry.check_options(name, options)
        nll_N = np.empty(len(self.labels_N))
        for fold, calibrator in enumerate(self._without(name, options)):
            inside_N = self._fold_N == fold
            nll_N[inside_N] = calibrated_nll(calibrator, self.logits_NC[inside_N], self.labels_N[inside_N])
        return nll_N

    def fit(self, name: str, options: Mapping[str, Any]) -> Calibrator:
        """The calibrator of all rows, as `registry.fit_by_name` gives it."""
        kind = registry.get(name)
        if not issubclass(kind, TopCurve) or self._folds != FOLDS:
            return registry.fit_by_name(name, self.logits_NC, self.labels_N, **options)
        base = kind.base_kind.fit(self.logits_NC, self.labels_N)
        calibrator = kind.of_scores(base, *self._scored(kind), options.get("pieces", PIECES))
        calibrator = replace(calibrator, fitted_classes=self.logits_NC.shape[1])
        return registry.with_warnings(calibrator, options, self.logits_NC, self.labels_N)

    def _without(self, name: str, options: Mapping[str, Any]) -> list[Calibrator]:
        """The fit without each fold in turn."""
        key = name, repr(sorted(options.items()))
        if key not in self._fits:
            kind = registry.get(name)
            outside = [self._fold_N != fold for fold in range(self._folds)]
            if issubclass(kind, TopCurve):
                bases, pieces = self._without(kind.base_kind.name, {}), options.get("pieces", PIECES)
                score_N, hit_N = self._scored(kind)
                self._fits[key] = [
                    kind.of_scores(base, score_N[rows_N], hit_N[rows_N], pieces)
                    for base, rows_N in zip(bases, outside, strict=True)
                ]
            else:
                self._fits[key] = [
                    kind.fit(self.logits_NC[rows_N], self.labels_N[rows_N], **options) for rows_N in outside
                ]
        return self._fits[key]

    def _scored(self, kind: type[TopCurve]) -> tuple[Array, Array]:
        """(log-odds, whether right) of every row's top label, by the base's fit on the other folds."""
        if (base := kind.base_kind.name) not in self._scores:
            score_N, hit_N = np.empty(len(self.labels_N)), np.empty(len(self.labels_N))
            for fold, calibrator in enumerate(self._without(base, {})):
                inside_N = self._fold_N == fold
                scored = top_scores(calibrator, self.logits_NC[inside_N], self.labels_N[inside_N])
                score_N[inside_N], hit_N[inside_N] = scored
            self._scores[base] = score_N, hit_N
        return self._scores[base]
