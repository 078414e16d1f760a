"""Fit of conformal sets to calibration rows."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.base import Calibrator
from trueodds.calibrators.conformal.nonconformity import check_method, scores_of
from trueodds.calibrators.conformal.ranks import fewest_rows, rank_of
from trueodds.calibrators.conformal.rule import SLACK, SetRule
from trueodds.calibrators.conformal.sets import ConformalSets
from trueodds.calibrators.conformal.settings import SetSettings
from trueodds.errors import ConfigError
from trueodds.logits import Logits
from trueodds.processes.choices import SET_LEVEL, SetMethod
from trueodds.sums.frames import check_columns, check_index
from trueodds.sums.inputs import Array, check_labels, check_level, check_probabilities

PENALTIES = (0.001, 0.01, 0.1, 0.2, 0.5)
"""Penalties of raps that are tried, as in the paper's code."""
TUNING = 0.2
"""Share of the rows that chooses the penalty of raps."""

Index = npt.NDArray[np.intp]


def split_rows(rows: int, share: float, seed: int) -> tuple[Index, Index]:
    """Split rows at random. Return the sorted indices of the share `share`, and those of the other rows.

    Args:
        rows: Number of rows.
        share: Share of the first part, inside (0, 1).
        seed: Seed of the split.

    Raises:
        ValueError: A part would be empty.

    Examples:
        >>> first, rest = conformal.split_rows(10, 0.3, seed=0)
        >>> len(first), len(rest)
        (3, 7)
    """
    check_level(share)
    size = round(rows * share)
    if not 1 <= size < rows:
        raise ValueError(f"a share of {share:g} of {rows} rows is {size}; both parts need a row")
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[:size]), np.sort(order[size:])


def fit(
    probabilities_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    method: SetMethod = "lac",
    *,
    level: float = SET_LEVEL,
    seed: int = 0,
) -> ConformalSets:
    """Fit conformal sets to calibration rows that fitted neither the model nor its calibrator.

    A set of level L for a row of the same population holds its true class with probability at least L. The probability
    is over calibration rows and the row together. It is not the coverage for one class, one kind of input or one set
    size, which may be lower. With `class`, it holds for each class by itself.

    raps chooses its penalty on a fifth of the rows, drawn by `seed`, which give no scores: `free_ranks` is the rank
    that covers the share `level` of them, and the penalty gives the smallest sets on average at `level`.

    Args:
        probabilities_NC: Calibrated probabilities, shape (N, C), of the calibrator that will be used.
        labels_N: True classes, shape (N,), as class indices.
        method: Name of the method (`SET_METHODS`).
        level: Level at which raps chooses its penalty. Other methods do not use it.
        seed: Seed of the draw of these rows, and of the draws of aps and raps for the calibration rows.

    Returns:
        The sorted scores. `at(level)` gives the rule of a level.

    Raises:
        ConfigError: The method is unknown, or a data frame has numbered columns or an index in another order than the
            labels.
        ValueError: The rows are invalid, there are two classes for aps or raps, or too few rows for raps.

    References:
        Angelopoulos and Bates 2023, Conformal Prediction: A Gentle Introduction; Angelopoulos et al. 2021, Uncertainty
        Sets for Image Classifiers using Conformal Prediction, appendix E (choice of the penalty).

    Examples:
        >>> p_NC = np.array([[0.6, 0.3, 0.1]] * 100)
        >>> sets = conformal.fit(p_NC, [0] * 85 + [1] * 15, "lac")
        >>> sets.at(0.8).sets(p_NC[:1]), sets.at(0.9).sets(p_NC[:1])
        (array([[ True, False, False]]), array([[ True,  True, False]]))
    """
    check_index(probabilities=probabilities_NC, labels=labels_N)
    check_columns(probabilities_NC, labels_N)
    p_NC = check_probabilities(probabilities_NC).astype(np.float64, copy=False)
    labels = check_labels(labels_N, *p_NC.shape)
    check_method(method, p_NC.shape[1])
    check_level(level)
    draws_N = _calibration_draws(labels, seed)
    penalty, free_ranks, tuning = 0.0, 0, 0
    if method == "raps":
        if round(len(p_NC) * TUNING) < 1:
            raise ValueError(f"raps has {len(p_NC)} rows; it needs at least 5, a fifth of which choose its penalty")
        chosen, rest = split_rows(len(p_NC), TUNING, seed)
        penalty, free_ranks = _choose_penalty(p_NC[chosen], labels[chosen], draws_N[chosen], level)
        p_NC, labels, draws_N, tuning = p_NC[rest], labels[rest], draws_N[rest], len(chosen)
    scores_NC = scores_of(p_NC, method, draws_N, penalty=penalty, free_ranks=free_ranks)
    own_N = scores_NC[np.arange(len(labels)), labels]
    groups = [own_N[labels == k] for k in range(p_NC.shape[1])] if method == "class" else [own_N]
    return ConformalSets(method, p_NC.shape[1], tuple(map(np.sort, groups)), penalty, free_ranks, tuning)


class ApartRows(NamedTuple):
    """Rows of a model, divided so that a calibrator and its sets have different ones.

    Examples:
        >>> rows = trueodds.logits.Logits(np.zeros((10, 2)), np.zeros(10, int))
        >>> conformal.ApartRows(rows, rows).sets.logits_NC.shape
        (10, 2)
    """

    fitting: Logits
    """Rows that fit the calibrator."""
    sets: Logits
    """Rows that give the thresholds of the sets."""


