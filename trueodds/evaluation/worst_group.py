"""Audit: the group of rows with the worst calibration, found on one half of the rows and tested on the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.inputs import table
from trueodds.metrics import CalibrationSums, gap_sequence
from trueodds.sums.frames import check_index
from trueodds.sums.inputs import Array, as_numbers, check_alpha, check_level, check_top, is_number, is_whole

STAKES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 0.9)
"""Stakes of the bets; each has the same share of the capital."""
MOST_CATEGORIES = 30
"""Largest number of values of a text column that the search splits on: the most frequent ones."""
FEWEST_ROWS = 40
"""Smallest number of labelled rows of an audit."""
MOST_DEPTH = 6
DIGITS = 6
"""Significant digits of the thresholds. A group is what its words say, with these digits."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Condition:
    """One condition of a group: a range of a number, a text, or a missing value."""

    feature: str
    relation: str
    """"<=", ">", "is", "is not", "is missing" or "is not missing"."""
    value: float | str | None = None
    with_missing: bool = False
    """Whether rows without a value belong to the group."""

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.feature} {self.relation}"
        value = f'"{self.value}"' if isinstance(self.value, str) else f"{self.value:.{DIGITS}g}"
        return f"{self.feature} {self.relation} {value}{' or missing' * self.with_missing}"


@dataclass(frozen=True)
class WorstGroup:
    """A group that was found on one half of the rows. All numbers are those of the other half."""

    conditions: tuple[Condition, ...]
    """Conditions that all hold; none: all rows."""
    labels: int
    """Rows of the group in that half."""
    rows: int
    """Rows of them that count. Fewer than `labels` if the propensities differ."""
    share: float
    """Share of the group in that half, weighted by 1 / propensity."""
    accuracy: float
    mean_confidence: float
    signed_gap: float
    """Accuracy minus mean confidence."""
    lower: float
    """Lower end of the interval of the signed gap."""
    upper: float
    log_e: float
    """Natural logarithm of the e-value against "the signed gap is within the tolerance"."""
    is_found: bool
    """Whether the e-value reaches its threshold."""

    @property
    def words(self) -> str:
        """The group in words."""
        return " and ".join(map(str, self.conditions)) or "all rows"

    def members(self, features: Mapping[str, Sequence[Any] | npt.NDArray[Any]]) -> Mask:
        """Return which rows belong to the group.

        Args:
            features: Columns by name, as for `worst_group`; of the same rows or of others.

        Raises:
            ValueError: Columns differ in their lengths, there are none, or one of the group's is missing or has other
                values than in the audit: numbers instead of texts, or texts instead of numbers.
        """
        if not features:
            raise ValueError("features is empty; give the columns of the audit")
        rows = len(next(iter(features.values())))
        columns = {name: _Column.of(name, values, rows) for name, values in features.items()}
        for condition in self.conditions:
            column = columns.get(condition.feature)
            if column is None:
                raise ValueError(f"features lacks {condition.feature!r}, a column of the group; give it")
            if condition.value is not None and isinstance(condition.value, str) == (column.texts_N is None):
                kinds = ("numbers", "texts") if column.texts_N is None else ("texts", "numbers")
                raise ValueError(f"feature {condition.feature!r} has {kinds[0]}; give {kinds[1]}, as in the audit")
        return _members(columns, self.conditions, rows)


@dataclass(frozen=True)
class GroupAudit:
    """Result of `worst_group`."""

    groups: tuple[WorstGroup, ...]
    """The worst group of the first half; with `swap`, also that of the second half."""
    rows: int
    left_out: int
    """Rows without a propensity beside others that have one. They are in neither half."""
    tolerance: float
    alpha: float
    level: float
    """Confidence level of the intervals."""
    threshold: float
    """E-value from which on a group counts as found: the number of groups / alpha."""
    notes: tuple[str, ...] = ()
    """Features that may have been read otherwise than they are meant, one sentence each."""

    @property
    def is_found(self) -> bool:
        """Whether any group is found."""
        return any(group.is_found for group in self.groups)


