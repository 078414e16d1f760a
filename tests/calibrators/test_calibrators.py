"""Calibrators: temperature's exact optimum, its bounds, and what holds for every calibrator by being listed."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar

from tests import reference
from tests import reference_calibrators as twin
from trueodds import calibrators
from trueodds.calibrators.temperature import Temperature
from trueodds.errors import ConfigError

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]


def drawn(n: int, classes: int, temperature: float = 1.0, spread: float = 3.0, seed: int = 0) -> tuple[Array, Labels]:
    """Logits, and labels drawn from softmax(z / temperature): that temperature is the right answer."""
    rng = np.random.default_rng(seed)
    logits_NC = rng.normal(0, spread, (n, classes))
    noise_NC = rng.gumbel(size=logits_NC.shape)  # the Gumbel trick: argmax(z/T + noise) is a draw from softmax(z/T)
    return logits_NC, (logits_NC / temperature + noise_NC).argmax(axis=1)


def fitted(logits_NC: npt.ArrayLike, labels_N: npt.ArrayLike, shrinkage: float = 0.0) -> Temperature:
    """By default the plain formula of Guo et al."""
    calibrator = calibrators.fit(logits_NC, labels_N, "temperature", shrinkage=shrinkage)
    assert isinstance(calibrator, Temperature)
    return calibrator


def ends(logits_NC: npt.ArrayLike) -> tuple[float, float]:
    """The range of T, by its definition: a 200th of the median margin to a hundredfold of that of max z - mean z."""
    rows = [row for row in np.asarray(logits_NC, np.float64).tolist() if min(row) < max(row)]
    lead = float(np.median([max(row) - sum(row) / len(row) for row in rows]))
    margin = float(np.median([max(row) - sorted(row)[-2] for row in rows]))
    return margin / 200, 100 * lead


def mean_nll(logits_NC: Array, labels_N: Labels, temperature: float) -> float:
    z = (logits_NC - logits_NC.max(axis=1, keepdims=True)) / temperature
    return float((np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), labels_N]).mean())


@pytest.mark.parametrize(
    ("n", "classes", "temperature", "spread"),
    [(300, 2, 1.0, 3.0), (300, 10, 2.5, 3.0), (200, 100, 0.4, 1.0), (60, 1000, 1.7, 4.0), (40, 3, 9.0, 30.0)],
)
def test_temperature_equals_other_solvers(n: int, classes: int, temperature: float, spread: float) -> None:
    logits, labels = drawn(n, classes, temperature, spread)
    calibrator = fitted(logits, labels)
    rows = np.arange(n)

    def slope(beta: float) -> float:
        p = np.exp(beta * (logits - logits.max(axis=1, keepdims=True)))
        p /= p.sum(axis=1, keepdims=True)
        return float(((p * logits).sum(axis=1) - logits[rows, labels]).mean())

    lowest, highest = ends(logits)
    root = 1 / brentq(slope, 1 / highest, 1 / lowest, xtol=1e-14, rtol=1e-14)
    assert calibrator.temperature == pytest.approx(root, rel=1e-8)
    least = minimize_scalar(lambda t: mean_nll(logits, labels, t), bounds=(lowest, highest), method="bounded")
    assert mean_nll(logits, labels, calibrator.temperature) <= least.fun + 1e-12
    assert calibrator.bound is None
    assert calibrator.warnings == ()


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 5), st.floats(0.2, 5), st.floats(0.1, 20))
def test_temperature_equals_its_twin(seed: int, classes: int, temperature: float, spread: float) -> None:
    logits, labels = drawn(25, classes, temperature, spread, seed)
    calibrator = fitted(logits, labels)
    lowest, highest = ends(logits)
    twin = reference.temperature(logits.tolist(), labels.tolist(), lowest, highest)
    assert calibrator.temperature == pytest.approx(twin, rel=1e-8)
    clear = 1.0001 * lowest < twin < 0.9999 * highest
    assert (calibrator.bound is None) == clear


def test_nll_is_stationary_at_the_fit() -> None:
    """Central differences in float64: no slope at the fit; a T wrong by 1% has one a thousand times larger."""
    logits, labels = drawn(400, 6, 1.8)
    calibrator, step = fitted(logits, labels).temperature, 1e-4

    def slope(t: float) -> float:
        above, below = (reference.temperature_nll(logits.tolist(), labels.tolist(), t + d) for d in (step, -step))
        return (above - below) / (2 * step)

    assert abs(slope(calibrator)) < 1e-8
    assert slope(calibrator * 1.01) > 1e-5
    assert slope(calibrator * 0.99) < -1e-5


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_a_known_temperature_is_recovered(temperature: float) -> None:
    logits, labels = drawn(40_000, 5, temperature)
    assert fitted(logits, labels).temperature == pytest.approx(temperature, rel=0.03)


def test_two_rows_by_hand() -> None:
    """Logits (d, 0); 3 of 4 rows right: sigma(d / T) = 3/4, so T = d / log 3."""
    assert fitted([[2.0, 0.0]] * 4, [0, 0, 0, 1]).temperature == pytest.approx(2 / math.log(3), rel=1e-10)


def test_one_class_of_labels() -> None:
    """Labels all 0, logits now for and now against it: 5 rows of +1, 1 of -1: sigma(1 / T) = 5/6."""
    calibrator = fitted([[1.0, 0.0]] * 5 + [[0.0, 1.0]], [0] * 6)
    assert calibrator.temperature == pytest.approx(1 / math.log(5), rel=1e-10)


def test_no_wrong_row_stops_at_the_lower_bound() -> None:
    """Margins of 3 and 2 have the median 5/2, a 200th of which is 1/80."""
    calibrator = fitted([[3.0, 0.0], [0.0, 2.0]], [0, 1])
    assert (calibrator.temperature, calibrator.bound) == (1 / 80, "lower")
    assert "lower bound 0.0125" in calibrator.warnings[-1]


@pytest.mark.parametrize(
    ("logits", "labels"),
    [([[3.0, 0.0], [0.0, 2.0]], [1, 0]), ([[1.0, 0.0]] * 2, [0, 1])],
    ids=["all wrong", "as good as a coin"],
)
def test_useless_logits_stop_at_the_upper_bound(logits: list[list[float]], labels: list[int]) -> None:
    calibrator = fitted(logits, labels)
    assert (calibrator.temperature, calibrator.bound) == (ends(logits)[1], "upper")
    assert f"upper bound {calibrator.temperature:g}:" in calibrator.warnings[0]


@pytest.mark.parametrize("objective", ["nll", "brier", "ece", "adaptive_ece", "sb_ece", "sb_ece_label"])
@pytest.mark.parametrize(("logits", "labels"), [([[1.0, 1.0], [0.3, 0.3]], [0, 1]), ([[4.0]], [0])])
def test_logits_that_are_equal_leave_the_temperature_at_1(
    objective: str, logits: list[list[float]], labels: list[int]
) -> None:
    calibrator = calibrators.fit(logits, labels, "temperature", objective=objective)
    assert (calibrator.temperature, calibrator.at_bound) == (1.0, False)  # type: ignore[attr-defined]
    assert calibrator.warnings == (
        "The logits are equal in every row of the fit. They hold no information, and T stays 1.",
    )
    for shrinkage in (0.0, 2.0):
        ensemble = calibrators.fit(logits, labels, "ensemble_temperature", shrinkage=shrinkage)
        assert ensemble.temperature == 1.0  # type: ignore[attr-defined]


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 5), st.floats(0.2, 5), st.floats(0.1, 20), st.floats(0.1, 5))
def test_the_shrunken_temperature_equals_its_twin(
    seed: int, classes: int, temperature: float, spread: float, errors: float
) -> None:
    """The slope of the twin's loss, by central differences: it changes sign at the fit."""
    logits, labels = drawn(25, classes, temperature, spread, seed)
    calibrator = fitted(logits, labels, errors)

    def loss(beta: float) -> float:
        return twin.shrunk_nll(logits.tolist(), labels.tolist(), 1 / beta, errors)

    beta = 1 / calibrator.temperature
    step = 1e-4 * beta
    slope = (loss(beta + step) - loss(beta - step)) / (2 * step)
    curvature = (loss(beta + step) - 2 * loss(beta) + loss(beta - step)) / step**2
    if calibrator.bound is None:
        assert abs(slope) < 1e-6 * (1 + curvature)
    else:
        assert slope < 0 if calibrator.bound == "lower" else slope > 0


