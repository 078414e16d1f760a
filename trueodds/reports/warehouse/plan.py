"""Plan of a table's sums: its columns, the classes that its labels mean, its resolution, and its groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from trueodds.reports.schemas import Unit
from trueodds.sums.rounding import EXACT, Resolution

Expression: TypeAlias = Any
"""A table, a column or a scalar of Ibis."""
Codes: TypeAlias = tuple[tuple[Any, int], ...]
"""Distinct values of a column, each with its meaning."""
NONE = -1
"""Code of a label that means "no label"."""
UNSEEN = -2
"""Code of a value that was not in the table when its values were quotes."""
Group = Literal["version", "tag", "confidence_source"]
GROUPS: tuple[Group, ...] = ("version", "tag", "confidence_source")
"""Columns whose values are compared."""


@dataclass(frozen=True, kw_only=True)
class TimeColumn:
    """A column of times, and the form of its values."""

    column: str
    per_second: int = 0
    """Units per second of numbers. 0: timestamps."""


@dataclass(frozen=True, kw_only=True)
class ReadingPlan:
    """Facts about a table that its sums need."""

    source: str
    """Name of the table, for messages and the report."""
    classes: tuple[str, ...]
    """Names of the classes. With `columns` they are in the order of the probabilities."""
    columns: tuple[str, ...] = ()
    """Columns of probabilities. One column holds the second of two classes. Empty: `confidence` holds one number."""
    confidence: str = "confidence"
    """Column of the confidence, if there are no probabilities."""
    label: str = ""
    """Column of the labels; "" if the table has `correct` instead."""
    labels: Codes = ()
    predicted: Codes = ()
    """Meaning of the column `predicted`. Empty with probabilities, and if the table has no such column."""
    correct: Codes = ()
    """Meaning of the column `correct`: 1, 0, or no label."""
    positive: int | None = None
    """Index of the positive class."""
    resolution: Resolution = EXACT
    groups: tuple[Group, ...] = ()
    """Columns that the table has and that are compared."""
    group_codes: tuple[tuple[Group, Codes], ...] = ()
    """Values of groups that have few, with a number for each. The engine adds up by these numbers, which is faster."""
    moment: TimeColumn | None = None
    unit: Unit | None = None
    """Unit of the periods. None: no trend."""
    notes: tuple[str, ...] = field(default=())
    by_list: bool = False
    """Whether the engine finds a text in a list faster than by a comparison with each."""
    has_fan_out: bool = False
    """Whether the engine passes the rows of one scan to several aggregates, without a copy of them."""
    period_range: tuple[int, int] | None = None
    """First and last period, if they are few. The engine adds up by their distance from the first one."""
    by_pairs: bool = False
    """Whether the engine finds the largest of some numbers faster by comparisons of pairs than by GREATEST."""
    has_float_errors: bool = False
    """Whether the engine stops at a product that is too large or too small for a double."""

    @property
    def by_confidence(self) -> bool:
        """Whether the table holds the probability of the predicted class alone."""
        return not self.columns

    @property
    def has_scores(self) -> bool:
        """Whether every labelled row has a log loss: all probabilities are known, and their step is fine enough."""
        return not self.by_confidence and self.resolution.has_nll