def rows_apart(rows: Logits, settings: SetSettings) -> ApartRows:
    """Divide rows into those that fit a calibrator and those that give the thresholds of its sets.

    Raises:
        ConfigError: There are too few rows for both.

    Examples:
        >>> rows = trueodds.logits.Logits(np.zeros((10, 2)), np.zeros(10, int))
        >>> apart = conformal.rows_apart(rows, conformal.SetSettings.of("lac", {"share": 0.3}))
        >>> len(apart.fitting.labels_N), len(apart.sets.labels_N)
        (7, 3)
    """
    try:
        apart, fitting = split_rows(len(rows.labels_N), settings.share, settings.seed)
    except ValueError as error:
        raise ConfigError(f"conformal sets: {error}; give more labelled rows") from None
    return ApartRows(rows.only(fitting), rows.only(apart))


def check_settings(settings: SetSettings, classes: int) -> None:
    """Check that the method works with so many classes.

    Raises:
        ConfigError: It does not.

    Examples:
        >>> conformal.check_settings(conformal.SetSettings.of("aps"), classes=3)
    """
    try:
        check_method(settings.method, classes)
    except ValueError as error:
        raise ConfigError(f"conformal sets: {error}") from None


def digest_of(calibrator: Calibrator) -> str:
    """Return the SHA-256 of a calibrator's fitted numbers. Sets of other probabilities are not its sets.

    Examples:
        >>> digest = conformal.digest_of(calibrators.Temperature(1.5))
        >>> digest == conformal.digest_of(calibrators.Temperature(1.6))
        False
    """
    return hashlib.sha256(json.dumps(calibrator.to_json(), sort_keys=True).encode()).hexdigest()


def fit_sets(
    calibrator: Calibrator,
    logits_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    settings: SetSettings,
    groups: Iterable[Any] | None = None,
) -> ConformalSets:
    """Fit the sets of a calibrator to rows that did not fit it.

    Args:
        calibrator: The fitted calibrator.
        logits_NC: Logits of other rows than those of its fit, shape (N, C).
        labels_N: True classes, shape (N,).
        settings: SetMethod, levels and seed.
        groups: Group of each row, if the calibrator has groups.

    Raises:
        ConfigError: There are two classes for aps or raps, or too few rows for raps.
        ValueError: The logits or labels are invalid.

    Examples:
        >>> logits_NC, labels_N = np.array([[2.0, 0.0], [0.0, 2.0]] * 50), [0, 1] * 50
        >>> conformal.fit_sets(calibrators.Temperature(1.5), logits_NC, labels_N, conformal.SetSettings.of("lac")).rows
        100
    """
    probabilities_NC = calibrator(logits_NC, groups=groups)
    check_settings(settings, probabilities_NC.shape[1])
    sets = fit(probabilities_NC, labels_N, settings.method, level=settings.levels[0], seed=settings.seed)
    return replace(sets, calibrator_sha256=digest_of(calibrator))


def few_rows_notes(rules: Sequence[SetRule], classes: Sequence[str] | None = None) -> list[str]:
    """Return a note for each rule without a finite threshold for some class, for lack of calibration rows.

    Examples:
        >>> few = conformal.fit(np.full((5, 2), 0.5), [0] * 5).at(0.9)
        >>> conformal.few_rows_notes([few])[0]
        'The sets of level 0.9 need 9 rows, and there are 5. So every class is in every set.'
    """
    notes = []
    for rule in rules:
        if not (few := rule.unlimited_classes):
            continue
        needed = f"sets of level {rule.level:g} need {fewest_rows(rule.level)} rows"
        if rule.method != "class":
            notes.append(f"The {needed}, and there are {rule.rows[0]}. So every class is in every set.")
            continue
        named = [f"{k if classes is None else classes[k]} ({rule.rows[k]})" for k in few[:10]]
        more = f" and {len(few) - 10} more" if len(few) > 10 else ""
        notes.append(f"The {needed} of each class. These have fewer, and are in every set: {', '.join(named)}{more}.")
    return notes


def _calibration_draws(labels_N: Index, seed: int) -> Array:
    """Draw a number in [0, 1) for each calibration row.

    The labels seed the draws too. With the same draws for all data sets, the coverage would err in the same direction
    for all of them.
    """
    digest = hashlib.blake2b(labels_N.astype("<i8").tobytes(), digest_size=8).digest()
    draws_N: Array = np.random.default_rng([seed, int.from_bytes(digest, "big")]).random(len(labels_N))
    return draws_N


def _choose_penalty(p_NC: Array, labels_N: Index, draws_N: Array, level: float) -> tuple[float, int]:
    """Return the penalty of raps, and the number of ranks without one."""
    rows_N = np.arange(len(labels_N))
    rank_NC = np.argsort(np.argsort(-p_NC, axis=1, kind="stable"), axis=1, kind="stable") + 1
    at = min(math.ceil((len(labels_N) + 1) * level), len(labels_N))
    free_ranks = int(np.sort(rank_NC[rows_N, labels_N])[at - 1])

    def mean_size(penalty: float) -> float:
        scores_NC = scores_of(p_NC, "raps", draws_N, penalty=penalty, free_ranks=free_ranks)
        own_N = np.sort(scores_NC[rows_N, labels_N])
        rank = min(rank_of(len(own_N), level), len(own_N))
        return float((scores_NC <= own_N[rank - 1] + SLACK).sum(axis=1).mean())

    return min(PENALTIES, key=mean_size), free_ranks