def test_shrinkage_by_hand() -> None:
    """Margin d = ln 4, so the net expects 1 of 5 wrong; of 10 rows none is: e = 1/5, and 2 pseudo-errors are 10 rows of
    which 8 are right. Together 18 of 20: sigma(d / T) = .9, T = ln 4 / ln 9."""
    logits = [[math.log(4), 0.0]] * 10
    assert fitted(logits, [0] * 10, 2.0).temperature == pytest.approx(math.log(4) / math.log(9), rel=1e-10)
    # 5 of 10 are wrong, more than expected: 2 pseudo-errors are 4 rows, 3.2 of them right: 8.2 of 14
    calibrator = fitted(logits, [0, 1] * 5, 2.0).temperature
    assert calibrator == pytest.approx(math.log(4) / math.log(8.2 / 5.8), rel=1e-10)


@pytest.mark.parametrize("name", ["temperature", "ensemble_temperature", "structured_vector"])
def test_fifty_rows_without_an_error_do_not_sharpen_without_end(name: str) -> None:
    """Test NLL at the lower bound, the plain formula's, is over 9 times that of the plain softmax."""
    logits, labels = drawn(400, 10, 1.0, 8.0)
    right = np.flatnonzero(logits.argmax(axis=1) == labels)[:50]
    sharp = fitted(logits[right], labels[right])
    assert sharp.bound == "lower"
    calibrator = calibrators.fit(logits[right], labels[right], name)
    assert not calibrator.at_bound
    assert not any("bound" in note for note in calibrator.warnings)
    fresh, truth = drawn(5_000, 10, 1.0, 8.0, seed=1)
    plain = mean_nll(fresh, truth, 1.0)
    assert mean_nll(fresh, truth, sharp.temperature) > 9 * plain
    assert -np.log(calibrator(fresh)[np.arange(5_000), truth]).mean() < 1.5 * plain


