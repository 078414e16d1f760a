"""Judges fits by rows that they did not see: folds, their NLL, warnings on overfitting and on the logits' scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trueodds.calibrators.base import Calibrator, FitError, Labels, Logits, row_blocks
from trueodds.calibrators.fitting.objectives import WARM, Rows
from trueodds.calibrators.identity import Identity
from trueodds.calibrators.temperature import Temperature, solve_nll
from trueodds.sums.inputs import Array
from trueodds.sums.losses import nll_of

FOLDS = 5
PLENTY = 20
"""Rows per parameter from which on no fit is checked."""
SCARCE = 5
"""Rows per free parameter below which a fit is always warned of."""
TRIMMED = 0.1
"""Share of the differences at each end that a trimmed mean leaves out."""
JUDGED = 1000
"""Held-out rows that are enough for the check: from five times as many on it costs one fit on four fifths."""
SOFTMAX_SCALE = 1 / 3, 3.0
"""Temperatures of logits that the plain softmax, which most calibrators read, still resolves."""
BEHIND = 0.01
"""Nats a row behind temperature scaling that are worth a warning."""


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
    """A warning where fits on four fifths of the rows do worse on the last fifth than no calibration (`is_worse`), or
    where there are fewer than five rows for each free parameter, whatever the last fifths say.

    Only fits with fewer than 20 rows per parameter are checked, and none whose parameters a prior holds.
    """
    rows = len(labels_N)
    scarce = rows < SCARCE * calibrator.free_parameters
    if calibrator.held or (not scarce and (rows < FOLDS or rows >= PLENTY * calibrator.parameters)):
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
        " for each: it may be far off on others, which so few held-out rows cannot show. Use 'temperature', or more"
        " rows.",
    )


def is_worse(worse_N: Array) -> bool:
    """Whether the mean of paired differences is above 0, by one standard error of the mean or of the trimmed mean.

    The trimmed mean leaves out the least and the greatest tenth; its standard error is s_w / (.8 sqrt(N)), s_w the
    standard deviation once these tenths are drawn in to the values that are left (Tukey & McLaughlin 1963). A few rows
    that cost a hundred nats give the plain mean a standard error as large as itself, and so hide what they show.
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
    """A warning where the logits' size is beyond what a calibrator copes with.

    Published calibrators read softmax(z), or are penalised in its units. They are made for logits whose temperature is
    about 1. The warning needs a temperature outside [1/3, 3], and an NLL behind temperature scaling's on rows that
    neither fit has seen: by .01 nats and by two standard errors of the paired differences. At most `WARM` values are
    read, of evenly spaced rows. `identity` has no fit to warn of.
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
    """-ln p_y of 1,000 rows or more, by fits like this one and by another kind's, each on the other four fifths; empty
    where no such fit is determined."""
    fold_N = stratified(labels_N, FOLDS)
    own, others = [np.empty(0)], [np.empty(0)]
    for fold in range(min(FOLDS, -(-FOLDS * JUDGED // len(labels_N)))):
        inside_N = fold_N == fold
        try:
            own.append(nll_without(type(calibrator), options, logits_NC, labels_N, inside_N))
        except FitError:  # a class whose only row is held out
            continue
        others.append(nll_without(other, {}, logits_NC, labels_N, inside_N))
    return np.concatenate(own), np.concatenate(others)
