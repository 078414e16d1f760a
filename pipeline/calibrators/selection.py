"""Which calibrator: the one of least cross-validated NLL, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.calibrators import registry
from pipeline.calibrators.base import Calibrator, FitError, Labels, Logits, check_number, checked_fit_data, row_blocks
from pipeline.metrics.inputs import Array
from pipeline.metrics.sums import SMALLEST_PROBABILITY

CANDIDATES = (
    "identity",
    "temperature",
    "ensemble_temperature",
    "bias_corrected_temperature",
    "structured_vector",
    "structured_matrix",
)
"""The default choice: those whose parameters are few or held by a penalty."""


@dataclass(frozen=True)
class Candidate:
    """One line of the table; all numbers are over rows that the fit did not see."""

    name: str
    options: Mapping[str, Any]
    nll: float | None
    """Mean, in nats; None if it could not be fitted."""
    standard_error: float | None
    """Of `nll`: the rows' standard deviation over sqrt(N)."""
    behind: float | None
    """nll minus the least one."""
    behind_standard_error: float | None
    """Of `behind`, from the rows' paired differences."""
    within_one_standard_error: bool
    """behind <= behind_standard_error: these rows cannot tell it from the best."""
    problem: str | None = None


@dataclass(frozen=True)
class Selection:
    """The winner, fitted on all rows, and the table in the order of the candidates."""

    calibrator: Calibrator
    table: tuple[Candidate, ...]
    nll_MN: tuple[Array | None, ...] = field(default=(), repr=False, compare=False)
    """Each candidate's held-out -ln p_y, row by row, for paired comparisons; None if it could not be fitted."""


def select(
    logits_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    *,
    candidates: Sequence[str | tuple[str, Mapping[str, Any]]] = CANDIDATES,
    folds: int = 5,
) -> Selection:
    """The candidate of least cross-validated NLL, fitted on all rows; the earlier one of equals.

    A candidate is a name or a pair (name, options). Folds are stratified and deterministic: the rows of a class go
    round the folds in their order. A candidate that cannot be fitted in some fold is out, and its line says why.

    Raises:
        ConfigError: an unknown name or option.
        ValueError: bad data, no candidates or what is none, folds outside 2..N.
        FitError: no candidate can be fitted.
    """
    logits, labels = checked_fit_data(logits_NC, labels_N)
    if len(logits) < 2:
        raise ValueError(f"logits has {len(logits)} row; cross-validation needs at least 2")
    check_number("folds", folds, 2, len(logits), whole=True)
    pairs = _pairs(candidates)
    if not pairs:
        raise ValueError(f"candidates is empty; allowed: names such as {', '.join(CANDIDATES)}")
    fold_N = stratified(labels, folds)
    lost, problems = {}, {}
    for i, (name, options) in enumerate(pairs):
        try:
            lost[i] = _held_out(name, options, logits, labels, fold_N)
        except FitError as error:
            problems[i] = str(error)
    if not lost:
        raise FitError("no candidate can be fitted: " + "; ".join(f"{pairs[i][0]}: {p}" for i, p in problems.items()))
    best = min(lost, key=lambda i: (float(lost[i].mean()), i))
    table = tuple(
        _line(*pair, lost[i], lost[best]) if i in lost else Candidate(*pair, None, None, None, None, False, problems[i])
        for i, pair in enumerate(pairs)
    )
    winner = registry.fit(pairs[best][0], logits, labels, **pairs[best][1])
    return Selection(winner, table, tuple(lost.get(i) for i in range(len(pairs))))


def _pairs(candidates: Sequence[str | tuple[str, Mapping[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise ValueError(f"candidates is {candidates!r}; allowed is a sequence: [{candidates!r}], or leave it out")
    pairs: list[tuple[str, dict[str, Any]]] = []
    for candidate in candidates:
        match candidate:
            case str():
                pairs.append((candidate, {}))
            case (str() as name, Mapping() as options):
                pairs.append((name, dict(options)))
            case _:
                raise ValueError(f"candidates holds {candidate!r}; allowed are names and pairs (name, options)")
    return pairs


def stratified(labels_N: Labels, folds: int) -> Labels:
    """Each row's fold: the rows in the order of their class, dealt round."""
    fold_N = np.empty_like(labels_N)
    fold_N[np.argsort(labels_N, kind="stable")] = np.arange(len(labels_N)) % folds
    return fold_N


def _held_out(name: str, options: Mapping[str, Any], logits_NC: Logits, labels_N: Labels, fold_N: Labels) -> Array:
    """-ln p_y of every row, by the fit on the other folds."""
    nll_N = np.empty(len(labels_N))
    for fold in range(int(fold_N.max()) + 1):
        inside = fold_N == fold
        found = registry.fit(name, logits_NC[~inside], labels_N[~inside], **options)
        rows = np.flatnonzero(inside)
        for block in row_blocks(len(rows), logits_NC.shape[1]):
            part = rows[block]
            true_N = found(logits_NC[part])[np.arange(len(part)), labels_N[part]]
            nll_N[part] = -np.log(np.maximum(true_N, SMALLEST_PROBABILITY))
    return nll_N


def _line(name: str, options: Mapping[str, Any], nll_N: Array, best_N: Array) -> Candidate:
    root, behind_N = float(np.sqrt(len(nll_N))), nll_N - best_N
    behind, error = float(behind_N.mean()), float(behind_N.std(ddof=1)) / root
    return Candidate(
        name, options, float(nll_N.mean()), float(nll_N.std(ddof=1)) / root, behind, error, bool(behind <= error)
    )