def test_shrinkage_is_negligible_on_many_rows() -> None:
    logits, labels = drawn(1_000, 10, 1.5, 8.0)
    plain, shrunk = (fitted(logits, labels, s).temperature for s in (0.0, 2.0))
    assert abs(mean_nll(logits, labels, shrunk) - mean_nll(logits, labels, plain)) < 1e-4
    with pytest.raises(ValueError, match=r"shrinkage is -1; allowed is a number in \[0.0, 1000000.0\]"):
        calibrators.fit(logits, labels, "temperature", shrinkage=-1)


def test_a_temperature_at_an_end_is_noted_by_all_who_have_one() -> None:
    logits, _ = drawn(60, 3, spread=2.0)
    right, wrong = logits.argmax(axis=1), logits.argmin(axis=1)
    for objective in ("brier", "ece", "adaptive_ece", "sb_ece"):
        calibrator = calibrators.fit(logits, right, "temperature", objective=objective)
        assert calibrator.at_bound and "stopped at its lower bound 0." in calibrator.warnings[-1]
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("ensemble_temperature", {"objective": "brier"}),
        ("bias_corrected_temperature", {}),
    )
    for name, options in cases:
        upper = f"stopped at its upper bound {ends(logits)[1]:g}:"
        assert upper in calibrators.fit(logits, wrong, name, **options).warnings[-1]
    sharp = calibrators.fit(logits, right, "ensemble_temperature", objective="brier")
    assert sharp.at_bound and f"stopped at its lower bound {ends(logits)[0]:g}:" in sharp.warnings[-1]


