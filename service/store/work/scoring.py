"""NLL and Brier score of labelled answers, from the stored logits and the calibrator of their version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from service.store.label_rules import Change
from service.store.rows import Integers, StoreDamagedError, Version
from trueodds.sums.inputs import Array
from trueodds.sums.losses import brier_of, nll_of
from trueodds.sums.ordered import OrderedRows, ordered_rows

SCORED = 1 << 20
"""Number of probabilities computed at once: 8 MB."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Changed labels of one version as arrays with L rows. before_L is -1 where there was no label."""

    changes: list[Change]
    now_L: Integers
    before_L: Integers
    nll_L: Array
    brier_L: Array
    nll_before_L: Array
    brier_before_L: Array
    levels: tuple[OrderedRows, OrderedRows] | None = None
    """Numbers of the new and of the old labels, for ordered classes. Without an old label they mean nothing."""

    @property
    def fresh_L(self) -> npt.NDArray[np.bool_]:
        return self.before_L < 0


def score(changes: list[Change], version: Version) -> Scored:
    """Compute NLL (in nats) and Brier score of the new labels, and of the old ones where there were any.

    The probabilities are the version's calibrator applied to the stored logits, block by block. The scores are NaN if
    the version has no logits.
    """
    now_L = np.array([change.now for change in changes], np.int64)
    before_L = np.array([-1 if (label := c.candidate.label) is None else label for c in changes], np.int64)
    scores_4L = np.full((4, len(changes)), np.nan)
    if not version.has_logits:
        return Scored(changes, now_L, before_L, *scores_4L)
    step, levels = max(SCORED // len(version.classes), 1), list[tuple[OrderedRows, OrderedRows]]()
    for start in range(0, len(changes), step):
        rows = slice(start, start + step)
        blobs = [change.candidate.logits for change in changes[rows]]
        probabilities_NC = version.calibrator(logits_of(blobs, len(version.classes)))
        squares_N, row_N = np.vecdot(probabilities_NC, probabilities_NC), np.arange(len(probabilities_NC))
        for k, label_L in enumerate((now_L, before_L)):
            true_N = probabilities_NC[row_N, label_L[rows]]
            scores_4L[2 * k, rows] = nll_of(true_N)
            scores_4L[2 * k + 1, rows] = brier_of(true_N, squares_N)
        if version.ordered:
            now, before = (ordered_rows(probabilities_NC, label_L[rows]) for label_L in (now_L, before_L))
            levels.append((now, before))
    scored = Scored(changes, now_L, before_L, *scores_4L)
    if not levels:
        return scored
    now, before = (OrderedRows.join([pair[k] for pair in levels]) for k in (0, 1))
    return replace(scored, levels=(now, before))


def logits_of(blobs: Sequence[bytes], classes: int) -> npt.NDArray[np.float32]:
    """Convert stored logits to an array with one row each.

    Raises:
        StoreDamagedError: A blob has another length, or is not a row minus its maximum.
    """
    if any(len(blob) != 4 * classes for blob in blobs):
        raise StoreDamagedError(f"the logits of a row of its table predictions are not {classes} numbers")
    logits_NC = np.frombuffer(b"".join(blobs), "<f4").reshape(-1, classes)
    if not (logits_NC.max(axis=1) == 0).all():  # this also finds a NaN
        raise StoreDamagedError("the logits of a row of its table predictions are not a row minus its maximum")
    return logits_NC
