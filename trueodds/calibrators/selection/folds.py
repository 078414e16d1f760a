"""Cross-validated fits of the candidates, and their fits on all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.calibrators import registry
from trueodds.calibrators.base import Calibrator, Labels, Logits, fit_kind, row_blocks
from trueodds.calibrators.curve import PIECES, TopCurve, top_scores
from trueodds.calibrators.held_out import FOLDS, stratified_folds
from trueodds.sums.group_names import GroupNames
from trueodds.sums.inputs import Array
from trueodds.sums.losses import nll_of


@dataclass(frozen=True)
class HeldOut:
    """Predictions for each row by fits that have not seen it."""

    nll_N: Array
    """-ln p_y, in nats."""
    confidence_N: Array
    right_N: Array
    """1 if the top label is right, else 0."""


class Folds:
    """Rows in stratified folds, and the predictions for each fold by calibrators that were fitted on the others.

    A `TopCurve` needs no fit of its base if the base is a candidate too, because both share the fits.
    """

    def __init__(self, logits_NC: Logits, labels_N: Labels, folds: int, groups_N: GroupNames | None = None) -> None:
        self.logits_NC, self.labels_N, self._folds, self._groups_N = logits_NC, labels_N, folds, groups_N
        self._fold_N = stratified_folds(labels_N, folds)
        self._fits: dict[tuple[registry.Method, str], list[Calibrator]] = {}
        self._scores: dict[str, tuple[Array, Array]] = {}

    def held_out(self, name: registry.Method, options: Mapping[str, Any]) -> HeldOut:
        """Predict every row with the fit on the other folds.

        Raises:
            ConfigError: A name or option is unknown.
            ValueError: An option has a value that is not allowed.
            FitError: The rows without some fold do not determine this calibrator.
        """
        registry.check_options(name, options)
        rows = len(self.labels_N)
        held = HeldOut(np.empty(rows), np.empty(rows), np.empty(rows))
        for fold, calibrator in enumerate(self._without(name, options)):
            inside_N = np.flatnonzero(self._fold_N == fold)
            for block in row_blocks(len(inside_N), self.logits_NC.shape[1]):
                row_N = inside_N[block]
                p_NC, y_N = calibrator(self.logits_NC[row_N], groups=self._groups(row_N)), self.labels_N[row_N]
                held.nll_N[row_N] = nll_of(p_NC[np.arange(len(y_N)), y_N])
                held.confidence_N[row_N], held.right_N[row_N] = p_NC.max(axis=1), p_NC.argmax(axis=1) == y_N
        return held

    def fit(self, name: registry.Method, options: Mapping[str, Any]) -> Calibrator:
        """Fit the calibrator on all rows. The result is that of `registry.fit_by_name`."""
        kind = registry.get(name)
        if not issubclass(kind, TopCurve) or self._folds != FOLDS:
            groups_N = self._groups_N if kind.uses_groups else None
            return registry.fit_by_name(name, self.logits_NC, self.labels_N, groups_N, **options)
        base = kind.base_kind.fit(self.logits_NC, self.labels_N)
        calibrator = kind.of_scores(base, *self._top_scores(kind), options.get("pieces", PIECES))
        calibrator = replace(calibrator, fitted_classes=self.logits_NC.shape[1])
        return registry.with_warnings(calibrator, options, self.logits_NC, self.labels_N)

    def _groups(self, rows_N: npt.NDArray[Any]) -> GroupNames | None:
        return None if self._groups_N is None else self._groups_N[rows_N]

    def _without(self, name: registry.Method, options: Mapping[str, Any]) -> list[Calibrator]:
        """Return the fits without each fold in turn."""
        key = name, repr(sorted(options.items()))
        if key not in self._fits:
            kind = registry.get(name)
            outside = [self._fold_N != fold for fold in range(self._folds)]
            if issubclass(kind, TopCurve):
                bases, pieces = self._without(kind.base_kind.name, {}), options.get("pieces", PIECES)
                score_N, hit_N = self._top_scores(kind)
                self._fits[key] = [
                    kind.of_scores(base, score_N[rows_N], hit_N[rows_N], pieces)
                    for base, rows_N in zip(bases, outside, strict=True)
                ]
            else:
                self._fits[key] = [
                    fit_kind(kind, self.logits_NC[rows_N], self.labels_N[rows_N], self._groups(rows_N), options)
                    for rows_N in outside
                ]
        return self._fits[key]

    def _top_scores(self, kind: type[TopCurve]) -> tuple[Array, Array]:
        """Return the log-odds of every row's top label and whether it is right.

        The base's fit on the other folds predicts each row.
        """
        if (base := kind.base_kind.name) not in self._scores:
            score_N, hit_N = np.empty(len(self.labels_N)), np.empty(len(self.labels_N))
            for fold, calibrator in enumerate(self._without(base, {})):
                inside_N = self._fold_N == fold
                scored = top_scores(calibrator, self.logits_NC[inside_N], self.labels_N[inside_N])
                score_N[inside_N], hit_N[inside_N] = scored
            self._scores[base] = score_N, hit_N
        return self._scores[base]