@pytest.mark.parametrize("scale", [1e4, 1e-4, 1e100])
def test_extreme_logits(scale: float) -> None:
    logits, labels = drawn(200, 4, 1.5)
    calibrator = fitted(logits * scale, labels)
    assert calibrator.temperature == pytest.approx(fitted(logits, labels).temperature * scale)
    probabilities = calibrator(logits * scale)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_logits_of_ten_thousand_within_the_bounds() -> None:
    """Large in size, moderate in difference: nothing overflows and the answer is that of the differences."""
    logits, labels = drawn(300, 5, 1.5)
    for shift in (1e4, -1e4):
        assert fitted(logits + shift, labels).temperature == pytest.approx(fitted(logits, labels).temperature, rel=1e-8)


def test_a_shift_of_each_row_changes_nothing() -> None:
    logits, labels = drawn(200, 4, 1.5)
    shifted = logits + np.random.default_rng(1).normal(0, 50, (200, 1))
    one, other = fitted(logits, labels), fitted(shifted, labels)
    assert other.temperature == pytest.approx(one.temperature, rel=1e-10)
    np.testing.assert_allclose(other(shifted), one(logits), atol=1e-12)


def test_scaling_the_logits_scales_the_temperature() -> None:
    logits, labels = drawn(200, 4, 1.5)
    assert fitted(2 * logits, labels).temperature == pytest.approx(2 * fitted(logits, labels).temperature, rel=1e-10)


def test_float16_logits_are_computed_in_float64() -> None:
    logits, labels = drawn(200, 4, 1.5)
    half = logits.astype(np.float16)
    assert fitted(half, labels) == fitted(half.astype(np.float64), labels)
    assert fitted(half, labels)(half).dtype == np.float64


def test_apply_equals_its_twin() -> None:
    logits, _ = drawn(20, 7)
    probability_NC = Temperature(1.7)(logits)
    for row, probabilities in zip(logits.tolist(), probability_NC, strict=True):
        assert probabilities == pytest.approx(reference.softmax(row, 1.7), rel=1e-13)


NAMES = calibrators.names()


def test_names() -> None:
    assert NAMES[:4] == ["identity", "temperature", "ensemble_temperature", "bias_corrected_temperature"]
    assert len(NAMES) == 21


@pytest.mark.parametrize("name", NAMES)
def test_every_calibrator_survives_json(name: str) -> None:
    logits, labels = drawn(100, 3, 1.3)
    calibrator = calibrators.fit(logits, labels, name)
    restored = calibrators.from_json(json.loads(json.dumps(calibrator.to_json())))
    assert restored == calibrator
    assert np.array_equal(restored(logits), calibrator(logits))
    assert calibrators.get(name) is type(calibrator)


@pytest.mark.parametrize("name", NAMES)
def test_every_calibrator_gives_probabilities(name: str) -> None:
    logits, labels = drawn(100, 3, 1.3)
    logits.flags.writeable = False  # what is given is not changed
    probabilities = calibrators.fit(logits, labels, name)(logits)
    assert probabilities.shape == logits.shape
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)


@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=6),
    st.floats(0.05, 20.0),
)
def test_the_top_class_stays_on_top(row: list[float], temperature: float) -> None:
    """Rounding may make a tie of two logits, never turn them round."""
    for calibrator in (Temperature(temperature), calibrators.Identity()):
        assert calibrator.keeps_argmax
        probabilities = calibrator([row])[0]
        assert probabilities[np.argmax(row)] == probabilities.max()


def test_identity_is_softmax() -> None:
    np.testing.assert_allclose(calibrators.Identity()([[0.0, math.log(3.0)]]), [[0.25, 0.75]], rtol=1e-15)
    assert calibrators.Identity().warnings == ()


