"""Interval and noise floor of the class-wise ECE: twins, known special cases, coverage."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests import reference
from tests import reference_metrics as twin
from trueodds.metrics import (
    NoiseFloor,
    classwise_ece,
    classwise_ece_interval,
    classwise_noise_floor,
    noise_floor_per_class,
    softmax,
)
from trueodds.metrics.intervals.classwise_ece import ClassCells, interval_of_cells

Array = npt.NDArray[np.float64]


def drawn(p_NC: Array, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """A label of each row by its probabilities."""
    labels_N: npt.NDArray[np.intp] = (p_NC.cumsum(axis=1)[:, :-1] < rng.random((len(p_NC), 1))).sum(axis=1)
    return labels_N


def test_floor_equals_its_twin() -> None:
    """3^6 ways in which the labels may fall; 512 draws leave the share above the percentile between 2% and 8%."""
    p = [[0.5, 0.3, 0.2]] * 4 + [[0.1, 0.1, 0.8]] * 2
    floor = classwise_noise_floor(p)
    outcomes = twin.classwise_distribution(p, 15)
    assert floor.mean == pytest.approx(sum(value * chance for value, chance in outcomes), rel=1e-9)
    assert floor.mean == pytest.approx(float(noise_floor_per_class(p).mean()), rel=1e-12)
    assert sum(chance for value, chance in outcomes if value > floor.p95 + 1e-9) <= 0.08
    assert sum(chance for value, chance in outcomes if value > floor.p95 - 1e-9) >= 0.02


def test_floor_of_drawn_labels() -> None:
    """600 draws of 300 rows' labels: the mean within four standard errors, 5% above the percentile (2.5 to 8%)."""
    rng = np.random.default_rng(4)
    p_NC = softmax(rng.normal(0, 2, (300, 10)))
    drawn_R = np.array([classwise_ece(p_NC, drawn(p_NC, rng)) for _ in range(600)])
    floor = classwise_noise_floor(p_NC)
    assert abs(floor.mean - drawn_R.mean()) < 4 * drawn_R.std() / math.sqrt(600)
    assert 0.025 <= np.mean(drawn_R > floor.p95) <= 0.08


def test_floor_by_hand() -> None:
    """Four coins in one bin of each class: |X - 2| / 4, whose 95th percentile is 1/2. Certain rows leave no chance."""
    floor = classwise_noise_floor([[0.5, 0.5]] * 4)
    assert (floor.mean, floor.p95) == pytest.approx((3 / 16, 1 / 2))
    assert classwise_noise_floor([[1.0, 0.0], [0.0, 1.0]]) == NoiseFloor(0.0, 0.0)


def test_draws_share_out_every_row() -> None:
    """One label a row, so the classes' noise adds up to 0; evenly spaced, so its mean over the draws is nearly 0."""
    rng = np.random.default_rng(1)
    p_NC = softmax(rng.normal(0, 2, (700, 5)))
    cells = ClassCells.of(p_NC, 15)
    assert np.abs(cells.noise_OR.sum(axis=0)).max() < 1e-9
    assert np.abs(cells.noise_OR.mean(axis=1)).max() < 0.2 * np.sqrt(cells.variance_K.max() / cells.noise_OR.shape[1])
    variance_O = cells.variance_K[cells.count_K > 0]
    assert cells.noise_OR.var(axis=1)[variance_O > 5] == pytest.approx(variance_O[variance_O > 5], rel=0.3)
    assert np.array_equal(cells.noise_OR, ClassCells.of(p_NC, 15).noise_OR)


@pytest.mark.parametrize("truth", [0.6, 1.0, 2.5])
def test_interval_equals_its_twin(truth: float) -> None:
    """Too cautious, calibrated and over-confident, 20 wrong rows and more: without the exact limits."""
    rng = np.random.default_rng(5)
    logits_NC = rng.normal(0, 1.5, (120, 3))
    p_NC, y_N = softmax(logits_NC), drawn(softmax(logits_NC / truth), rng)
    assert 20 <= (p_NC.argmax(axis=1) != y_N).sum() <= 100
    cells = ClassCells.of(p_NC, 5, draws=48)
    interval = interval_of_cells(cells, p_NC, y_N, 0.9)
    noise = dict(zip(np.flatnonzero(cells.count_K).tolist(), cells.noise_OR.tolist(), strict=True))
    lower, estimate, upper = twin.classwise_limits(p_NC.tolist(), y_N.tolist(), 5, 0.05, noise)
    assert (interval.lower, interval.estimate) == pytest.approx((lower, estimate), abs=1e-5)
    certain = 1.6448536269514722 * math.sqrt(float((p_NC * (1 - p_NC)).sum())) / 360
    assert interval.upper == pytest.approx(max(upper, certain), abs=1e-5)
    assert interval.ece == pytest.approx(classwise_ece(p_NC, y_N, bins=5), rel=1e-12)


