"""Counts of sets whose true class has become known: hits, by size, by true class and by tag."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import compress
from typing import Annotated, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from trueodds.sums.inputs import Array

MOST_TAGS = 100
"""Number of tags that are counted by themselves: those that came first."""

Count = Annotated[int, Field(ge=0)]
Pair = tuple[Count, Count]
"""Number of labels, and how many of their sets hold the true class."""
K = TypeVar("K", bound=Hashable)


class LiveSets(BaseModel):
    """Counts of labelled sets. Adding labels in any number of steps gives the same counts.

    Examples:
        >>> live = conformal.LiveSets().take([True, False, True], [1, 2, 2], [0, 1, 1], ["a", "a", None])
        >>> live.labels, live.hits, live.sizes, live.classes, live.tags
        (3, 2, {1: (1, 1), 2: (2, 1)}, {0: (1, 1), 1: (2, 1)}, {'a': (2, 1), '': (1, 1)})
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: Count = 0
    hits: Count = 0
    """Number of sets that hold the true class."""
    sizes: dict[Count, Pair] = Field(default_factory=dict)
    """Counts by the number of classes in the set."""
    classes: dict[Count, Pair] = Field(default_factory=dict)
    """Counts by true class."""
    tags: dict[str, Pair] = Field(default_factory=dict)
    """Counts by tag, of the first 100 tags. "" stands for answers without a tag."""
    other_tags: Pair = (0, 0)
    """Counts of all further tags."""

    @model_validator(mode="after")
    def _add_up(self) -> Self:
        whole = self.labels, self.hits
        by_tag = [*self.tags.values(), self.other_tags]
        for pairs in (list(self.sizes.values()), list(self.classes.values()), by_tag):
            if (sum(n for n, _ in pairs), sum(covered for _, covered in pairs)) != whole:
                raise ValueError(f"counts by size, class or tag do not add up to {whole}")
        return self

    def take(
        self, covered_N: npt.ArrayLike, size_N: npt.ArrayLike, labels_N: npt.ArrayLike, tags: Sequence[str | None]
    ) -> Self:
        """Return the counts after more labels.

        Args:
            covered_N: Whether each set holds the true class, shape (N,).
            size_N: Number of classes in each set.
            labels_N: True classes.
            tags: Tags of the answers; None: no tag.
        """
        covered = np.asarray(covered_N, bool).tolist()
        known = dict(self.tags)
        names = [tag or "" for tag in tags]
        for name in dict.fromkeys(names):
            if name not in known and len(known) < MOST_TAGS:
                known[name] = (0, 0)
        is_known = [name in known for name in names]
        counted = _counts(known, compress(names, is_known), list(compress(covered, is_known)))
        others = [is_covered for is_covered, own in zip(covered, is_known, strict=True) if not own]
        return type(self)(
            labels=self.labels + len(covered),
            hits=self.hits + sum(covered),
            sizes=_counts(self.sizes, np.asarray(size_N, np.int64).tolist(), covered),
            classes=_counts(self.classes, np.asarray(labels_N, np.int64).tolist(), covered),
            tags=counted,
            other_tags=(self.other_tags[0] + len(others), self.other_tags[1] + sum(others)),
        )


class WeightedCounts(BaseModel):
    """Sums over labels with a propensity, each weighted by 1 / propensity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: float = 0.0
    hits: float = 0.0
    squared_weight: float = 0.0
    squared_hits: float = 0.0
    """Sum of the squared weights of covered sets."""

    def take(self, weight_N: Array, covered_N: npt.NDArray[np.bool_]) -> Self:
        """Return the sums after more labels."""
        return type(self)(
            weight=self.weight + float(weight_N.sum()),
            hits=self.hits + float(weight_N[covered_N].sum()),
            squared_weight=self.squared_weight + float((weight_N**2).sum()),
            squared_hits=self.squared_hits + float((weight_N[covered_N] ** 2).sum()),
        )


def _counts(before: dict[K, Pair], keys: Iterable[K], hits: Sequence[bool]) -> dict[K, Pair]:
    """Return counts by key after more labels."""
    counts = dict(before)
    for key, is_covered in zip(keys, hits, strict=True):
        labels, right = counts.get(key, (0, 0))
        counts[key] = (labels + 1, right + is_covered)
    return counts