def test_unknown_names() -> None:
    for use in (calibrators.get, lambda name: calibrators.fit([[1.0]], [0], name)):
        with pytest.raises(
            ConfigError,
            match=r"unknown calibrator 'temprature'; allowed: identity, .*(_curve|select)\. Did you mean 'temperature'",
        ):
            use("temprature")
    with pytest.raises(ConfigError, match=r"unknown calibrator 'x'; allowed: identity, .*_curve\.$"):
        calibrators.get("x")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({}, "unknown calibrator 'None'"),
        ({"calibrator": "temperatur", "temperature": 1.0}, "Did you mean 'temperature'"),
        ({"calibrator": "temperature"}, "'temperature' cannot be restored from"),
        ({"calibrator": "temperature", "temperature": 1.0, "extra": 1}, r"restored from \['extra', 'temperature'\]"),
        ({"calibrator": "temperature", "temperature": "1"}, "cannot be restored"),
        ({"calibrator": "temperature", "temperature": 0.0}, "temperature is 0.0; allowed is a finite number above 0"),
        ({"calibrator": "temperature", "temperature": math.nan}, "temperature is nan"),
        ([], "a JSON object with the key 'calibrator'"),
        (None, "a JSON object"),
    ],
)
def test_json_that_is_no_calibrator(tree, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        calibrators.from_json(tree)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([], [], r"logits has shape \(0,\)"),
        ([1.0, 2.0], [0, 1], r"logits has shape \(2,\); expected \(rows, classes\)"),
        ([[1.0, np.nan]], [0], r"logits\[0, 1\] is nan"),
        (np.array([[1.0, np.inf]], np.float16), [0], "is inf"),
        ([["a"]], [0], "logits has dtype"),
        ([[1.0, 2.0]], [2], "labels holds 2; allowed are the class indices 0..1"),
        ([[1.0, 2.0]], [0.5], r"labels\[0\] is 0.5; expected integer"),
        ([[1.0, 2.0]], [0, 1], r"labels has shape \(2,\); expected \(1,\)"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_what_fit_refuses(name: str, logits: npt.ArrayLike, labels: npt.ArrayLike, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrators.fit(logits, labels, name)


def test_what_apply_refuses() -> None:
    for bad in ([1.0], [[np.nan]], np.zeros((0, 3))):
        with pytest.raises(ValueError, match="logits"):
            Temperature(1.0)(bad)


def test_integer_logits_are_numbers() -> None:
    np.testing.assert_allclose(Temperature(2.0)([[0, 2]]), Temperature(1.0)([[0.0, 1.0]]))


@pytest.mark.parametrize("name", NAMES)
def test_options_are_listed_and_others_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option of '{name}' 'wrong'; allowed: "):
        calibrators.fit(*drawn(10, 2), name, wrong=1)
    defaults = calibrators.options(name)
    logits, labels = drawn(100, 3, 1.3)
    assert calibrators.fit(logits, labels, name, **defaults) == calibrators.fit(logits, labels, name)
    assert set(calibrators.get(name).checks) == set(defaults)
    calibrators.check(name, defaults)
    for option in defaults:
        with pytest.raises(ValueError, match=rf"{option} is \[\]; allowed"):
            calibrators.check(name, {option: []})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"bins": 10},
            "bins is 10, which the objective 'nll' does not read; leave it out, or choose an objective that",
        ),
        ({"objective": "ece", "softness": 0.1}, "softness is 0.1, .* that does: sb_ece, sb_ece_label"),
        ({"objective": "brier", "shrinkage": 0.0}, "shrinkage is 0.0, .* that does: nll"),
    ],
)
def test_options_that_the_objective_does_not_read_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrators.check("temperature", options)
    with pytest.raises(ValueError, match=message):
        calibrators.fit(*drawn(10, 2), "temperature", **options)


def test_the_nearest_option_is_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown option of 'temperature' 'objectif'; .* Did you mean 'objective'\?"):
        calibrators.fit(*drawn(10, 2), "temperature", objectif="nll")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("classes", [1, 2, 7])
