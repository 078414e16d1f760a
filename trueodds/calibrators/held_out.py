"""Warnings from rows that a fit has not seen: overfitting, and logits on an unsuitable scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trueodds.calibrators.base import Calibrator, FitError, Labels, Logits, row_blocks
from trueodds.calibrators.fitting.objectives import WARM, Rows
from trueodds.calibrators.identity import Identity
from trueodds.calibrators.temperature import Temperature, solve_nll
from trueodds.sums.group_names import GroupNames
from trueodds.sums.inputs import Array
from trueodds.sums.losses import nll_of

FOLDS = 5
PLENTY = 20
"""Rows per parameter from which fits are not checked."""
SCARCE = 5
"""Rows per free parameter below which there is always a warning."""
TRIMMED = 0.1
"""Share of the differences at each end that a trimmed mean leaves out."""
JUDGED = 1000
"""Number of held-out rows that is enough for the check.

With at least five times as many rows, the check costs one fit on four fifths.
"""
SOFTMAX_SCALE = 1 / 3, 3.0
"""Smallest and largest temperature of logits that the plain softmax, which most calibrators use, still resolves."""
BEHIND = 0.01
"""Nats per row behind temperature scaling from which there is a warning."""


def stratified_folds(labels_N: Labels, folds: int) -> Labels:
    """Assign each row to a fold: rows in the order of their class are dealt out in turn."""
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
    """Compute -ln p_y of the rows inside, with the fit on the other rows."""
    calibrator = kind.fit(logits_NC[~inside_N], labels_N[~inside_N], **options)
    return calibrated_nll(calibrator, logits_NC[inside_N], labels_N[inside_N])


def calibrated_nll(
    calibrator: Calibrator,
    logits_NC: Logits,
    labels_N: np.typing.NDArray[np.integer],
    groups_N: GroupNames | None = None,
) -> Array:
    """Compute -ln p_y of every row, in nats."""
    nll_N = np.empty(len(labels_N))
    for block in row_blocks(*logits_NC.shape):
        labels, groups = labels_N[block], None if groups_N is None else groups_N[block]
        nll_N[block] = nll_of(calibrator(logits_NC[block], groups=groups)[np.arange(len(labels)), labels])
    return nll_N


def overfitting(
    calibrator: Calibrator, options: Mapping[str, Any], logits_NC: Logits, labels_N: Labels
) -> tuple[str, ...]:
    """Return a warning if the calibrator overfits or has too few rows per free parameter.

    It overfits if fits on four fifths of the rows do worse on the last fifth than no calibration (`is_worse`). Fewer
    than five rows per free parameter always give a warning. Only fits with fewer than 20 rows per parameter are
    checked, and none whose parameters a prior regularises.
    """
    rows = len(labels_N)
    scarce = rows < SCARCE * calibrator.free_parameters
    if calibrator.is_regularised or (not scarce and (rows < FOLDS or rows >= PLENTY * calibrator.parameters)):
        return ()
    after_N, before_N = _beside(calibrator, options, Identity, logits_NC, labels_N)
    if is_worse(after_N - before_N):
        return (
            f"The calibrator overfits: {calibrator.parameters:,} parameters for {rows:,} rows. On rows held out of its"
            f" fit the NLL is {after_N.mean():.4f} with it and {before_N.mean():.4f} without. Use 'temperature', or"
            " more rows.",
        )
    if not scarce:
        return ()
    return (
        f"The calibrator has {calibrator.free_parameters:,} free parameters for {rows:,} rows, fewer than {SCARCE} rows"
        " for each: it may be badly calibrated on other rows, which so few held-out rows cannot show. Use"
        " 'temperature', or more rows.",
    )


def is_worse(worse_N: Array) -> bool:
    """Return whether the mean of paired differences is above 0 by one standard error, plain or trimmed.

    The trimmed mean leaves out the smallest and the largest tenth. Its standard error is s_w / (.8 sqrt(N)), where s_w
    is the standard deviation after these tenths are replaced by the nearest remaining values (Tukey & McLaughlin 1963).
    A few rows that cost a hundred nats give the plain mean a standard error as large as itself, and so hide a real
    difference.
    """
    if not len(worse_N) or worse_N.mean() <= 0:
        return False
    root, cut = float(np.sqrt(len(worse_N))), int(TRIMMED * len(worse_N))
    inner_N = np.sort(worse_N)[cut : len(worse_N) - cut]
    drawn_in_N = np.clip(worse_N, inner_N[0], inner_N[-1])
    beyond_plain = worse_N.mean() > worse_N.std() / root
    return bool(beyond_plain or inner_N.mean() > drawn_in_N.std() / ((1 - 2 * TRIMMED) * root))


def out_of_scale(
    calibrator: Calibrator, options: Mapping[str, Any], logits_NC: Logits, labels_N: Labels
) -> tuple[str, ...]:
    """Return a warning if the scale of the logits is unsuitable for the calibrator.

    Published calibrators use softmax(z), or have a penalty in its units. They are designed for logits with a
    temperature near 1. The warning needs a temperature outside [1/3, 3]. It also needs an NLL that is higher than that
    of temperature scaling on rows that neither fit has seen, by .01 nats and by two standard errors of the paired
    differences. At most `WARM` values are read, from evenly spaced rows. `identity` has no fit and no warning.
    """
    if isinstance(calibrator, Identity):
        return ()
    step = max(logits_NC.size // WARM, 1)
    z_NC, y_N = logits_NC[::step], labels_N[::step]
    temperature, bound = solve_nll(Rows(z_NC, y_N))
    if bound is not None or SOFTMAX_SCALE[0] <= temperature <= SOFTMAX_SCALE[1] or len(y_N) < FOLDS:
        return ()
    own_N, tempered_N = _beside(calibrator, options, Temperature, z_NC, y_N)
    behind_N = own_N - tempered_N
    if not len(behind_N) or behind_N.mean() <= max(BEHIND, 2 * behind_N.std() / np.sqrt(len(behind_N))):
        return ()
    return (
        f"The logits' temperature is {temperature:.3g}, and {calibrator.name!r} is made for one near 1. On rows held"
        f" out of the fit its NLL is {own_N.mean():.4f}, that of temperature scaling {tempered_N.mean():.4f}. Divide"
        f" the logits by {temperature:.3g} before the fit and before each use, or choose 'temperature'.",
    )


def _beside(
    calibrator: Calibrator, options: Mapping[str, Any], other: type[Calibrator], logits_NC: Logits, labels_N: Labels
) -> tuple[Array, Array]:
    """Compute -ln p_y of at least 1,000 rows, by fits of this calibrator and of another kind on the other four fifths.

    The arrays are empty if the rows determine no such fit.
    """
    fold_N = stratified_folds(labels_N, FOLDS)
    own, others = [np.empty(0)], [np.empty(0)]
    for fold in range(min(FOLDS, -(-FOLDS * JUDGED // len(labels_N)))):
        inside_N = fold_N == fold
        try:
            own.append(nll_without(type(calibrator), options, logits_NC, labels_N, inside_N))
        except FitError:  # a class whose only row is held out
            continue
        others.append(nll_without(other, {}, logits_NC, labels_N, inside_N))
    return np.concatenate(own), np.concatenate(others)
