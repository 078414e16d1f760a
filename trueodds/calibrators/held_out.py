"""Judges fits by rows that they did not see: folds, their NLL, and a warning where a fit has overfitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trueodds.calibrators.base import Calibrator, FitError, Labels, Logits, row_blocks
from trueodds.calibrators.identity import Identity
from trueodds.sums.inputs import Array
from trueodds.sums.losses import nll_of

FOLDS = 5
PLENTY = 20
"""Rows per parameter from which on no fit is checked."""
JUDGED = 1000
"""Held-out rows that are enough for the check: from five times as many on it costs one fit on four fifths."""


def stratified(labels_N: Labels, folds: int) -> Labels:
    """Each row's fold: the rows in the order of their class, dealt round."""
    fold_N = np.empty_like(labels_N)
    fold_N[np.argsort(labels_N, kind="stable")] = np.arange(len(labels_N)) % folds
    return fold_N


def nll_without(
    kind: type[Calibrator],
    options: Mapping[str, Any],
    logits_NC: Logits,
    labels_N: Labels,
    inside_N: np.typing.NDArray[np.bool_],
) -> Array:
    """-ln p_y of the rows inside, by the fit on the others."""
    calibrator = kind.fit(logits_NC[~inside_N], labels_N[~inside_N], **options)
    return calibrated_nll(calibrator, logits_NC[inside_N], labels_N[inside_N])


def calibrated_nll(calibrator: Calibrator, logits_NC: Logits, labels_N: np.typing.NDArray[np.integer]) -> Array:
    """-ln p_y of every row, in nats."""
    nll_N = np.empty(len(labels_N))
    for block in row_blocks(*logits_NC.shape):
        labels = labels_N[block]
        nll_N[block] = nll_of(calibrator(logits_NC[block])[np.arange(len(labels)), labels])
    return nll_N


def overfitting(
    calibrator: Calibrator, options: Mapping[str, Any], logits_NC: Logits, labels_N: Labels
) -> tuple[str, ...]:
    """A warning where fits on four fifths of the rows do worse on the last fifth than no calibration, by more than one
    standard error of the rows' paired differences. Only fits with fewer than 20 rows per parameter are checked, and
    none whose parameters a prior holds."""
    rows = len(labels_N)
    if calibrator.held or rows < FOLDS or rows >= PLENTY * calibrator.parameters:
        return ()
    fold_N = stratified(labels_N, FOLDS)
    with_it, without = [], []
    for fold in range(min(FOLDS, -(-FOLDS * JUDGED // rows))):
        inside_N = fold_N == fold
        try:
            with_it.append(nll_without(type(calibrator), options, logits_NC, labels_N, inside_N))
        except FitError:  # a class whose only row is held out
            continue
        without.append(calibrated_nll(Identity(), logits_NC[inside_N], labels_N[inside_N]))
    if not with_it:
        return ()
    after_N, before_N = np.concatenate(with_it), np.concatenate(without)
    worse_N = after_N - before_N
    if worse_N.mean() <= worse_N.std() / np.sqrt(len(worse_N)):
        return ()
    return (
        f"The calibrator overfits: {calibrator.parameters:,} parameters for {rows:,} rows. On rows held out of its fit"
        f" the NLL is {after_N.mean():.4f} with it and {before_N.mean():.4f} without. Use 'temperature', or more rows.",
    )