def test_a_shift_and_a_dtype_change_nothing_for_any(name: str, classes: int) -> None:
    """The service sends z - max z; float16 is computed in float64."""
    rng = np.random.default_rng(classes)
    labels = np.arange(70) % classes
    half = rng.normal(0, 2, (70, classes)).astype(np.float16)
    calibrator = calibrators.fit(half, labels, name)
    assert calibrator == calibrators.fit(half.astype(np.float64), labels, name)
    wide = half.astype(np.float64)
    probabilities = calibrator(half)
    assert probabilities.dtype == np.float64
    np.testing.assert_allclose(calibrator(wide - wide.max(axis=1, keepdims=True)), probabilities, atol=1e-9)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    assert probabilities.min() > 0


@pytest.mark.parametrize("name", NAMES)
def test_what_says_that_it_keeps_the_argmax_does(name: str) -> None:
    for seed in range(5):
        logits, labels = drawn(60, 4, 3.0, 3.0, seed)
        calibrator = calibrators.fit(logits, np.concatenate([np.arange(4), labels[4:]]), name)
        fresh, _ = drawn(200, 4, seed=seed + 100)
        kept = (calibrator(fresh).argmax(axis=1) == fresh.argmax(axis=1)).all()
        assert kept or not calibrator.keeps_argmax


@pytest.mark.parametrize("name", NAMES)
def test_one_row_or_a_batch_is_the_same(name: str) -> None:
    logits, labels = drawn(90, 3, 1.3)
    calibrator = calibrators.fit(logits, labels, name)
    np.testing.assert_allclose(
        np.concatenate([calibrator(row[None]) for row in logits]), calibrator(logits), atol=1e-14
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("identity", "temperature")])
def test_json_of_another_shape_and_logits_of_other_classes(name: str) -> None:
    logits, labels = drawn(100, 3, 1.3)
    calibrator = calibrators.fit(logits, labels, name)
    with pytest.raises(ValueError, match="cannot be restored from"):
        calibrators.from_json({"calibrator": name, "extra": 1})
    if calibrator.classes is not None:
        with pytest.raises(ValueError, match=r"logits has shape \(1, 4\); this calibrator was fitted on 3 classes"):
            calibrator(np.zeros((1, 4)))
    assert calibrator != calibrators.Identity()
    assert calibrator != calibrators.fit(logits[:80], labels[:80], name)
    assert hash(calibrator) == hash(calibrators.fit(logits, labels, name))


def test_what_a_fit_makes_worse_is_in_its_json() -> None:
    """Class 0 says .45 and is right 4 times of 10; class 1's share of the other .6 is .48, and takes its place."""
    logits = np.log([[0.45, 0.44, 0.11]] * 10)
    worse = calibrators.fit(logits, [0, 0, 0, 0, 1, 1, 1, 2, 2, 2], "histogram", bins=2)
    assert worse.warnings == ("The calibrator lowers the accuracy on the rows of its fit from 0.4000 to 0.3000.",)
    assert calibrators.from_json(json.loads(json.dumps(worse.to_json()))).warnings == worse.warnings
    spread, labels = drawn(300, 3)
    sharp = calibrators.fit(spread, labels, "temperature", objective="ece", bins=1)
    before, after = (mean_nll(spread, labels, t) for t in (1.0, sharp.temperature))  # type: ignore[attr-defined]
    assert any("raises the NLL" in note for note in sharp.warnings) == (after > before + 1e-9)


def test_an_old_file_without_the_newer_keys_is_read() -> None:
    old = {"calibrator": "temperature", "temperature": 1.5, "bound": None}
    assert calibrators.from_json(old) == Temperature(1.5)
    assert calibrators.from_json({"calibrator": "identity"}) == calibrators.Identity()


def test_a_thousand_classes_survive_json() -> None:
    rng = np.random.default_rng(0)
    calibrator = calibrators.Matrix(rng.normal(size=(300, 300)), rng.normal(size=300))
    assert calibrators.from_json(json.loads(json.dumps(calibrator.to_json()))) == calibrator
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(calibrator.bias_C)[0] = 1


