"""Venn-Abers: both isotonic answers against refitting with each row, validity on exchangeable rows, symmetry."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference_calibrators as twin
from tests.calibrators.test_calibrators import drawn
from trueodds import calibrators
from trueodds.calibrators import VennAbers
from trueodds.calibrators.venn_abers import upper_values


def fitted(score: list[float], labels: list[int]) -> VennAbers:
    z = np.stack([np.zeros(len(score)), score], axis=1)
    calibrator = calibrators.fit(z, labels, "venn_abers")
    assert isinstance(calibrator, VennAbers)
    return calibrator


rows = st.lists(st.tuples(st.integers(-6, 6), st.integers(0, 1)), min_size=1, max_size=14)


@settings(max_examples=80, deadline=None)
@given(rows, st.integers(-7, 7), st.sampled_from([0.0, 0.5]))
def test_both_answers_are_those_of_refitting_with_the_row(data: list[tuple[int, int]], at: int, between: float) -> None:
    """On fitted scores, between them and beyond; the published package's algorithm is the same, in O(N log N)."""
    score, hits = [float(s) for s, _ in data], [h for _, h in data]
    own = at + between
    calibrator = fitted(score, hits)
    lower, upper = calibrator.interval([[0.0, own]])
    for found, label in ((lower, 0), (upper, 1)):
        assert found[0, 1] == pytest.approx(float(twin.venn_abers(score, hits, own, label)), abs=1e-12)
    assert calibrator([[0.0, own]])[0, 1] == pytest.approx(upper[0, 1] / (1 - lower[0, 1] + upper[0, 1]), abs=1e-12)


def test_by_hand() -> None:
    """One row, right: above it u = 1, l = 1/2; below it u pools both, 1, and l is 0."""
    calibrator = fitted([0.0], [1])
    lower, upper = calibrator.interval([[0.0, 1.0], [0.0, -1.0], [0.0, 0.0]])
    np.testing.assert_allclose(lower[:, 1], [0.5, 0.0, 0.5])
    np.testing.assert_allclose(upper[:, 1], [1.0, 1.0, 1.0])
    np.testing.assert_allclose(calibrator([[0.0, 1.0], [0.0, -1.0]])[:, 1], [2 / 3, 1 / 2])


@settings(max_examples=20, deadline=None)
@given(rows)
def test_classes_that_change_places_change_the_answers_places(data: list[tuple[int, int]]) -> None:
    score, hits = [float(s) for s, _ in data], [h for _, h in data]
    one, other = fitted(score, hits), fitted([-s for s in score], [1 - h for h in hits])
    z = np.stack([np.zeros(30), np.linspace(-8, 8, 30)], axis=1)
    np.testing.assert_allclose(one(z)[:, ::-1], other(z[:, ::-1]), atol=1e-12)
    lower, upper = one.interval(z)
    assert (lower <= upper + 1e-12).all() and (one(z) > 0).all()
    np.testing.assert_allclose(lower[:, 0], 1 - upper[:, 1], atol=1e-12)


def test_a_rising_change_of_two_classes_scores_changes_nothing() -> None:
    z, labels = drawn(80, 2, 1.5)
    usual = calibrators.fit(z, labels, "venn_abers")(z)
    np.testing.assert_allclose(calibrators.fit(1e6 * z, labels, "venn_abers")(1e6 * z), usual, atol=1e-12)


@pytest.mark.full
def test_one_of_the_two_answers_is_calibrated_on_thirty_rows() -> None:
    """Each row's answer that its label picks is right on average: theorem 1 of the paper. Neither alone need be."""
    rng = np.random.default_rng(0)
    gap, below, above = [], [], []
    for _ in range(400):
        score = rng.normal(0, 1.5, 31)
        labels = (rng.random(31) < 1 / (1 + np.exp(-(score**3)))).astype(int)
        lower, upper = fitted(score[:30].tolist(), labels[:30].tolist()).interval([[0.0, score[30]]])
        gap.append(labels[30] - (upper if labels[30] else lower)[0, 1])
        below.append(lower[0, 1])
        above.append(upper[0, 1])
    assert abs(np.mean(gap)) < 3 * np.std(gap) / 20
    assert np.mean(below) < 0.5 < np.mean(above)


def test_json_keeps_every_bit_and_refuses_what_is_none() -> None:
    z, labels = drawn(60, 3)
    calibrator = calibrators.fit(z, labels, "venn_abers")
    tree = json.loads(json.dumps(calibrator.to_json()))
    np.testing.assert_array_equal(calibrators.from_json(tree)(z), calibrator(z))
    with pytest.raises(ValueError, match="lower holds 1 curves, scores 3"):
        calibrators.from_json(tree | {"lower": tree["lower"][:1]})
    with pytest.raises(ValueError, match="scores do not rise"):
        calibrators.from_json(tree | {"scores": [[1.0, 0.0]] * 3})
    with pytest.raises(ValueError, match="upper leaves"):
        calibrators.from_json(tree | {"upper": [[2.0] * len(v) for v in tree["upper"]]})
    with pytest.raises(ValueError, match="fitted on 3 classes"):
        VennAbers(**{k: v for k, v in tree.items() if k != "calibrator"}).interval([[0.0, 1.0]])


def test_many_rows_take_no_more_than_their_number() -> None:
    rng = np.random.default_rng(1)
    rows_K = np.ones(20_000)
    values = upper_values(rows_K, (rng.random(20_000) < np.linspace(0, 1, 20_000)).astype(float))
    assert len(values) == 20_000 and (np.diff(values) >= -1e-12).all()
