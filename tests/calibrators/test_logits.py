"""What a calibrator takes for logits: probabilities are refused, and turned into logits by `logits_of`."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import trueodds
from tests import reference_calibrators as reference
from trueodds import calibrators, metrics
from trueodds.errors import ConfigError

RNG = np.random.default_rng(0)
Z = RNG.normal(0, 3, (200, 3))
Y = np.array([RNG.choice(3, p=p) for p in metrics.softmax(Z / 2)])
PROBABILITIES = "logits holds probabilities: .* Pass trueodds.logits_of"


def test_the_softmax_of_the_logits_is_the_probabilities() -> None:
    assert_allclose(metrics.softmax(trueodds.logits_of(metrics.softmax(Z))), metrics.softmax(Z), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_zeros_stay_the_least_of_their_row(dtype: str) -> None:
    p = np.array([[0.5, 0.5, 0.0], [1.0, 1e-30, 0.0], [1.0, 0.0, 0.0]], dtype=dtype)
    precision = float(np.finfo(dtype).eps)
    assert_allclose(trueodds.logits_of(p), reference.logits_of(p.tolist(), precision), rtol=1e-14)


def test_one_column_is_the_positive_class() -> None:
    p = [0.0, 0.25, 1.0]
    both = trueodds.logits_of([[1 - each, each] for each in p])
    assert (trueodds.logits_of(p) == both).all() and (trueodds.logits_of(np.array(p)[:, None]) == both).all()


@pytest.mark.parametrize("wrong", [[[0.5, 0.6]], [[1.5, -0.5]], [2.0], [[np.nan, 1.0]]])
def test_what_is_no_probability_is_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="probabilities"):
        trueodds.logits_of(wrong)


@pytest.mark.parametrize(
    "fit", [calibrators.fit, calibrators.select, lambda z, y: calibrators.fit(z, y, "temperature")]
)
def test_a_fit_refuses_probabilities(fit: calibrators.Calibrator) -> None:
    with pytest.raises(ValueError, match=PROBABILITIES):
        fit(metrics.softmax(Z), Y)  # type: ignore[call-arg]
    sure = metrics.softmax(np.where(np.arange(200)[:, None] < 20, 1e3 * Z, Z))  # 0 and 1 in the first rows
    with pytest.raises(ValueError, match=PROBABILITIES):
        fit(sure.astype(np.float32), Y)  # type: ignore[call-arg]


def test_a_calibrator_refuses_probabilities_where_there_are_rows_enough_to_tell() -> None:
    calibrator, p = calibrators.fit(Z, Y, "temperature"), metrics.softmax(Z)
    with pytest.raises(ValueError, match=PROBABILITIES):
        calibrator(p)
    for chance in (p[:9], np.repeat(p[:1], 40, axis=0), p - 1, np.eye(3)[Y]):
        assert calibrator(chance).shape == chance.shape


def test_select_is_the_default_and_takes_its_options() -> None:
    selection = calibrators.select(Z, Y, candidates=["identity", "temperature"], folds=3)
    assert calibrators.fit(Z, Y, candidates=["identity", "temperature"], folds=3) == selection.calibrator
    assert calibrators.fit(Z, Y) == calibrators.select(Z, Y).calibrator
    with pytest.raises(
        ConfigError, match=r"unknown option of 'select' 'fold'; allowed: candidates, folds, ordered. Did you mean"
    ):
        calibrators.fit(Z, Y, fold=3)
    with pytest.raises(ConfigError, match="allowed is the name or class of a calibrator, after logits and labels"):
        calibrators.fit(Z, Y, Y)  # type: ignore[call-overload]


def test_fewer_rows_than_folds() -> None:
    assert calibrators.select(Z[:3], Y[:3]).table == calibrators.select(Z[:3], Y[:3], folds=3).table
