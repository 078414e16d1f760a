"""Risk and coverage from a card's table are those of the rows it was made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from trueodds.bundle import RiskCoverage
from trueodds.metrics import CELLS, CalibrationSums

ROWS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50)


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(rows=ROWS, k=st.integers(0, CELLS))
def test_counts_are_exact_at_every_edge_of_a_cell(rows: list[tuple[float, bool]], k: int) -> None:
    confidence_N, correct_N = (np.array(column) for column in zip(*rows, strict=True))
    table = RiskCoverage.of(CalibrationSums.from_top(confidence_N, correct_N), "test")
    point = RiskCoverage.model_validate_json(table.model_dump_json()).at(k / CELLS)
    above_N = confidence_N > k / CELLS if k else np.full(len(rows), True)
    assert (point.rows, point.answered) == (len(rows), above_N.sum())
    assert point.wrong == (~correct_N[above_N]).sum()
    assert point.coverage == above_N.mean()
    assert point.threshold == k / CELLS
    if point.answered:
        assert point.risk is not None and point.risk_lower <= point.risk <= point.risk_upper
    else:
        assert (point.risk, point.risk_lower, point.risk_upper) == (None, 0, 1)


@pytest.mark.parametrize(
    ("cells", "count", "correct"),
    [("1 2", "1", "1"), ("2 1", "1 1", "0 0"), ("3000", "1", "1"), ("1", "0", "0"), ("1", "1", "2"), ("x", "1", "1")],
)
def test_what_no_rows_give_is_refused(cells: str, count: str, correct: str) -> None:
    with pytest.raises(ValidationError):
        RiskCoverage(split="test", cells=cells, count=count, correct=correct)
