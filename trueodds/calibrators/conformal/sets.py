"""Fitted sets: the sorted calibration scores, from which the rule of any level follows."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from trueodds.calibrators.conformal.nonconformity import check_method
from trueodds.calibrators.conformal.ranks import rank_of
from trueodds.calibrators.conformal.rule import SetRule
from trueodds.processes.choices import SetMethod
from trueodds.sums.inputs import Array, is_number, is_whole

FORM = 1
"""Form of the JSON. A release reads only its own."""
KEYS = {"form", "method", "classes", "rows", "penalty", "free_ranks", "tuning_rows", "calibrator_sha256"} | {
    "scores_zlib_b64"
}


@dataclass(frozen=True, eq=False)
class ConformalSets:
    """Sorted scores of the true classes of calibration rows. `trueodds.calibrators.conformal.fit` makes it.

    Examples:
        >>> p_NC = np.array([[0.9, 0.1], [0.2, 0.8]] * 50)
        >>> sets = conformal.fit(p_NC, [0, 1] * 50)
        >>> round(sets.at(0.9).thresholds[0], 3), sets.rows
        (0.2, 100)
    """

    method: SetMethod
    classes: int
    scores: tuple[Array, ...]
    """Sorted scores of the true classes: one array, or one for each class."""
    penalty: float = 0.0
    """Penalty of raps for each rank."""
    free_ranks: int = 0
    """Ranks without a penalty, for raps."""
    tuning_rows: int = 0
    """Number of rows that chose the penalty of raps. They are not among the scores."""
    calibrator_sha256: str = ""
    """Digest of the calibrator whose probabilities the scores are about (`digest_of`); empty: not known."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConformalSets) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.method, self.classes, self.calibrator_sha256, self.rows))

    @property
    def rows(self) -> int:
        """Number of calibration rows."""
        return sum(map(len, self.scores))

    def at(self, level: float, confidence: float | None = None) -> SetRule:
        """Return the rule of the sets at a level.

        Args:
            level: Probability with which a set holds the true class, inside (0, 1).
            confidence: Share of calibrations in which the coverage reaches the level (`rank_of`). None: it does on
                average over calibrations.

        Raises:
            ValueError: A level is outside (0, 1).
        """
        ranks = tuple(rank_of(len(scores), level, confidence) for scores in self.scores)
        return SetRule(
            method=self.method,
            level=level,
            confidence=confidence,
            thresholds=tuple(
                float(scores[rank - 1]) if rank <= len(scores) else None
                for scores, rank in zip(self.scores, ranks, strict=True)
            ),
            ranks=ranks,
            rows=tuple(map(len, self.scores)),
            penalty=self.penalty,
            free_ranks=self.free_ranks,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values, which `from_json` restores exactly. The scores are compressed."""
        data = np.concatenate(self.scores).astype("<f8").tobytes()
        return {
            "form": FORM,
            "method": self.method,
            "classes": self.classes,
            "rows": [len(scores) for scores in self.scores],
            "penalty": self.penalty,
            "free_ranks": self.free_ranks,
            "tuning_rows": self.tuning_rows,
            "calibrator_sha256": self.calibrator_sha256,
            "scores_zlib_b64": base64.b64encode(zlib.compress(data, 9)).decode(),
        }

    @classmethod
    def from_json(cls, tree: Any) -> Self:
        """Restore sets from the output of `to_json`.

        Raises:
            ValueError: It is not such an output, or its values contradict each other.
        """
        if not isinstance(tree, Mapping) or set(tree) != KEYS or tree["form"] != FORM:
            raise ValueError("it does not hold conformal sets of this release; fit them again")
        try:
            method, classes, rows = tree["method"], tree["classes"], tree["rows"]
            counts = classes, tree["free_ranks"], tree["tuning_rows"], *rows
            if not all(is_whole(count) and count >= 0 for count in counts):
                raise ValueError("classes, rows, free_ranks and tuning_rows must be whole numbers")
            check_method(method, classes)
            if not (is_number(tree["penalty"]) and tree["penalty"] >= 0):
                raise ValueError(f"penalty is {tree['penalty']!r}; allowed is a number from 0 on")
            if len(rows) != (classes if method == "class" else 1):
                raise ValueError(f"there are {len(rows)} lists of scores for {method} with {classes} classes")
            if sum(rows) > 1e9:
                raise ValueError(f"{sum(rows):,} rows are too many")
            inflate = zlib.decompressobj()
            data = inflate.decompress(base64.b64decode(tree["scores_zlib_b64"], validate=True), 8 * sum(rows) + 1)
            if len(data) != 8 * sum(rows):
                raise ValueError(f"it does not have {sum(rows)} scores, one for each row; fit them again")
            all_scores = np.frombuffer(data, "<f8").astype(np.float64)
            if not np.isfinite(all_scores).all():
                raise ValueError("the scores are not finite")
            scores = tuple(np.split(all_scores, np.cumsum(rows)[:-1]))
            if any((np.diff(part) < 0).any() for part in scores):
                raise ValueError("the scores are not sorted")
        except (TypeError, KeyError, AttributeError, zlib.error) as error:
            raise ValueError(f"it does not hold conformal sets ({error}); fit them again") from None
        beside = tree["free_ranks"], tree["tuning_rows"], str(tree["calibrator_sha256"])
        return cls(method, classes, scores, float(tree["penalty"]), *beside)
