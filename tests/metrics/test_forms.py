"""Metrics take p(positive) of two classes alone, and labels by name. Probabilities N x C give what they gave before."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import trueodds
from trueodds import metrics
from trueodds.errors import ConfigError
from trueodds.sums.label_forms import as_rows
from trueodds.sums.positive import PositiveClass

RNG = np.random.default_rng(3)
P = RNG.random(400)
Y = (RNG.random(400) < P**1.5).astype(int)
BOTH = np.stack([1 - P, P], axis=1)
NAMES = ["ham", "spam"]
NAMED = [NAMES[y] for y in Y]
P_POSITIVE = ("thresholds", "decision_cost", "calibration_ratio")
"""Functions of p(positive) over all of [0, 1]; the others are of the top label or of every class."""


def functions(*parameters: str) -> list[str]:
    """The public functions whose first parameters have these names."""
    found = []
    for name in metrics.__all__:
        function = getattr(metrics, name)
        if inspect.isfunction(function):
            first = list(inspect.signature(function).parameters)[: len(parameters)]
            found += [name] * (first == list(parameters))
    return found


LABELLED = [*functions("predictions", "labels_N"), *functions("probabilities_NC", "labels_N")]
UNLABELLED = [name for name in functions("probabilities_NC") if name not in LABELLED]


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)


def test_the_lists_are_whole() -> None:
    assert len(LABELLED) == 38 and {"ece", "nll", "ece_per_class", "classwise_ece_interval", *P_POSITIVE} <= {*LABELLED}
    assert {*UNLABELLED} == {
        *("mean_entropy", "classwise_noise_floor", "noise_floor_per_class"),
        *("samplewise_error", "samplewise_interval", "samplewise_noise_floor"),
    }


@pytest.mark.parametrize("name", LABELLED)
def test_one_column_and_names_give_what_two_columns_and_indices_give(name: str) -> None:
    metric: Callable[..., Any] = getattr(metrics, name)
    expected = metric(P, Y) if name in P_POSITIVE else metric(BOTH, Y)
    assert same(metric(P, Y), expected) and same(metric(list(P), list(Y)), expected)
    for labels in (NAMED, np.array(NAMED), np.array(NAMED, object)):
        assert same(metric(P, labels, classes=NAMES), expected)
    assert same(metric(P.tolist(), Y * 2 - 1, classes=[-1, 1]), expected)
    assert same(metric(P[:, None], Y[:, None]), expected)  # as a net with one sigmoid has them
    assert same(metric(P[:, None].tolist(), np.array(NAMED)[:, None], classes=NAMES), expected)
    if name not in P_POSITIVE:
        assert same(metric(BOTH, NAMED, classes=NAMES), expected)
        assert same(metric(BOTH[:, ::-1], NAMED, classes=NAMES[::-1]), metric(BOTH[:, ::-1], 1 - Y))
    with pytest.raises(ConfigError, match=r"unknown label 'ham'; allowed: hams, spam\. Did you mean 'hams'"):
        metric(P, NAMED, classes=["hams", "spam"])
    with pytest.raises(ConfigError, match="classes has 3 names for 2 columns; give one name for each column, in order"):
        metric(P, NAMED, classes=[*NAMES, "eggs"])
    with pytest.raises(
        ConfigError, match=r"labels has shape \(400, 2\); allowed is one class for each row: for one col"
    ):
        metric(P, np.eye(2)[Y], classes=NAMES)


@pytest.mark.parametrize("name", UNLABELLED)
def test_one_column_without_labels(name: str) -> None:
    metric: Callable[..., Any] = getattr(metrics, name)
    human = np.stack([2 - Y, 1 + Y], axis=1)
    rest = {"samplewise_error": (human,), "samplewise_interval": (human,), "samplewise_noise_floor": (10,)}.get(
        name, ()
    )
    assert same(metric(P, *rest), metric(BOTH, *rest)) and same(metric(list(P), *rest), metric(BOTH, *rest))


def test_they_agree_with_the_report() -> None:
    report = trueodds.report(P, NAMED, classes=NAMES)
    assert metrics.ece(P, NAMED, classes=NAMES) == report.ece and metrics.brier(P, Y) == report.brier
    assert report.positive is not None
    ratio = metrics.calibration_ratio(P, Y)
    assert (ratio.expected, ratio.observed) == (
        report.positive.expected,
        report.positive.observed == Y.sum() and Y.sum(),
    )
    assert same(ratio, metrics.calibration_ratio(PositiveClass("spam", 1).sums(BOTH, Y)))


def test_sums_take_the_same_forms() -> None:
    build = metrics.CalibrationSums.from_probabilities
    expected = build(BOTH, Y)
    assert expected.n == 400 and expected.total("nll") > 0
    for predictions in (P, list(P), BOTH, BOTH.tolist()):
        assert build(predictions, Y) == build(predictions, NAMED, classes=NAMES) == expected
    assert build(P, NAMED, classes=NAMES, scores=False) == build(BOTH, Y, scores=False)
    assert build(BOTH[:, ::-1], NAMED, classes=NAMES[::-1]) == build(BOTH[:, ::-1], 1 - Y)
    assert metrics.ece(build(P, NAMED, classes=NAMES)) == metrics.ece(P, NAMED, classes=NAMES)
    with pytest.raises(ConfigError, match=r"unknown label 'ham'; allowed: hams, spam\. Did you mean 'hams'"):
        build(P, NAMED, classes=["hams", "spam"])
    with pytest.raises(ConfigError, match="classes has 3 names for 2 columns; give one name for each column, in order"):
        build(BOTH, NAMED, classes=[*NAMES, "eggs"])


def test_two_columns_and_sums_are_passed_on_as_they_are() -> None:
    for values in (BOTH, BOTH.tolist(), BOTH.astype(np.float16), metrics.CalibrationSums.zero()):
        assert as_rows(values, Y)[0] is values and as_rows(values, Y)[1] is Y
    sums = metrics.CalibrationSums.from_probabilities(BOTH, Y)
    with pytest.raises(ConfigError, match="CalibrationSums already hold their labels; leave out classes"):
        metrics.ece(sums, classes=NAMES)


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([2.0, -0.5], [0, 1], r"probabilities holds 2; allowed is \[0, 1\]: pass 1 / \(1 \+ exp"),
        ([[98.5], [0.5]], [0, 1], r"probabilities holds 98\.5; allowed is \[0, 1\]: divide percentages by 100"),
        ([np.nan, 0.5], [0, 1], r"probabilities\[0, 0\] is nan"),
        ([None, 0.5], [0, 1], "is None, a missing value"),
        (["a", "b"], [0, 1], "probabilities has dtype <U1; expected numbers"),
        ([0.2, [0.5]], [0, 1], "ragged"),
        ([], [], r"probabilities has shape \(0,\); expected \(rows, classes\)"),
        ([0.2, 0.5], [0], r"labels has shape \(1,\); expected \(2,\)"),
        (
            [0.2, 0.5],
            [[0, 1], [1, 0]],
            r"labels has shape \(2, 2\); .* one column a class pass labels.argmax\(axis=1\)",
        ),
        ([0.2, 0.5], [0, 2], r"labels holds 2; allowed are the class indices 0\.\.1"),
        (np.ma.masked_array([0.2, 0.5], [True, False]), [0, 1], "1 masked value"),
    ],
)
def test_bad_columns(probabilities: Any, labels: Any, message: str) -> None:
    for metric in (metrics.ece, metrics.classwise_ece, metrics.nll, metrics.CalibrationSums.from_probabilities):
        with pytest.raises(ValueError, match=message):
            metric(probabilities, labels)
