"""p(positive) of a binary model: its sums, and which class it is."""

from __future__ import annotations

import numpy as np
import pytest

from trueodds import metrics
from trueodds.errors import ConfigError
from trueodds.evaluation.measurement import positive_values
from trueodds.importing.importer import Judging
from trueodds.reports import ReportOptions, report_of
from trueodds.reports.figures import positive_figures, scores_of_positive
from trueodds.sums.answers import AnswerSums
from trueodds.sums.positive import PositiveClass, PositiveSums, sums_of_top

CLASSES = ("benign", "malignant")


def rows(n: int = 3000, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (N, 2) over all of [0, 1], and labels drawn at another temperature."""
    draw = np.random.default_rng(seed)
    z_N = draw.normal(-0.5, 2.5, n)
    labels_N = (draw.random(n) < 1 / (1 + np.exp(-z_N / 1.6))).astype(int)
    p_N = 1 / (1 + np.exp(-z_N))
    return np.column_stack([1 - p_N, p_N]), labels_N


@pytest.mark.parametrize("index", [0, 1])
def test_sums_are_those_of_a_loop_over_the_rows(index: int) -> None:
    p_NC, labels_N = rows(400)
    sums = PositiveClass(CLASSES[index], index).sums(p_NC, labels_N)
    expected = np.zeros((len(metrics.COLUMNS), metrics.CELLS))
    for p_C, label in zip(p_NC, labels_N, strict=True):
        p, positive = p_C[index], float(label == index)
        nll = -np.log(p if positive else 1 - p)
        brier = (p - positive) ** 2
        cell = max(int(np.ceil(p * metrics.CELLS)) - 1, 0)
        expected[:, cell] += [1, p, positive, nll, nll**2, brier, brier**2]
    assert np.allclose(sums.cells, expected, rtol=1e-12, atol=1e-12)


def test_metrics_are_over_all_of_zero_to_one() -> None:
    p_NC, labels_N = rows()
    positive = PositiveClass("malignant", 1)
    values = positive_values(positive, p_NC, labels_N, Judging(()))
    p_N, positive_N = p_NC[:, 1], labels_N == 1
    bins = np.ceil(p_N * 15)
    ece = sum(abs((positive_N - p_N)[bins == b].sum()) for b in range(1, 16)) / len(p_N)
    assert values["ece"] == pytest.approx(ece, rel=1e-12)
    order = np.argsort(p_N)
    ks = np.abs(np.cumsum((positive_N - p_N)[order])).max() / len(p_N)
    assert values["ks"] == pytest.approx(ks, abs=1e-3)
    assert values["class"] == "malignant" and values["prevalence"] == positive_N.mean()
    assert values["mean_probability"] == pytest.approx(p_N.mean(), rel=1e-12)
    assert values["calibration_p_value"] < 1e-3
    assert not {"accuracy", "error_rate", "mean_confidence"} & set(values)


def test_errors_of_both_sides_that_cancel_in_the_top_label_are_seen() -> None:
    """p(positive) is .1 too high everywhere: the top label is too sure on one side and not sure enough on the other."""
    p_N = np.repeat([0.3, 0.7], 5_000)
    labels_N = np.concatenate([np.arange(5_000) < 1_000, np.arange(5_000) < 3_000]).astype(int)
    p_NC = np.column_stack([1 - p_N, p_N])
    sums = PositiveClass("malignant", 1).sums(p_NC, labels_N)
    top = metrics.CalibrationSums.from_probabilities(p_NC, labels_N)
    assert metrics.ece(top) == pytest.approx(0, abs=1e-9)
    assert metrics.ece(sums) == pytest.approx(0.1) and metrics.signed_gap(sums) == pytest.approx(-0.1)


def test_the_brier_score_is_half_of_that_over_both_classes_and_the_nll_the_same() -> None:
    p_NC, labels_N = rows()
    sums = PositiveClass("malignant", 1).sums(p_NC, labels_N)
    both = metrics.CalibrationSums.from_probabilities(p_NC, labels_N)
    assert metrics.brier(sums) == pytest.approx(metrics.brier(both) / 2, rel=1e-12)
    assert metrics.nll(sums) == pytest.approx(metrics.nll(both), rel=1e-12)


LIMITS = ("brier_lower", "brier_upper")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("a", "b"), [(0.3, 0.3), (0.1, 10), (4, 4), (10, 0.2)], ids=["sharp", "rare", "dull", "common"]
)
def test_limits_of_its_scores_are_those_of_both_classes_and_hold(a: float, b: float) -> None:
    """200 samples of 60 rows each: limits in [0, 1] that hold the truth; NLL as of the more probable class."""
    rng, held = np.random.default_rng(3), 0
    big_N = rng.beta(a, b, 400_000)
    truth = float((big_N * (1 - big_N)).mean())
    for _ in range(200):
        p_N = rng.beta(a, b, 60)
        labels_N = (rng.random(60) < p_N).astype(int)
        lower, upper = (scores_of_positive(PositiveClass.sums_of(p_N, labels_N == 1), 0.95)[k] for k in LIMITS)
        assert 0 <= lower <= ((p_N - labels_N) ** 2).mean() <= upper <= 1
        held += lower <= truth <= upper
    assert held >= 200 * 0.91
    one = positive_figures(of_rows(p_N, labels_N == 1), ReportOptions())
    nll = metrics.score_interval(np.column_stack([1 - p_N, p_N]), labels_N)
    assert one.nll_lower == pytest.approx(nll.lower, rel=1e-6)
    assert one.nll_upper is None or one.nll_upper == pytest.approx(nll.upper, rel=1e-6)


def of_rows(p_N: np.ndarray, positive_N: np.ndarray) -> PositiveSums:
    sums = PositiveClass.sums_of(p_N, positive_N)
    return PositiveSums("malignant", AnswerSums(sums.cells[0].astype(np.int64), sums))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_a_single_row_says_nothing_of_its_score_but_its_range(p: float) -> None:
    one = positive_figures(of_rows(np.array([p]), np.array([True])), ReportOptions())
    assert (one.brier_lower, one.brier_upper) == (0, 1)


def test_folding_gives_the_sums_of_both_classes() -> None:
    p_NC, labels_N = rows()
    p_NC = np.clip(p_NC, 1e-9, 1)
    folds = sums_of_top(PositiveClass("malignant", 1).sums(p_NC, labels_N))
    both = metrics.CalibrationSums.from_probabilities(p_NC, labels_N)
    assert np.allclose(folds.cells, both.cells, rtol=1e-9, atol=1e-9)


def test_the_other_class_gives_the_mirror_image() -> None:
    p_NC, labels_N = rows()
    one, other = (PositiveClass(name, k).sums(p_NC, labels_N) for k, name in enumerate(CLASSES))
    assert metrics.ece(one) == pytest.approx(metrics.ece(other), abs=1e-12)
    assert metrics.signed_gap(one) == pytest.approx(-metrics.signed_gap(other), abs=1e-12)


def test_a_class_that_is_none_of_two_is_refused_with_the_cure() -> None:
    with pytest.raises(ConfigError, match=r"unknown positive class 'malignent'.*Did you mean 'malignant'"):
        PositiveClass.of("malignent", CLASSES)
    with pytest.raises(ConfigError, match="there are 3 classes; a positive class is one of two"):
        PositiveClass.of("cat", ["cat", "dog", "hare"])
    with pytest.raises(ValueError, match=r"shape \(1, 3\).*expected \(N, 2\)"):
        PositiveClass("cat", 0).probability([[0.2, 0.3, 0.5]])


@pytest.mark.parametrize("index", [0, 1])
def test_of_the_predicted_class_and_its_confidence_it_is_the_same(index: int) -> None:
    """Random values, decimals and all edges of the cells, in the cells of p itself."""
    p_N = np.concatenate([rows()[0][:, 1], np.arange(1001) / 1000, np.arange(metrics.CELLS + 1) / metrics.CELLS])
    p_NC = np.column_stack([1 - p_N, p_N] if index else [p_N, 1 - p_N])
    positive = PositiveClass(CLASSES[index], index)
    of_top_N = positive.probability_of_top(p_NC.max(axis=1), p_NC.argmax(axis=1))
    assert np.abs(of_top_N - p_N).max() < 3e-16
    assert (metrics.cell_of(of_top_N) == metrics.cell_of(p_N)).all()


def test_a_report_has_figures_of_p_positive() -> None:
    """All that its values say of the top label, of p(positive)."""
    p_NC, labels_N = rows(2000)
    positive = PositiveClass("malignant", 1)
    p_N, positive_N = p_NC[:, 1], labels_N == 1
    by_p = AnswerSums(np.bincount(metrics.cell_of(p_N), minlength=metrics.CELLS), positive.sums(p_NC, labels_N))
    top = metrics.CalibrationSums.from_probabilities(p_NC, labels_N)
    sums = AnswerSums(np.bincount(metrics.cell_of(p_NC.max(axis=1)), minlength=metrics.CELLS), top)
    options = ReportOptions(bins=10, binning_of_positive="width")
    report = report_of("tumours", "1", sums, options, positive=PositiveSums("malignant", by_p))
    figures = report.positive
    assert figures is not None and figures.label == "malignant"
    assert figures.prevalence == positive_N.mean()
    assert figures.mean_probability == pytest.approx(p_N.mean(), rel=1e-12)
    assert figures.brier == pytest.approx(((p_N - positive_N) ** 2).mean(), rel=1e-12)
    assert figures.brier == pytest.approx((report.brier or 0) / 2, rel=1e-12) and figures.nll == report.nll
    gaps = [(positive_N - p_N)[np.ceil(p_N * 10) == b].sum() for b in range(1, 11)]
    assert figures.ece == pytest.approx(sum(map(abs, gaps)) / 2000, rel=1e-12)
    assert [b.count * b.gap if b.gap else 0 for b in figures.bins] == pytest.approx(gaps, abs=1e-9)
    assert (figures.calibration_p_value or 1) < 1e-3 and (figures.ks_p_value or 1) < 1e-3
    nothing = report_of("tumours", "1", AnswerSums.zero(), positive=PositiveSums("malignant", AnswerSums.zero()))
    assert nothing.positive is not None and nothing.positive.prevalence is None and len(nothing.positive.bins) == 15
    assert report_of("tumours", "1", sums).positive is None
