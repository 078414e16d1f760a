"""Rule of the sets at one level: the thresholds, and the calibration rows that they come from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from trueodds.calibrators.conformal.nonconformity import RANKED, draws_of, scores_of
from trueodds.calibrators.conformal.ranks import FLOOR_CHANCE, coverage_floor, rank_of
from trueodds.processes.choices import SetMethod
from trueodds.sums.inputs import Array

SLACK = 1e-9
"""Tolerance of a score. A calibrator with steps gives many rows one probability, whose last bits differ by machine."""

Level = Annotated[float, Field(gt=0, lt=1)]


class SetRule(BaseModel):
    """Rule of the sets at one level. It belongs to the probabilities of one calibrator.

    Examples:
        >>> rule = conformal.SetRule(method="lac", level=0.9, thresholds=(0.8,), ranks=(90,), rows=(99,))
        >>> rule.sets([[0.7, 0.2, 0.1]])
        array([[ True,  True, False]])
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: SetMethod | Literal["given"]
    """Method of the sets. given: another server makes them, and its thresholds are not known."""
    level: Level
    """Probability with which a set holds the true class."""
    confidence: Level | None = None
    """Share of calibrations in which the coverage reaches the level; None: it does on average over calibrations."""
    thresholds: tuple[float | None, ...] = Field(min_length=1)
    """Largest score of a class in the set: one, or one for each class. None: every score, for too few rows."""
    ranks: tuple[Annotated[int, Field(ge=1)], ...]
    """Rank of each threshold among its calibration scores; one more than their number if there are too few."""
    rows: tuple[Annotated[int, Field(ge=0)], ...]
    """Number of calibration rows of each threshold."""
    penalty: float = Field(0.0, ge=0)
    """Penalty of raps for each rank."""
    free_ranks: int = Field(0, ge=0)
    """Ranks without a penalty, for raps."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if not len(self.thresholds) == len(self.ranks) == len(self.rows):
            raise ValueError("thresholds, ranks and rows must have the same number of values")
        if len(self.thresholds) > 1 and self.method != "class":
            raise ValueError(f"{self.method} has one threshold; there are {len(self.thresholds)}")
        for threshold, rank, rows in zip(self.thresholds, self.ranks, self.rows, strict=True):
            if rank > rows + 1 or (threshold is None) != (rank == rows + 1):
                raise ValueError(f"threshold {threshold} has the rank {rank} of {rows} rows, which is impossible")
        return self

    @classmethod
    def of_level(cls, level: float, rows: int = 0) -> Self:
        """Return the rule of sets that another server makes.

        Args:
            level: Probability with which a set holds the true class.
            rows: Number of calibration rows of their threshold. 0: not known, so the floor is the level itself.

        Examples:
            >>> conformal.SetRule.of_level(0.9).floors, round(conformal.SetRule.of_level(0.9, 99).floors[0], 3)
            ((0.9,), 0.847)
        """
        rank = rank_of(rows, level)
        return cls(method="given", level=level, thresholds=(None if rank > rows else 1.0,), ranks=(rank,), rows=(rows,))

    @property
    def calibration_rows(self) -> int:
        """Number of calibration rows of all thresholds."""
        return sum(self.rows)

    @cached_property
    def floors(self) -> tuple[float, ...]:
        """Coverage of each threshold that a sound calibration reaches: all of them together, in 95% of calibrations."""
        chance = FLOOR_CHANCE / len(self.ranks)
        return tuple(coverage_floor(k, n, self.level, chance) for k, n in zip(self.ranks, self.rows, strict=True))

    def risks(self, labels_N: npt.ArrayLike) -> Array:
        """Return the largest probability of a miss that is no sign of a change, for each true class."""
        floors = np.array(self.floors)
        labels = np.asarray(labels_N, np.intp)
        return 1 - (floors[labels] if len(floors) > 1 else np.full(len(labels), floors[0]))

    @property
    def unlimited_classes(self) -> tuple[int, ...]:
        """Classes with too few calibration rows. Each of them is in every set."""
        return tuple(k for k, threshold in enumerate(self.thresholds) if threshold is None)

    def sets(self, probabilities_NC: npt.ArrayLike, ids: Sequence[str] | None = None) -> npt.NDArray[np.bool_]:
        """Compute which classes are in the set of each row.

        A set may be empty: then no class is as probable as the true class usually is.

        Args:
            probabilities_NC: Calibrated probabilities, shape (N, C).
            ids: Ids of the rows, which fix the draws of aps and raps. None: the number of the row.

        Returns:
            Whether each class is in the set, shape (N, C).

        Raises:
            ValueError: The probabilities are invalid, or of another number of classes than the thresholds; or the sets
                are given by another server.
        """
        if self.method == "given":
            raise ValueError("the sets are given by another server, so they cannot be computed; read the stored ones")
        p_NC = np.asarray(probabilities_NC)
        if len(self.thresholds) > 1 and p_NC.ndim == 2 and p_NC.shape[1] != len(self.thresholds):
            raise ValueError(f"probabilities has {p_NC.shape[1]} classes; there are {len(self.thresholds)} thresholds")
        draws_N = np.zeros(0)
        if self.method in RANKED:
            draws_N = draws_of([str(n) for n in range(len(p_NC))] if ids is None else ids)
        scores_NC = scores_of(p_NC, self.method, draws_N, penalty=self.penalty, free_ranks=self.free_ranks)
        limits = np.array([np.inf if limit is None else limit for limit in self.thresholds])
        inside_NC: npt.NDArray[np.bool_] = scores_NC <= limits + SLACK
        return inside_NC
