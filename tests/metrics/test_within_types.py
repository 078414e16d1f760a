"""Standard errors over types, without what the types differ by."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.reference_metrics import standard_error_within_types
from trueodds.metrics.intervals.within_types import within_types


@pytest.mark.parametrize(("types", "levels"), [(2, 2), (15, 5), (19, 5), (3, 2)])
def test_as_by_normalised_scores(types: int, levels: int) -> None:
    """The mean square of the interaction is the mean variance of the scores without their types' means, times
    levels / (levels - 1)."""
    table = np.random.default_rng(types).normal(size=(types, levels)) + 10 * np.arange(types)[:, None]
    result = within_types(table)
    assert result.standard_error == pytest.approx(standard_error_within_types(table.tolist()), rel=1e-12)
    assert result.degrees == (types - 1) * (levels - 1)
    np.testing.assert_allclose(result.mean_S, table.mean(0))


def test_what_types_differ_by_at_every_level_does_not_count() -> None:
    table = np.random.default_rng(0).normal(size=(15, 5))
    shifted = table + np.linspace(0, 100, 15)[:, None]
    assert within_types(shifted).standard_error == pytest.approx(within_types(table).standard_error)
    assert within_types(shifted).standard_error < 0.1 * shifted.std(0, ddof=1).mean() / math.sqrt(15)


def test_two_types_that_move_alike_leave_no_error() -> None:
    result = within_types([[1.0, 2.0, 4.0], [3.0, 4.0, 6.0]])
    assert result.standard_error == pytest.approx(0, abs=1e-15) and result.half_width(0.95) == pytest.approx(
        0, abs=1e-14
    )


def test_the_interval_covers_the_means_difference() -> None:
    """Differences between two levels: sqrt(2) times the interval of one covers them as often as it says."""
    generator, covered, runs = np.random.default_rng(1), 0, 2000
    truth = np.array([0.0, 1.0, 3.0])
    for _ in range(runs):
        table = truth + 5 * generator.normal(size=(8, 1)) + generator.normal(size=(8, 3))
        result = within_types(table)
        off = abs((result.mean_S[2] - result.mean_S[0]) - 3.0)
        covered += off <= math.sqrt(2) * result.half_width(0.95)
    assert covered / runs == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("table", [[[1.0, 2.0]], [[1.0], [2.0]]])
def test_one_type_or_one_level_has_no_error(table: list[list[float]]) -> None:
    result = within_types(table)
    assert math.isnan(result.standard_error) and math.isnan(result.half_width(0.9)) and result.degrees == 0


@pytest.mark.parametrize("table", [[1.0, 2.0], [[math.nan, 1.0], [1.0, 1.0]], np.empty((0, 3))])
def test_what_is_no_table_is_refused(table: object) -> None:
    with pytest.raises(ValueError, match="types x levels, finite and not empty; its shape is"):
        within_types(table)  # type: ignore[arg-type]
