"""A small version of benchmarks/alarms/levels.py: rounded and recalibrated rows do not break the alarm on levels."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.alarms.levels import WAYS, Population, as_seen, largest_ece, measure


@pytest.mark.parametrize("way", WAYS)
def test_calibrated_streams_stay_quiet_and_shifted_ones_alarm(way: str) -> None:
    quiet = measure(Population(3, "dull", False), way, "calibrated", 1)
    assert quiet["levels_alarmed"] == 0
    off = measure(Population(3, "dull", False), way, "shifted", 1)
    assert off["levels_alarmed"] == 1 and off["levels_median_labels"] <= 8000


def test_the_largest_ece_is_that_of_the_levels_as_they_are_seen() -> None:
    population, rng = Population(3, "sharp", False), np.random.default_rng(0)
    exact = as_seen(population, "exact", rng)
    assert largest_ece(population, exact, rng) == 0
    p_NC = population.probabilities(rng.normal(size=5))
    np.testing.assert_allclose(p_NC.sum(axis=1), 1)

    def lowered(p_NC: np.ndarray) -> np.ndarray:
        """Move a tenth of the mass of the highest level to the lowest."""
        moved_NC = p_NC.copy()
        moved_NC[:, 0] += 0.1 * p_NC[:, 2]
        moved_NC[:, 2] *= 0.9
        return moved_NC

    expected = 0.1 * population.probabilities(np.random.default_rng(1).normal(size=50_000))[:, 2].mean()
    assert largest_ece(population, lowered, np.random.default_rng(1)) == pytest.approx(expected)
