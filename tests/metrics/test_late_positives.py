"""Labels that come late by nature: which of them count, one by one, and what alarm and verdict make of them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.alarms import late_positives
from benchmarks.alarms.late_positives import (
    COUNTED,
    DAYS,
    LATE,
    LONG,
    MEDIAN,
    Labels,
    is_wrong,
    judged,
    labels,
    read,
    stream,
)


def twin(rows: late_positives.Stream, window: float | None) -> list[tuple[float, int, bool, bool]]:
    """Answer by answer: the day on which its label counts, its place, and whether it is fraud then, and at the end."""
    counting = []
    for place, (day, reported) in enumerate(zip(rows.day_N.tolist(), rows.reported_N.tolist(), strict=True)):
        if window is None:
            if reported <= DAYS:
                counting.append((reported, place, True, True))
        elif day + window <= DAYS:
            counting.append((day + window, place, reported < day + window, reported <= DAYS))
    return sorted(counting)


@pytest.mark.parametrize("counted", COUNTED)
def test_the_labels_that_count_are_those_of_the_twin(counted: str) -> None:
    rows = stream(np.random.default_rng(3))
    found: Labels = labels(rows, COUNTED[counted])
    columns = (found.day_L, found.row_L, found.first_L, found.now_L)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == twin(rows, COUNTED[counted])
    delay_M = (rows.reported_N - rows.day_N)[rows.fraud_N]
    assert np.median(delay_M) == pytest.approx(MEDIAN, rel=0.1)
    assert (delay_M > LONG).mean() == pytest.approx(LATE, abs=0.005) and np.isinf(rows.reported_N[~rows.fraud_N]).all()


@pytest.mark.full
def test_a_window_that_is_long_enough_ends_the_false_words() -> None:
    for seed in range(2):
        rows = stream(np.random.default_rng(seed))
        as_they_come, matured = (labels(rows, COUNTED[counted]) for counted in ("as they come", "after 45 days"))
        for model in ("calibrated", "odds x 3"):
            fired, verdict, gap = read(rows, model, as_they_come)
            assert fired and gap > 0.5 and is_wrong(model, verdict)
            fired, verdict, gap = read(rows, model, matured)
            assert fired == (model != "calibrated") and not is_wrong(model, verdict)
        assert judged(rows, "calibrated", "odds x 3", as_they_come) == (True, False)
        assert judged(rows, "calibrated", "odds x 3", matured) == (False, True)