def test_two_classes_in_one_bin_have_a_score_interval() -> None:
    """All rows say (.3, .7): both classes are off by |share - .7|, whose limits are those of the score interval."""
    n, said, seen, z = 600, 0.7, 0.6, 1.959963984540054
    p_NC, y_N = np.tile([1 - said, said], (n, 1)), (np.arange(n) < seen * n).astype(int)
    interval = interval_of_cells(ClassCells.of(p_NC, 15, draws=8192), p_NC, y_N, 0.95)

    def score(p: float) -> float:
        return (p - seen) / math.sqrt(p * (1 - p) / n)

    low = reference.bisect(lambda p: score(p) + z, 0.4, seen)
    high = reference.bisect(lambda p: score(p) - z, seen, 0.69)
    assert interval.ece == pytest.approx(said - seen)
    assert interval.lower == pytest.approx(said - high, abs=0.15 * 0.02)  # of a sd, .02
    assert interval.upper == pytest.approx(said - low, abs=0.15 * 0.02)


def test_all_right_at_high_confidence_stays_open() -> None:
    """Ten right answers at .999 leave accuracies down to .69 open, and an error counts in two of three classes."""
    p_NC = np.tile([0.999, 0.0005, 0.0005], (10, 1))
    interval = classwise_ece_interval(p_NC, [0] * 10)
    assert interval.lower == 0
    assert interval.upper == pytest.approx(2 / 3 * (0.999 - 0.025 ** (1 / 10)), abs=1e-9)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_certain_rows(classes: int) -> None:
    p_NC = np.eye(classes)[np.arange(50) % classes]
    interval = classwise_ece_interval(p_NC, np.arange(50) % classes)
    assert (interval.ece, interval.lower, interval.estimate) == (0, 0, 0)
    assert 0 < interval.upper <= 1
    wrong = classwise_ece_interval(p_NC, (np.arange(50) + 1) % classes)
    assert wrong.ece == pytest.approx(2 / classes if classes > 1 else 0)
    assert wrong.upper <= min(2 / classes, 1)


def test_precision_and_layout_hardly_matter() -> None:
    rng = np.random.default_rng(2)
    p_NC = softmax(rng.normal(0, 2, (400, 6)))
    y_N = drawn(p_NC, rng)
    whole = classwise_ece_interval(p_NC, y_N)
    for changed in (p_NC.astype(np.float32), np.asfortranarray(p_NC)):
        interval = classwise_ece_interval(changed, y_N)
        assert (interval.lower, interval.upper) == pytest.approx((whole.lower, whole.upper), rel=0.02)


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({"level": 0}, [0, 1], r"level is 0; allowed is \(0, 1\), such as 0.95"),
        ({"bins": 7}, [0, 1], "bins is 7; allowed are the divisors of 3000"),
        ({}, [0, 2], r"labels holds 2; allowed are the class indices 0..1"),
    ],
)
def test_what_is_refused(options: dict[str, Any], labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classwise_ece_interval([[0.5, 0.5]] * 2, labels, **options)
    if "bins" in options:
        with pytest.raises(ValueError, match=message):
            classwise_noise_floor([[0.5, 0.5]] * 2, **options)


@pytest.mark.few(1)
@pytest.mark.parametrize("truth", ["calibrated", "over-confident", "under-confident", "one class"])
def test_coverage(truth: str) -> None:
    """93% in mind; in 60 runs fewer than 48 covered then happen with probability .1%.

    benchmarks/intervals/classwise.py has the full table.
    """
    rng = np.random.default_rng(6)
    logits_NC = rng.normal(0, 1.2, (4000, 10))
    logits_NC[np.arange(4000), rng.integers(0, 10, 4000)] += np.maximum(rng.normal(5, 3, 4000), 0)
    p_NC = softmax(logits_NC)
    t_NC = softmax(logits_NC / {"over-confident": 1.5, "under-confident": 0.6}.get(truth, 1.0))
    if truth == "one class":
        t_NC = p_NC.copy()
        t_NC[:, 1] += 0.4 * t_NC[:, 0]
        t_NC[:, 0] *= 0.6
    members = np.arange(10) * 15 + np.maximum(np.ceil(p_NC * 15) - 1, 0).astype(int)
    population = float(np.abs(np.bincount(members.ravel(), (t_NC - p_NC).ravel())).sum()) / 40_000
    covered = 0
    for _ in range(60):
        row_N = rng.integers(0, 4000, 200)
        interval = classwise_ece_interval(p_NC[row_N], drawn(t_NC[row_N], rng))
        covered += interval.lower <= population <= interval.upper
    assert covered >= 48
