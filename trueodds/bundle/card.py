"""Card of a bundle: inputs and outputs of its model, its training and evaluation, and the hashes of its files."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from trueodds.bundle.act_alone import ActAlone
from trueodds.bundle.card_measures import CardSets, RiskCoverage
from trueodds.inputs import Input
from trueodds.metrics import CELLS, CalibrationRows, cell_of
from trueodds.sums.bins import COARSE_CELLS, coarse_counts
from trueodds.sums.ordered import check_level_names
from trueodds.sums.positive import PositiveClass
from trueodds.texts import NAME

METRICS = ("n", "bins", "level", "before", "after")
"""Parts of an evaluation's table that a card keeps."""


_NEAR_0 = (1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 90, 130, 190, 270, 380, 520, 700, 900, 1_100, 1_300)
POSITIVE_EDGES = (*_NEAR_0, CELLS // 2, *(CELLS - edge for edge in reversed(_NEAR_0)))
"""Ends of the cells of p(positive) in 3,000ths, about equally far apart in log-odds, without 0 and 1."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Golden(_Part):
    """A stored input, and the model's answer to it at export."""

    input_b64: str
    """The row as its kind of input encodes it, in base64."""
    logits: list[float]
    probabilities: list[float]


class Reference(_Part):
    """Confidences of the validation rows after the calibrator. Live confidences are compared with them."""

    rows: int = Field(ge=1)
    counts: list[int] = Field(min_length=COARSE_CELLS, max_length=COARSE_CELLS)
    """Counts on 60 equal cells (lo, hi] of [0, 1]; 0 is in the first cell."""
    mean: float = Field(ge=0, le=1)
    information: tuple[float, float, float] | None = Field(default=None, exclude_if=lambda value: value is None)
    """Information of the rows about the log-odds of the confidence; see `trueodds.metrics.CalibrationRows`."""
    information_of_positive: tuple[float, float, float] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """The same about the log-odds of p(positive)."""

    rows_by_class: tuple[list[int], list[int]] | None = Field(default=None, exclude_if=lambda value: value is None)
    """Rows of the other class and of the positive one, by the cells of p(positive) between `POSITIVE_EDGES`.

    The report compares the scores of later answers with them (`trueodds.metrics.prior_shift`).
    """

    @model_validator(mode="after")
    def _all_rows(self) -> Self:
        if min(self.counts) < 0 or sum(self.counts) != self.rows:
            raise ValueError(f"counts add up to {sum(self.counts)} rows, the reference says {self.rows}")
        cells = len(POSITIVE_EDGES) + 1
        for counts in self.rows_by_class or ():
            if len(counts) != cells or min(counts) < 0:
                raise ValueError(f"rows_by_class has {len(counts)} counts of a class; expected {cells}, none below 0")
        if self.rows_by_class is not None and sum(map(sum, self.rows_by_class)) != self.rows:
            raise ValueError(f"rows_by_class has {sum(map(sum, self.rows_by_class))} rows, not {self.rows}")
        return self

    @field_validator("information", "information_of_positive")
    @classmethod
    def _of_rows(cls, value: tuple[float, float, float] | None) -> tuple[float, float, float] | None:
        if value is not None:
            first, mixed, second = value
            # Sums of p (1 - p) (1, z, z^2). The last digits of the product may differ.
            if not (np.isfinite(value).all() and min(first, second) >= 0 and mixed**2 <= first * second * (1 + 1e-6)):
                raise ValueError(f"information is {value}; no rows have it")
        return value

    @classmethod
    def of(cls, confidence_N: npt.ArrayLike) -> Self:
        """Build the reference from the confidence of each row, the calibrated probability of its top label.

        Raises:
            ValueError: There are no rows, or a confidence is outside [0, 1].

        Examples:
            >>> Reference.of([0.25, 0.75]).mean
            0.5
        """
        counts_C = np.bincount(cell_of(confidence_N), minlength=CELLS)
        confidence = np.minimum(np.asarray(confidence_N, np.float64), 1.0)
        if not len(confidence):
            raise ValueError("no rows, so there are no confidences for later comparisons")
        return cls._of_cells(counts_C, float(confidence.mean()))

    @classmethod
    def of_probabilities(
        cls,
        probabilities: npt.ArrayLike,
        positive: PositiveClass | None = None,
        labels: npt.ArrayLike | None = None,
    ) -> Self:
        """Build the reference from the calibrated probabilities of the rows that fitted the calibrator.

        It also holds the information of these rows, from which later intervals allow for their number.

        Args:
            probabilities: Calibrated probabilities, shape (N, C).
            positive: The positive class of two, if there is one.
            labels: True class of each row. With a positive class, the reference then also holds its rows by class.

        Raises:
            ValueError: There are no rows, or a confidence is outside [0, 1].
        """
        p_NC = np.asarray(probabilities, np.float64)
        confidence_N = np.minimum(p_NC.max(axis=1), 1.0)
        of_positive = None if positive is None else CalibrationRows.of(np.clip(p_NC[:, positive.index], 0, 1))
        return cls.of(confidence_N).model_copy(
            update={
                "information": CalibrationRows.of(confidence_N).information,
                "information_of_positive": of_positive and of_positive.information,
                "rows_by_class": None
                if positive is None or labels is None
                else cls._by_class(p_NC[:, positive.index], np.asarray(labels) == positive.index),
            }
        )

    def calibration_rows(self, *, positive: bool) -> CalibrationRows | None:
        """Return the information of the rows about p(positive), or about the confidence; None if it is not known."""
        information = self.information_of_positive if positive else self.information
        return None if information is None else CalibrationRows(self.rows, information)

    @staticmethod
    def _by_class(p_N: npt.NDArray[Any], positive_N: npt.NDArray[np.bool_]) -> tuple[list[int], list[int]]:
        cell_N = np.searchsorted(POSITIVE_EDGES, cell_of(p_N), side="right")
        others, own = (
            np.bincount(cell_N[rows_N], minlength=len(POSITIVE_EDGES) + 1) for rows_N in (~positive_N, positive_N)
        )
        return others.tolist(), own.tolist()

    @classmethod
    def _of_cells(cls, counts_C: npt.NDArray[Any], mean: float) -> Self:
        counts = coarse_counts(counts_C).tolist()
        return cls(rows=sum(counts), counts=counts, mean=mean)


class Description(_Part):
    """Parts of a card that the maker of a bundle states. `Bundle.write` computes the others."""

    format: Literal[1] = 1
    name: str = Field(pattern=f"^{NAME}$")
    classes: list[str] = Field(min_length=1)
    positive: str | None = None
    """Positive one of two classes."""
    ordered: bool = Field(default=False, exclude_if=lambda value: not value)
    """Whether the classes are levels, the lowest first. The entry is left out otherwise."""
    multilabel: bool = Field(default=False, exclude_if=lambda value: not value)
    """Whether the classes are independent yes/no labels. The entry is left out otherwise."""
    input: Input
    method: str
    training: dict[str, Any]
    metrics: dict[str, Any]
    risk_coverage: RiskCoverage | None = None
    act_alone: ActAlone | None = None
    """Promise of this version to act alone, if it has one."""
    sets: CardSets | None = Field(default=None, exclude_if=lambda value: value is None)
    """Conformal sets of this version, if it has them. The entry is left out otherwise."""
    notes: list[str] = Field(default_factory=list)
    data_sha256: str
    code_sha256: str

    @field_validator("classes")
    @classmethod
    def _different(cls, classes: list[str]) -> list[str]:
        if twice := [name for name, count in Counter(classes).items() if count > 1]:
            raise ValueError(f"the class {twice[0]!r} occurs twice; a label by name would be ambiguous")
        return classes

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        self._check_labels()
        self.positive_class()
        if self.ordered:
            check_level_names(self.classes)
        return self

    def _check_labels(self) -> None:
        """Check that independent labels have no properties of exclusive classes.

        Raises:
            ValueError: They have one.
        """
        given = {
            "positive": self.positive,
            "ordered": self.ordered,
            "risk_coverage": self.risk_coverage,
            "act_alone": self.act_alone,
            "sets": self.sets,
        }
        if self.multilabel and (wrong := next((name for name, value in given.items() if value), None)):
            raise ValueError(f"{wrong} is of exclusive classes, and multilabel is true; leave out one")

    def positive_class(self) -> PositiveClass | None:
        """Return the positive class with its position among the classes; None if there is none."""
        return None if self.positive is None else PositiveClass.of(self.positive, self.classes)


class CalibratorDistribution(_Part):
    """Distribution whose calibrator a bundle has."""

    name: str
    version: str
    """Version with which the bundle was written."""


class Card(Description):
    """All facts about a model. A card has no dates, so that equal runs give equal cards."""

    files: dict[str, str]
    """SHA-256 of model.onnx, calibrator.json and the other files of the bundle."""
    golden: Golden
    reference: Reference | None = None
    calibrator_distribution: CalibratorDistribution | None = Field(default=None, exclude_if=lambda value: value is None)
    """Distribution of the calibrator, if it is not one of TrueOdds. The entry is left out otherwise."""