def worst_group(
    confidence_N: npt.ArrayLike,
    correct_N: npt.ArrayLike,
    features: Mapping[str, Sequence[Any] | npt.NDArray[Any]],
    *,
    propensity_N: npt.ArrayLike | None = None,
    tolerance: float = 0.02,
    alpha: float = 0.05,
    level: float = 0.95,
    depth: int = 3,
    swap: bool = False,
    seed: int = 0,
) -> GroupAudit:
    """Find the group of rows whose confidence is furthest off, and test it on rows that the search has not seen.

    **Search.** The rows are split at random into halves. On the first half, a regression tree of a - c (right or wrong
    minus confidence) splits the rows by the features. The group is the node, inner nodes and the root included, with
    the largest

        z = (|sum (a - c)| - tolerance n) / sqrt(sum c (1 - c)).

    **Test.** The second half bets that the group's gap has the sign s that the first half showed. Its e-value is

        E = mean_L prod_n (1 + L (s (a_n - c_n) - tolerance) / (1 + tolerance))   with L in STAKES.

    If rows are independent and s E[a - c] is at most the tolerance in the group, each factor is at most 1 on average.
    So is E, whatever the search has found, because the group and s depend on the first half only. Then
    P(E >= 1 / alpha) <= alpha (Markov's inequality). With `swap` the roles are also exchanged. Each of the two groups
    then has half of alpha, so P(any false find) <= alpha (union bound).

    The interval of the signed gap is `gap_sequence` on the second half. It is valid because the group was fixed before.

    **Propensities.** Labels may be chosen with different probabilities. Of the group's rows in the second half, each is
    kept with probability (least propensity in the group) / (its own). Then each answer of the group has the same chance
    of a label, and the test is about all answers of the group. The search uses all rows, because it decides nothing.

    Rows that belong together, such as frames of one film, must be in the same half. This function cannot know that, so
    give one row of each.

    Args:
        confidence_N: Confidence of each row.
        correct_N: Whether each row is right.
        features: Columns by name, with a value for each row. Numbers are split at thresholds, and texts by their most
            frequent 30 values. None, NaN and "" are missing.
        propensity_N: Probability with which each row's label was asked for, in (0, 1]. NaN: unknown. If any is known,
            rows without one are left out, because their labels are not a random sample.
        tolerance: Largest acceptable gap of a group, in [0, .5).
        alpha: Largest probability of a false find, inside (0, 1).
        level: Confidence level of the intervals.
        depth: Largest number of conditions of a group, from 1 to 6.
        swap: Whether to also search on the second half and test on the first.
        seed: Seed of the split into halves.

    Returns:
        The group, or two groups with `swap`.

    Raises:
        ValueError: Columns have another length than the rows, there are fewer than 40 rows or no features, or a value
            is outside its range.

    References:
        Hebert-Johnson et al. 2018, Multicalibration. Wang and Ramdas 2022, on e-values.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> age, night = rng.integers(18, 90, 4000), rng.random(4000) < 0.3
        >>> off = night & (age > 60)
        >>> audit = worst_group([0.9] * 4000, rng.random(4000) < 0.9 - 0.3 * off, {"age": age, "night": night})
        >>> audit.is_found, sorted({condition.feature for condition in audit.groups[0].conditions})
        (True, ['age', 'night'])
    """
    confidence, correct = check_top(confidence_N, correct_N)
    check_index(confidence=confidence_N, correct=correct_N, propensity=propensity_N)
    for name, values in features.items():
        check_index(confidence=confidence_N, **{f"features[{name!r}]": values})
    check_alpha(alpha)
    check_level(level)
    if not (is_number(tolerance) and 0 <= tolerance < 0.5):
        raise ValueError(f"tolerance is {tolerance!r}; allowed is [0, 0.5), such as 0.02")
    if not (is_whole(depth) and 1 <= depth <= MOST_DEPTH):
        raise ValueError(f"depth is {depth!r}; allowed are whole numbers from 1 to {MOST_DEPTH}")
    propensity, known_N = _propensities(propensity_N, len(confidence))
    columns = {name: _Column.of(name, values, len(confidence)) for name, values in features.items()}
    if not columns:
        raise ValueError("features is empty; give at least one column whose values may form groups")
    row_M = np.flatnonzero(known_N)
    if len(row_M) < FEWEST_ROWS:
        beside = "" if known_N.all() else f" with a propensity ({len(known_N) - len(row_M):,} have none)"
        raise ValueError(
            f"{len(row_M):,} rows{beside} are too few for an audit; give {FEWEST_ROWS} or more with labels"
        )
    first_N = np.zeros(len(confidence), bool)
    first_N[row_M[np.random.default_rng(seed).permutation(len(row_M))[: len(row_M) // 2]]] = True
    threshold = (2 if swap else 1) / alpha
    groups = []
    for half, search_N in enumerate((first_N, known_N & ~first_N)[: 2 if swap else 1]):
        conditions, sign = _search(columns, confidence, correct, search_N, tolerance, depth)
        tested_N = known_N & ~search_N
        inside_N = tested_N & _members(columns, conditions, len(confidence))
        share = float((1 / propensity[inside_N]).sum() / (1 / propensity[tested_N]).sum())
        kept_N = inside_N.copy()
        kept_N[inside_N] = _evenly(propensity[inside_N], np.random.default_rng([seed, half]))
        group = _test(conditions, confidence[kept_N], correct[kept_N], sign, tolerance, level, threshold)
        groups.append(replace(group, labels=int(inside_N.sum()), share=share))
    left_out = len(known_N) - len(row_M)
    notes = tuple(note for column in columns.values() if (note := column.note()))
    return GroupAudit(tuple(groups), len(row_M), left_out, tolerance, alpha, level, threshold, notes)


def _propensities(propensity_N: npt.ArrayLike | None, rows: int) -> tuple[Array, Mask]:
    """Return the propensity of each row, 1 if none is known, and which rows take part."""
    if propensity_N is None:
        return np.ones(rows), np.ones(rows, bool)
    propensity = as_numbers(propensity_N, "propensity").astype(np.float64)
    if propensity.shape != (rows,):
        raise ValueError(f"propensity has shape {propensity.shape}; expected ({rows},), one for each row")
    known_N: Mask = ~np.isnan(propensity)
    if not known_N.any():
        return np.ones(rows), np.ones(rows, bool)
    if (bad_N := known_N & ~((propensity > 0) & (propensity <= 1))).any():
        raise ValueError(f"propensity holds {propensity[bad_N][0]}; allowed is (0, 1], or NaN if it is unknown")
    return np.where(known_N, propensity, 1.0), known_N


def _evenly(propensity_M: Array, rng: np.random.Generator) -> Mask:
    """Draw which rows to keep, so that each answer has the same chance of a label."""
    if not len(propensity_M):
        return np.zeros(0, bool)
    kept_M: Mask = rng.random(len(propensity_M)) * propensity_M < propensity_M.min()
    return kept_M


def _test(
    conditions: tuple[Condition, ...],
    c_N: Array,
    right_N: Mask,
    sign: float,
    tolerance: float,
    level: float,
    threshold: float,
) -> WorstGroup:
    """Return a group with its numbers on the rows that the search has not seen."""
    rows = len(c_N)
    if not rows:
        nothing = dict.fromkeys(("accuracy", "mean_confidence", "signed_gap"), math.nan)
        return WorstGroup(conditions, 0, 0, 0.0, **nothing, lower=-1.0, upper=1.0, log_e=0.0, is_found=False)
    log_e = log_e_value(c_N, right_N, sign, tolerance)
    interval = gap_sequence(CalibrationSums.from_top(c_N, right_N), level=level)
    accuracy, says = float(right_N.mean()), float(c_N.mean())
    return WorstGroup(
        conditions,
        rows,
        rows,
        1.0,
        accuracy,
        says,
        accuracy - says,
        interval.lower,
        interval.upper,
        log_e,
        log_e >= math.log(threshold),
    )


def log_e_value(confidence_N: Array, correct_N: Mask, sign: float, tolerance: float) -> float:
    """Return log E of the bets that the gap of these rows has this sign and exceeds the tolerance."""
    excess_N = (sign * (correct_N - confidence_N) - tolerance) / (1 + tolerance)
    log_LN = np.log1p(np.array(STAKES)[:, None] * excess_N)
    return float(scipy.special.logsumexp(log_LN.sum(axis=1))) - math.log(len(STAKES))


@dataclass(frozen=True, eq=False)
class _Column:
    """Column of a feature: numbers with NaN for missing ones, or texts with "" for missing ones."""

    name: str
    numbers_N: Array | None
    texts_N: npt.NDArray[Any] | None

    @classmethod
    def of(cls, name: str, values: Sequence[Any] | npt.NDArray[Any], rows: int) -> _Column:
        """Read a column. It is numeric if all known values are numbers, or texts of numbers."""
        cells = values.tolist() if isinstance(values, np.ndarray) else list(values)
        if len(cells) != rows:
            raise ValueError(f"feature {name!r} has {len(cells)} values, but there are {rows} rows")
        missing = [cell is None or cell == "" or cell != cell for cell in cells]
        if not any(isinstance(cell, bool) for cell in cells):
            try:
                numbers = [math.nan if gone else float(cell) for cell, gone in zip(cells, missing, strict=True)]
            except (TypeError, ValueError):
                pass
            else:
                if all(gone or math.isfinite(number) for number, gone in zip(numbers, missing, strict=True)):
                    return cls(name, np.array(numbers, np.float64), None)
        texts = ["" if gone else str(cell) for cell, gone in zip(cells, missing, strict=True)]
        return cls(name, None, np.array(texts, object))

    def note(self) -> str:
        """Return a sentence on texts that may be meant as numbers, or that are too many to look at all; else ""."""
        if self.texts_N is None:
            return ""
        texts, counts = np.unique(self.texts_N[self.texts_N != ""].astype(str), return_counts=True)
        cells = texts.tolist()
        wrong_V = np.array([not (table.is_number(cell) and math.isfinite(float(cell))) for cell in cells], bool)
        wrong = int(counts[wrong_V].sum())
        if cures := [(cell, cure) for cell in cells if (cure := table.number_cure(cell))]:
            return f"{self.name!r} is read as text, such as {cures[0][0]!r}{cures[0][1]}."
        if 0 < 2 * wrong < int(counts.sum()):
            example = cells[int(wrong_V.argmax())]
            return (
                f"{self.name!r} is read as text, because {wrong:,} of {counts.sum():,} values are not numbers, such as"
                f" {example!r}; leave such cells empty to search for ranges."
            )
        if len(texts) > MOST_CATEGORIES:
            return f"Of {len(texts):,} values of {self.name}, the {MOST_CATEGORIES} most frequent may form groups."
        return ""

    def splits(self, search_N: Mask) -> list[tuple[Array, str | None]]:
        """Return columns for the tree, each with the text that it stands for; None: the number itself.

        A missing number is below all others. The categories are those of the rows of the search.
        """
        if self.numbers_N is not None:
            known_N = np.isfinite(self.numbers_N)
            if not known_N[search_N].any():
                return []
            return [(np.where(known_N, self.numbers_N, self._below(search_N)), None)]
        assert self.texts_N is not None
        names, counts = np.unique(self.texts_N[search_N].astype(str), return_counts=True)
        chosen = names[np.argsort(-counts, kind="stable")][:MOST_CATEGORIES]
        return [((self.texts_N == name).astype(np.float64), str(name)) for name in chosen]

    def _below(self, search_N: Mask) -> float:
        """Return a number below all known ones of the search."""
        assert self.numbers_N is not None
        known = self.numbers_N[search_N & np.isfinite(self.numbers_N)]
        return float(known.min() - max(1.0, abs(known.min()), np.ptp(known)))

    def condition(self, threshold: float, category: str | None, is_left: bool, search_N: Mask) -> Condition:
        """Return the condition of a branch of the tree."""
        if category is not None:
            if category == "":
                return Condition(self.name, "is not missing" if is_left else "is missing")
            assert self.texts_N is not None
            gaps = is_left and bool((self.texts_N == "").any())
            return Condition(self.name, "is not" if is_left else "is", category, with_missing=gaps)
        assert self.numbers_N is not None
        known = self.numbers_N[search_N & np.isfinite(self.numbers_N)]
        if threshold < known.min():
            return Condition(self.name, "is missing" if is_left else "is not missing")
        value = float(f"{threshold:.{DIGITS}g}")
        gaps = bool((~np.isfinite(self.numbers_N)).any())
        return Condition(self.name, "<=" if is_left else ">", value, with_missing=is_left and gaps)

    def members(self, condition: Condition) -> Mask:
        """Return which rows meet a condition."""
        values_N: Any = self.texts_N if self.numbers_N is None else self.numbers_N
        missing_N: Mask = np.isnan(values_N) if self.numbers_N is not None else values_N == ""
        if condition.relation == "is missing":
            return missing_N
        if condition.relation == "is not missing":
            return ~missing_N
        if self.numbers_N is None:
            same_N: Mask = values_N == condition.value
            return same_N if condition.relation == "is" else ~same_N
        low_N: Mask = values_N <= condition.value
        return low_N | missing_N if condition.relation == "<=" else ~low_N & ~missing_N


def _members(columns: Mapping[str, _Column], conditions: Sequence[Condition], rows: int) -> Mask:
    """Return which rows meet all conditions."""
    inside_N = np.ones(rows, bool)
    for condition in conditions:
        inside_N &= columns[condition.feature].members(condition)
    return inside_N


def _search(
    columns: Mapping[str, _Column], confidence_N: Array, correct_N: Mask, search_N: Mask, tolerance: float, depth: int
) -> tuple[tuple[Condition, ...], float]:
    """Return the conditions of the worst node of a tree on the rows of the search, and the sign of its gap."""
    splits = [(column, *one) for column in columns.values() for one in column.splits(search_N)]
    residual_N = correct_N - confidence_N
    fewest = max(FEWEST_ROWS // 4, int(search_N.sum()) // 100)
    best: tuple[float, tuple[Condition, ...], float] = (-math.inf, (), 1.0)
    nodes: list[tuple[Condition, ...]] = [()]
    levels: dict[tuple[Condition, ...], int] = {(): 0}
    while nodes:
        conditions = nodes.pop()
        inside_N = search_N & _members(columns, conditions, len(search_N))
        if not inside_N.any():
            continue
        score = _score(confidence_N[inside_N], residual_N[inside_N], tolerance)
        if score > best[0]:
            best = (score, conditions, 1.0 if residual_N[inside_N].sum() >= 0 else -1.0)
        if levels[conditions] == depth:
            continue
        split = best_split([values_N[inside_N] for _, values_N, _ in splits], residual_N[inside_N], fewest)
        if split is None:
            continue
        column, _, category = splits[split[0]]
        for is_left in (True, False):
            child = _tighten(conditions, column.condition(split[1], category, is_left, search_N))
            if child not in levels:  # a rounded threshold may repeat a condition
                levels[child] = levels[conditions] + 1
                nodes.append(child)
    return best[1], best[2]


def best_split(columns_FN: Sequence[Array], residual_N: Array, fewest: int) -> tuple[int, float] | None:
    """Return the split that lowers the variance of the residuals most: the column's index, and the threshold.

    It maximises S_L^2 / n_L + S_R^2 / n_R over all columns and thresholds, with the sums S of the residuals of the n
    rows on each side. Each side has at least `fewest` rows. Of equal splits, the first one is chosen.

    Args:
        columns_FN: The columns.
        residual_N: Residuals of the rows.
        fewest: Smallest number of rows of a side.

    Returns:
        The split, whose left side has values up to the threshold; None if no split is allowed.

    References:
        Breiman, Friedman, Olshen and Stone 1984, Classification and Regression Trees.
    """
    rows, total = len(residual_N), float(residual_N.sum())
    if rows < 2 * fewest:
        return None
    left_M = np.arange(fewest, rows - fewest + 1)
    best: tuple[float, int, float] | None = None
    for index, values_N in enumerate(columns_FN):
        order_N = np.argsort(values_N, kind="stable")
        sorted_N = values_N[order_N]
        sum_M = np.cumsum(residual_N[order_N])[left_M - 1]
        gain_M = sum_M**2 / left_M + (total - sum_M) ** 2 / (rows - left_M)
        gain_M[sorted_N[left_M - 1] == sorted_N[left_M]] = -math.inf
        place = int(np.argmax(gain_M))
        if gain_M[place] > (-math.inf if best is None else best[0] + 1e-12):
            left = int(left_M[place])
            best = float(gain_M[place]), index, float(sorted_N[left - 1] + sorted_N[left]) / 2
    return None if best is None else best[1:]


def _tighten(conditions: tuple[Condition, ...], condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions with one more. A later limit on the same side of a number replaces the earlier one."""
    kept = [one for one in conditions if (one.feature, one.relation) != (condition.feature, condition.relation)]
    return (*kept, condition) if condition.relation in ("<=", ">") else (*conditions, condition)


def _score(confidence_N: Array, residual_N: Array, tolerance: float) -> float:
    """Return how far a group is off, in standard deviations of calibrated rows beyond the tolerance."""
    variance = max(float((confidence_N * (1 - confidence_N)).sum()), 1e-3)
    return (abs(float(residual_N.sum())) - tolerance * len(residual_N)) / math.sqrt(variance)
