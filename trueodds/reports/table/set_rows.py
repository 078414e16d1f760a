"""Conformal sets of a table: which labelled answers have their true class in the set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.conformal import LiveSets, SetRule
from trueodds.calibrators.conformal.live_sets import WeightedCounts
from trueodds.errors import nearest
from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.reports.schemas.sets import SetCoverage
from trueodds.reports.table.classes import check_alike, class_indices, is_none, label_values
from trueodds.reports.verdict.set_coverage import level_coverage
from trueodds.sums.inputs import Array
from trueodds.texts import Places, plural, quotes, short, without_point

EXAMPLE = 'expected a JSON list of different classes, such as ["a", "b"] or []'


@dataclass(frozen=True, eq=False, kw_only=True)
class SetRows:
    """Conformal sets of the L labelled answers of a table, in its order."""

    rule: SetRule
    """Level and calibration rows of all sets."""
    classes: tuple[str, ...]
    label_L: npt.NDArray[np.intp]
    """True class."""
    covered_L: npt.NDArray[np.bool_]
    """Whether the set holds the true class."""
    size_L: npt.NDArray[np.intp]
    """Number of classes in the set."""


def sets_of_cells(
    source: str,
    cells: Texts,
    labels: Texts,
    rule: SetRule,
    *,
    classes: Sequence[str] = (),
    predicted: Texts | None = None,
    first: int | None = None,
    first_row: int = 1,
) -> SetRows:
    """Read a column of sets, each a JSON list of classes by name, or by number where labels are numbers.

    Args:
        source: Name of the table's file.
        cells: Set of each answer.
        labels: True class of each answer; empty without one.
        rule: Level and calibration rows of the sets.
        classes: All classes. Empty: those that are predicted, labels or in a set.
        predicted: Predicted classes.
        first: Number of the first class, 0 or 1.
        first_row: Row number of the first answer.

    Raises:
        FileError: A cell is no set, a set holds something that is not a class, or a labelled answer has no set.
    """
    lists = [_members(cell) for cell in cells.values]
    for code in np.unique(cells.code_N).tolist():
        if lists[code] is None and cells.values[code]:
            row = int((cells.code_N == code).argmax()) + first_row
            raise FileError(f"{source}, row {row:,}: set is {short(cells.values[code])}; {EXAMPLE}")
    names = tuple(dict.fromkeys(name for members in lists for name in members or ()))
    if not classes:
        known = label_values(labels, predicted.values if predicted else ())
        known = tuple(dict.fromkeys((*(label_values(predicted) if predicted else ()), *known)))
        check_alike(source, known, names)
        classes = (*known, *(name for name in names if name not in known))
    label_N, scheme = class_indices(source, "label", labels, classes, first=first, beside=predicted)
    places, by_number = Places(classes), {str(k + (first or 0)): k for k in range(len(classes))}
    place: dict[str, int] = {}
    for name in names:
        found = places.get(name)
        if found is None and scheme == "numbers":
            found = by_number.get(name)
        if found is None:
            which = [members is not None and name in members for members in lists]
            row = int(np.array(which)[cells.code_N].argmax()) + first_row
            raise FileError(
                f"{source}, row {row:,}: set holds {short(name)}; the classes are {quotes(tuple(classes), 5)}."
                f"{nearest(name[:100], classes)}"
            )
        place[name] = found
    inside = [None if members is None else frozenset(place[name] for name in members) for members in lists]
    sizes = [-1 if one is None else len(one) for one in inside]
    known_N = np.flatnonzero(label_N >= 0)
    label_L, code_L = label_N[known_N], cells.code_N[known_N]
    size_L = np.array(sizes, np.intp)[code_L] if len(code_L) else np.zeros(0, np.intp)
    _check_all(source, size_L >= 0, known_N + first_row)
    covered = [k in (inside[code] or ()) for k, code in zip(label_L.tolist(), code_L.tolist(), strict=True)]
    return SetRows(rule=rule, classes=tuple(classes), label_L=label_L, covered_L=np.array(covered, bool), size_L=size_L)


def sets_of_array(
    source: str, inside_NC: npt.NDArray[Any], label_N: npt.NDArray[np.intp], classes: Sequence[str], rule: SetRule
) -> SetRows:
    """Read an array of sets: whether each class is in the set of each answer.

    Raises:
        FileError: The array has another shape, or another type than bool.
    """
    if inside_NC.dtype != np.bool_ or inside_NC.shape != (len(label_N), len(classes)):
        raise FileError(
            f"{source}: sets has shape {inside_NC.shape} and type {inside_NC.dtype}; expected bool of shape"
            f" {(len(label_N), len(classes))}: whether each class is in the set of each answer"
        )
    known_N = label_N >= 0
    label_L, inside_LC = label_N[known_N], inside_NC[known_N]
    covered_L = np.take_along_axis(inside_LC, label_L[:, None], 1)[:, 0]
    size_L = inside_LC.sum(axis=1)
    return SetRows(rule=rule, classes=tuple(classes), label_L=label_L, covered_L=covered_L, size_L=size_L)


def coverage_of(
    sets: SetRows, propensity_L: Array, tags: Sequence[str | None], *, is_chosen: bool, confidence: float
) -> SetCoverage:
    """Return the coverage of a table's sets at one look.

    Args:
        sets: The sets of the labelled answers.
        propensity_L: Probability of each of these answers to get a label; NaN if it is not known.
        tags: Tags of these answers.
        is_chosen: Whether the labelled answers differ from all answers in their confidence.
        confidence: Confidence level of the limits.
    """
    live = LiveSets().take(sets.covered_L, sets.size_L, sets.label_L, tags)
    stated_L, weighted = np.isfinite(propensity_L), WeightedCounts()
    how: Literal["plain", "propensity", "refused"] = "refused" if is_chosen or stated_L.any() else "plain"
    if len(stated_L) and stated_L.all():
        how, weighted = "propensity", weighted.take(1 / propensity_L, sets.covered_L)
    level = level_coverage(sets.rule, live, weighted, sets.classes, how, is_chosen=is_chosen, confidence=confidence)
    return SetCoverage(levels=[level])


def _members(cell: str) -> tuple[str, ...] | None:
    """Return the classes of a cell; None without a set, or if the cell is no set."""
    if is_none(cell):
        return None
    try:
        found = json.loads(cell)
    except ValueError:
        return None
    if not isinstance(found, list):
        return None
    names = [_name(one) for one in found]
    return None if None in names or len(set(names)) < len(names) else tuple(str(name) for name in names)


def _name(value: object) -> str | None:
    """Return a class as text; None if it is neither a text nor a whole number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return without_point(str(value))


def _check_all(source: str, has_set_L: npt.NDArray[np.bool_], row_L: npt.NDArray[np.intp]) -> None:
    """Check that each labelled answer has a set: those without one may be the difficult ones."""
    if has_set_L.all():
        return
    without = plural(int((~has_set_L).sum()), "labelled answer")
    raise FileError(
        f"{source}, row {row_L[int(has_set_L.argmin())]:,} has no set, as {without} of {len(has_set_L):,}; every"
        " labelled answer needs one (an empty one is []): leave out the rows of which no set is known"
    )
