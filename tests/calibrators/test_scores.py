"""Curves of one score: isotonic, histogram, BBQ and spline against slow twins and hand-worked cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from tests import reference_calibrators as twin
from tests.calibrators.test_calibrators import Array, Labels, drawn
from trueodds import calibrators
from trueodds.calibrators import Calibrator, FitError
from trueodds.calibrators.isotonic import _steps
from trueodds.calibrators.score_curves import ScoreCurves
from trueodds.calibrators.spline import recalibration
from trueodds.sums.inputs import softmax

FORMS: list[tuple[str, dict[str, Any]]] = [
    ("isotonic", {"form": "one_vs_rest"}),
    ("isotonic", {"form": "pooled"}),
    ("histogram", {"form": "top_label"}),
    ("histogram", {"form": "one_vs_rest", "binning": "mass"}),
    ("bbq", {"form": "top_label"}),
    ("bbq", {"form": "one_vs_rest"}),
    ("spline", {"form": "top_label"}),
    ("spline", {"form": "one_vs_rest"}),
]


def curves(calibrator: Calibrator) -> ScoreCurves:
    assert isinstance(calibrator, ScoreCurves)
    return calibrator


def coarse(n: int, classes: int, seed: int = 0) -> tuple[Array, Labels]:
    """Logits rounded to halves: many equal scores."""
    z, labels = drawn(n, classes, 1.5, 2.0, seed)
    labels[:classes] = np.arange(classes)
    return np.round(z), labels


def restored(calibrator: ScoreCurves, score: float, which: int = 0) -> float:
    return float(calibrator._curve(np.array([score]), which)[0])


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_isotonic_equals_its_twin(seed: int, classes: int) -> None:
    z, labels = coarse(25, classes, seed)
    scores, calibrator = softmax(z), curves(calibrators.fit(z, labels, "isotonic"))
    for k in range(classes):
        hits = (labels == k).astype(int)
        expected = twin.isotonic(scores[:, k].tolist(), hits.tolist())
        for score, value in expected.items():
            assert restored(calibrator, score, k) == pytest.approx(float(value), abs=1e-12)


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_pooled_isotonic_equals_its_twin_on_all_pairs(seed: int) -> None:
    z, labels = coarse(12, 3, seed)
    scores, calibrator = softmax(z), curves(calibrators.fit(z, labels, "isotonic", form="pooled"))
    expected = twin.isotonic(scores.ravel().tolist(), np.eye(3, dtype=int)[labels].ravel().tolist())
    for score, value in expected.items():
        assert restored(calibrator, score) == pytest.approx(float(value), abs=1e-12)


def test_isotonic_agrees_with_scikit_learn() -> None:
    """At the fitted scores; those are apart here, for it takes scores within 1e-15 of each other for equal."""
    z, labels = drawn(400, 3, 1.5)
    scores, calibrator = softmax(z), curves(calibrators.fit(z, labels, "isotonic"))
    for k in range(3):
        other = IsotonicRegression().fit(scores[:, k], labels == k)
        np.testing.assert_allclose(calibrator._curve(scores[:, k], k), other.predict(scores[:, k]), atol=1e-12)


def test_pooled_isotonic_by_hand() -> None:
    """Two rows, K = 2: scores .8/.2 (right) and .6/.4 (wrong): sorted hits 0, 1, 0, 1 pool to 0, 1/2, 1/2, 1."""
    z = np.log([[0.8, 0.2], [0.6, 0.4]])
    calibrator = curves(calibrators.fit(z, [0, 1], "isotonic", form="pooled"))
    assert [restored(calibrator, s) for s in (0.1, 0.41, 0.61, 0.81)] == [0, 0.5, 0.5, 1]
    assert calibrator.mixed == 1 / 3
    np.testing.assert_allclose(calibrator(z), [[2 / 3 + 0.8 / 3, 0.2 / 3], [1 / 3 + 0.2, 1 / 3 + 0.4 / 3]], rtol=1e-12)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 6))
def test_pooled_isotonic_keeps_every_order(seed: int, classes: int) -> None:
    z, labels = drawn(30, classes, 2.0, 3.0, seed)
    calibrator = calibrators.fit(z, labels, "isotonic", form="pooled")
    assert calibrator.keeps_argmax
    assert not calibrators.Isotonic("one_vs_rest", [[0.5]], [[0.0, 1.0]], 0.1).keeps_argmax
    fresh, _ = drawn(50, classes, 1.0, 3.0, seed + 1)
    assert (calibrator(fresh).argsort(axis=1) == fresh.argsort(axis=1)).all()


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 20), st.sampled_from(["width", "mass"]))
def test_histogram_equals_its_twin(seed: int, bins: int, binning: str) -> None:
    z, labels = coarse(30, 3, seed)
    scores = softmax(z)
    top, right = scores.max(axis=1), (scores.argmax(axis=1) == labels).astype(int)
    calibrator = curves(calibrators.fit(z, labels, "histogram", bins=bins, binning=binning))
    edges = np.asarray(calibrator.knots[0]).tolist()
    assert edges == ([b / bins for b in range(1, bins)] if binning == "width" else sorted(set(edges)))
    for score in [*top, 0.0, 0.01, 0.999, 1.0]:
        assert restored(calibrator, score) == pytest.approx(float(twin.histogram(top, right, edges, score)), abs=1e-12)


def test_histogram_by_hand() -> None:
    """Confidences .6, .6, .9 with hits 1, 0, 1; two bins: the upper one holds all, the lower says its middle."""
    z = np.log([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9]])
    calibrator = curves(calibrators.fit(z, [0, 1, 1], "histogram", bins=2))
    assert [restored(calibrator, s) for s in (0.5, 0.51)] == [0.25, 2 / 3]
    three = curves(calibrators.fit(z, [0, 1, 1], "histogram", bins=3, binning="mass"))
    assert [restored(three, s) for s in (0.55, 0.6 + 1e-9)] == [0.5, 1.0]


def test_equal_mass_bins_hold_equal_counts() -> None:
    z, labels = drawn(100, 3)
    calibrator = curves(calibrators.fit(z, labels, "histogram", bins=7, binning="mass"))
    counts = np.bincount(np.searchsorted(np.asarray(calibrator.knots[0]), softmax(z).max(axis=1)))
    assert len(counts) == 7
    assert counts.max() - counts.min() <= 1


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.integers(3, 40))
def test_bbq_equals_its_twin(seed: int, n: int) -> None:
    z, labels = drawn(n, 3, 1.5, 2.0, seed)
    scores = softmax(z)
    top, right = scores.max(axis=1), (scores.argmax(axis=1) == labels).astype(int)
    calibrator = curves(calibrators.fit(z, labels, "bbq"))
    for score in [*top, 0.01, 0.999]:
        assert restored(calibrator, score) == pytest.approx(twin.bbq(top.tolist(), right.tolist(), score), abs=1e-6)


def test_bbq_of_one_row_by_hand() -> None:
    """One row, right: one bin, alpha = beta = 1, posterior mean 2/3."""
    calibrator = curves(calibrators.fit([[1.0, 0.0]], [0], "bbq"))
    assert restored(calibrator, 0.7) == pytest.approx(2 / 3)


def test_spline_equals_least_squares_on_its_basis() -> None:
    """A natural cubic spline with 6 knots, written as truncated powers (Hastie et al., eq. 5.4), fitted by lstsq."""
    z, labels = drawn(300, 4, 2.0)
    scores = softmax(z)
    top, right = scores.max(axis=1), scores.argmax(axis=1) == labels
    order = np.argsort(top)
    t, knots = np.linspace(0, 1, 300), np.linspace(0, 1, 6)

    def powers(x: Array) -> Array:
        d = [(np.maximum(x - k, 0) ** 3 - np.maximum(x - 1, 0) ** 3) / (1 - k) for k in knots[:-1]]
        return np.stack([np.ones_like(x), x, *(d[j] - d[-1] for j in range(4))], axis=1)

    gap = np.cumsum(right[order] - top[order]) / 300
    weights = np.linalg.lstsq(powers(t), gap, rcond=None)[0]
    slope = (powers(t + 1e-6) - powers(t - 1e-6)) @ weights / 2e-6
    knots_found, values = recalibration(top, right.astype(float), 6)
    np.testing.assert_array_equal(knots_found, top[order])
    np.testing.assert_allclose(values[1:-1], np.clip(top[order] + slope, 0, 1)[1:-1], atol=1e-6)


def test_spline_of_calibrated_scores_changes_little_and_says_where_it_falls() -> None:
    z, labels = drawn(20_000, 4)
    calibrator = curves(calibrators.fit(z, labels, "spline"))
    score = np.linspace(0.4, 0.99, 50)
    assert np.abs(calibrator._curve(score, 0) - score).max() < 0.03
    falling = calibrators.Spline("top_label", [[0.2, 0.5, 1.0]], [[0.3, 0.2, 0.9]], 0.01)
    assert falling._fit_warnings() == [
        "The fitted curve falls somewhere: there a higher score gets a lower probability."
    ]
    assert not calibrators.Spline("top_label", [[0.2, 1.0]], [[0.3, 0.9]], 0.01)._fit_warnings()


def test_a_long_spline_is_stored_short() -> None:
    z, labels = drawn(5_000, 3, 1.5)
    calibrator = curves(calibrators.fit(z, labels, "spline"))
    assert len(np.asarray(calibrator.knots[0])) == 1024
    scores = softmax(z)
    knots, values = recalibration(scores.max(axis=1), (scores.argmax(axis=1) == labels).astype(float), 6)
    whole = np.interp(scores.max(axis=1), knots, values)
    assert np.abs(calibrator._curve(scores.max(axis=1), 0) - whole).max() < 1e-3


@pytest.mark.parametrize(("name", "options"), FORMS)
def test_no_form_says_zero(name: str, options: dict[str, Any]) -> None:
    z, labels = drawn(80, 4, 1.5)
    calibrator = calibrators.fit(z, labels, name, **options)
    fresh, _ = drawn(500, 4, seed=9)
    probabilities, plain = calibrator(fresh), softmax(fresh)
    assert (probabilities >= plain / 81 * (1 - 1e-12)).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), FORMS)
def test_one_class_and_saturated_scores(name: str, options: dict[str, Any]) -> None:
    assert calibrators.fit(np.zeros((3, 1)), [0, 0, 0], name, **options)([[2.0]]) == 1
    z = np.array([[5e3, 0.0, 0.0], [0.0, 5e3, 0.0], [0.0, 0.0, 5e3], [5e3, 0.0, 0.0]])
    probabilities = calibrators.fit(z, [0, 1, 2, 1], name, **options)(z)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)


def test_the_rest_is_shared_in_proportion() -> None:
    calibrator = calibrators.Histogram("top_label", [[0.5]], [[0.25, 0.4]], 0.0)
    np.testing.assert_allclose(calibrator(np.log([[0.6, 0.3, 0.1]])), [[0.4, 0.45, 0.15]])
    np.testing.assert_allclose(calibrator([[9e3, 0.0, 0.0]]), [[0.4, 0.3, 0.3]])


@pytest.mark.parametrize(("name", "options"), [f for f in FORMS if f[1]["form"] == "one_vs_rest"])
def test_a_class_never_seen_is_named(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(FitError, match=f"never hold class 1, without which {name}"):
        calibrators.fit(np.zeros((3, 3)), [0, 2, 2], name, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "top_lable"}, "form is 'top_lable'; allowed: top_label, one_vs_rest. Did you mean 'top_label'"),
        ({"binning": "equal"}, "binning is 'equal'; allowed: width, mass"),
        ({"bins": 0}, r"bins is 0; allowed is an integer in \[1, 10000\]"),
        ({"bins": 2.5}, "bins is 2.5"),
    ],
)
def test_options_that_are_not_allowed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrators.fit(*drawn(10, 2), "histogram", **options)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("pooled", [[0.5], [0.5]], [[0, 1], [0, 1]], 0.1), "knots holds 2 curves"),
        (("top_label", [[0.5]], [[0.0]], 0.1), r"values has shape \(1,\); allowed is \(2\)"),
        (("top_label", [[0.5]], [[0.0, 1.0]], 2.0), "mixed is 2.0"),
        (("rows", [[0.5]], [[0.0, 1.0]], 0.1), "form is 'rows'"),
        (("top_label", [[0.5]], [[0.2, 8.0]], 0.1), r"values holds 8.0; allowed is \[0, 1\]"),
        (("top_label", [[0.9, 0.1]], [[0.2, 0.8, 0.3]], 0.1), "knots fall"),
    ],
)
def test_fields_that_cannot_be_right(fields: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrators.Histogram(*fields)  # type: ignore[arg-type]


def test_an_isotonic_curve_cannot_fall() -> None:
    with pytest.raises(ValueError, match="values fall somewhere; allowed is a rising curve"):
        calibrators.Isotonic("pooled", [[0.5]], [[0.8, 0.2]], 0.1)


@pytest.mark.parametrize("name", ["isotonic", "histogram", "bbq", "spline"])
def test_the_cure_of_an_unseen_class_is_a_form_that_exists(name: str) -> None:
    with pytest.raises(FitError) as raised:
        calibrators.fit(np.zeros((3, 3)), [0, 2, 2], name, form="one_vs_rest")
    form = str(raised.value).split("use form='")[1].split("'")[0]
    calibrators.fit(np.zeros((3, 3)), [0, 2, 2], name, form=form)


def test_a_step_of_isotonic_begins_half_way() -> None:
    """Scores .1 and .2 wrong, .6 and .9 right for class 1: the step from 0 to 1 lies at .4, not at .6."""
    scores = np.array([0.1, 0.2, 0.6, 0.9])
    calibrator = curves(calibrators.fit(np.log(np.stack([1 - scores, scores], axis=1)), [0, 0, 1, 1], "isotonic"))
    np.testing.assert_allclose(np.asarray(calibrator.knots[1]), [0.4])
    assert [restored(calibrator, s, 1) for s in (0.05, 0.39, 0.41, 1.0)] == [0, 0, 1, 1]
    lowest = curves(calibrators.fit(np.log(np.stack([1 - scores, scores], axis=1)), [0, 1, 1, 1], "isotonic"))
    assert [restored(lowest, s, 1) for s in (0.05, 0.14, 0.16)] == [0, 0, 1]
    assert restored(lowest, 0.01, 0) == 0  # class 0's highest score alone is right
    first = curves(calibrators.fit(np.log(np.stack([1 - scores, scores], axis=1)), [1, 0, 0, 1], "isotonic"))
    assert restored(first, 0.01, 1) == restored(first, 0.1, 1)  # constant below the lowest fitted score


def test_half_way_of_neighbouring_floats_still_parts_them() -> None:
    low = 0.3
    knots, values = _steps(np.array([np.nextafter(low, 1)]), 2, [np.array([low, np.nextafter(low, 1)])])
    assert (knots.tolist(), values.tolist()) == ([low], [0, 1])


@pytest.mark.parametrize("form", ["top_label", "one_vs_rest"])
def test_the_order_of_equal_scores_says_nothing_to_a_spline(form: str) -> None:
    z, labels = coarse(200, 3)
    order = np.random.default_rng(1).permutation(200)
    assert len(np.unique(softmax(z).max(axis=1))) < 100
    assert calibrators.fit(z, labels, "spline", form=form) == calibrators.fit(
        z[order], labels[order], "spline", form=form
    )


@pytest.mark.parametrize(("name", "options"), FORMS)
def test_another_number_of_classes_is_refused(name: str, options: dict[str, Any]) -> None:
    z, labels = drawn(60, 3, 1.5)
    calibrator = calibrators.fit(z, labels, name, **options)
    with pytest.raises(ValueError, match=r"logits has shape \(1, 4\); this calibrator was fitted on 3 classes"):
        calibrator(np.zeros((1, 4)))
    tree = calibrator.to_json()
    assert calibrators.from_json(tree).classes == 3
    with pytest.raises(ValueError, match=r"fitted_classes is 0; allowed is an integer"):
        calibrators.from_json(tree | {"fitted_classes": 0})
    del tree["fitted_classes"]  # an older file: its curve of the top label knows of no number
    assert calibrators.from_json(tree).classes == (3 if options["form"] == "one_vs_rest" else None)