def test_what_no_temperature_can_be_is_not_restored() -> None:
    tree = {"calibrator": "temperature", "temperature": 1.5}
    with pytest.raises(ValueError, match="bound is 'left'; allowed: lower, upper"):
        calibrators.from_json({**tree, "bound": "left"})
    for temperature in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"temperature is .*; allowed is a finite number above 0"):
            calibrators.from_json({**tree, "temperature": temperature})


@pytest.mark.parametrize(
    ("name", "options"),
    [("vector", {}), ("matrix", {}), ("bias_corrected_temperature", {"shrinkage": 0.0, "intercept": 0.0})],
)
def test_a_fit_that_separates_its_rows_says_so(name: str, options: dict[str, float]) -> None:
    labels = np.arange(60) % 3
    logits = np.eye(3)[labels] + [1.2, 0, 0] + np.random.default_rng(0).normal(0, 0.02, (60, 3))
    note = calibrators.fit(logits, labels, name, **options).warnings[0]
    assert "separates the 60 rows of its fit" in note and "Use 'temperature' or 'structured_vector'" in note
    assert not calibrators.fit(logits, labels, "structured_vector").warnings
    labels[0] = 1  # one wrong row, and the optimum is finite again
    assert not any("separates" in note for note in calibrators.fit(logits, labels, name, **options).warnings)


@pytest.mark.parametrize("name", ["structured_vector", "structured_matrix"])
def test_a_class_without_rows_is_named(name: str) -> None:
    logits, labels = drawn(200, 4)
    seen = labels != 2
    note = calibrators.fit(logits[seen], labels[seen], name).warnings[-1]
    assert note == "The rows of the fit never hold class 2: the fit holds no information about it."
    assert not any("never hold" in note for note in calibrators.fit(logits, labels, name).warnings)


@pytest.mark.parametrize("name", ["vector", "matrix", "dirichlet", "beta"])
def test_overfitting_is_said(name: str) -> None:
    """100 rows of ten classes: fresh rows pay for 20 to 110 parameters, and the fit says so, also from its JSON."""
    logits, labels = drawn(100, 10, 1.0, 8.0, seed=3)
    calibrator = calibrators.fit(logits, labels, name)
    (note,) = [note for note in calibrator.warnings if "overfits" in note]
    assert f"{calibrator.parameters} parameters for 100 rows" in note and "Use 'temperature', or more rows" in note
    assert calibrators.from_json(json.loads(json.dumps(calibrator.to_json()))).warnings == calibrator.warnings
    fresh, truth = drawn(4_000, 10, 1.0, 8.0, seed=1)
    worse = -np.log(calibrator(fresh)[np.arange(4_000), truth]).mean()
    assert worse > 1.5 * mean_nll(fresh, truth, 1.0)
    many, labels = drawn(3_000, 10, 1.5, 3.0)
    assert not any("overfits" in note for note in calibrators.fit(many, labels, name).warnings)


def test_what_a_prior_holds_is_not_checked_for_overfitting() -> None:
    logits, labels = drawn(30, 4)
    for name in ("identity", "temperature", "ensemble_temperature"):
        calibrator = calibrators.fit(logits, labels, name)
        assert calibrator.is_regularised and not any("overfits" in note for note in calibrator.warnings)


@pytest.mark.parametrize("name", [*calibrators.names(), "select"])
def test_a_calibrator_knows_how_many_classes_it_was_fitted_on(name: str) -> None:
    rng = np.random.default_rng(3)
    logits_NC = rng.normal(0, 2, (300, 3))
    labels_N = (logits_NC + rng.gumbel(size=(300, 3))).argmax(axis=1)
    fitted = calibrators.fit(logits_NC, labels_N, name)
    restored = calibrators.from_json(json.loads(json.dumps(fitted.to_json())))
    direct = type(fitted).fit(logits_NC, labels_N)
    for calibrator in (fitted, restored, direct):
        assert calibrator.classes == calibrator.fitted_classes == 3
        with pytest.raises(ValueError, match=r"logits has shape \(5, 4\); this calibrator was fitted on 3 classes"):
            calibrator(rng.normal(0, 1, (5, 4)))
