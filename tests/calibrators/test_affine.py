"""Affine calibrators: the fit is the minimum of the slow loss, the bounds hold, W and b say what they do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize

from tests import reference_calibrators as twin
from tests.calibrators.test_calibrators import Array, Labels, drawn, fitted
from trueodds import calibrators
from trueodds.calibrators import FitError
from trueodds.calibrators.affine.maps import Affine
from trueodds.calibrators.affine.structured import Structured, features
from trueodds.calibrators.fitting import multinomial
from trueodds.calibrators.fitting.newton import minimise
from trueodds.calibrators.temperature import SHRINKAGE
from trueodds.sums.inputs import softmax

AFFINE = ["bias_corrected_temperature", "vector", "matrix"]
STRUCTURED = ["structured_vector", "structured_matrix"]


def biased(n: int = 120, classes: int = 3, seed: int = 0) -> tuple[Array, Labels]:
    """Labels from softmax(W z + b), W neither a multiple of I nor diagonal."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, (n, classes))
    truth = z @ (0.6 * np.eye(classes) + 0.2 * rng.normal(size=(classes, classes))) + rng.normal(0, 0.5, classes)
    labels = (truth + rng.gumbel(size=z.shape)).argmax(axis=1)
    labels[:classes] = np.arange(classes)
    return z, labels


def penalties(name: str, n: int, classes: int) -> dict[str, float]:
    """What the docstrings say, per entry, for the defaults."""
    pairs = classes * (classes - 1)
    whole = {"off_diagonal": pairs / n, "intercept": classes / n}
    return {
        "structured_vector": {"diagonal": classes / n, "intercept": classes / n},
        "matrix": whole,
        "structured_matrix": {**whole, "diagonal": classes / n},
        "dirichlet": whole,
    }.get(name, {})


def weights_of(name: str, theta: Array, classes: int) -> Array:
    free = theta[:-classes]
    if name == "bias_corrected_temperature":
        return np.diag(np.full(classes, free[0]))
    matrix: Array = np.diag(free) if "vector" in name else free.reshape(classes, classes)
    return matrix


def plain(name: str) -> dict[str, float]:
    """The options that leave the paper's formula."""
    return {"bias_corrected_temperature": {"shrinkage": 0.0, "intercept": 0.0}}.get(
        name, {"shrinkage": 0.0} if "structured" in name else {}
    )


def mixed(z: Array, temperature: float, rows: int) -> Array:
    """q of `StructuredVector`, row by row."""
    classes = z.shape[1]
    return np.array(
        [[(rows * p + 1 / classes) / (rows + 1) for p in softmax(row[None] / temperature)[0].tolist()] for row in z]
    )


@pytest.mark.parametrize("name", [*AFFINE, *STRUCTURED, "dirichlet"])
def test_the_fit_is_the_minimum_of_the_slow_loss(name: str) -> None:
    """Numeric gradient of the twin at the fit: none; and a general solver started elsewhere finds nothing lower."""
    n, k = 60, 3
    z, labels = biased(n, k)
    calibrator = calibrators.fit(z, labels, name, **plain(name))
    assert isinstance(calibrator, Affine | Structured)
    temperature = fitted(z, labels).temperature
    if name in STRUCTURED:
        scale, rows = 1.0, np.log(mixed(z, temperature, n))
    elif name == "dirichlet":
        scale, rows = 1.0, np.log(softmax(z))
    else:
        scale, rows = temperature, (z - z.mean(axis=1, keepdims=True)) / temperature
    kept = penalties(name, n, k)

    def loss(theta: Array) -> float:
        return twin.affine_nll(
            rows.tolist(), labels.tolist(), weights_of(name, theta, k).tolist(), theta[-k:].tolist(), **kept
        )

    stored = np.atleast_1d(calibrator._weights()).ravel() * scale
    theta = np.concatenate([stored, np.asarray(calibrator.bias_C)])  # type: ignore[union-attr]
    assert np.abs(approx_fprime(theta, loss, 1e-6)).max() < 2e-5  # forward differences; curvature x step is 1e-6
    assert np.abs(approx_fprime(theta * 1.1 + 0.01, loss, 1e-6)).max() > 1e-3
    other = minimize(loss, theta + 0.1, method="L-BFGS-B")
    assert other.fun >= loss(theta) - 1e-10


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from(AFFINE))
def test_w_and_b_are_the_call_and_a_shift_changes_nothing(seed: int, name: str) -> None:
    z, labels = biased(40, 4, seed)
    calibrator = calibrators.fit(z, labels, name)
    pair = calibrator.affine(4)
    assert pair is not None
    np.testing.assert_allclose(softmax(z @ pair[0].T + pair[1]), calibrator(z), atol=1e-12)
    np.testing.assert_allclose(calibrator(z + np.linspace(-1e3, 1e3, 40)[:, None]), calibrator(z), atol=1e-9)
    assert abs(np.asarray(calibrator.bias_C).mean()) < 1e-12  # type: ignore[attr-defined]


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from(STRUCTURED))
def test_a_structured_map_is_what_it_says_and_a_shift_changes_nothing(seed: int, name: str) -> None:
    z, labels = biased(40, 4, seed)
    calibrator = calibrators.fit(z, labels, name)
    parts = calibrator.log_affine()
    assert parts is not None and calibrator.affine(4) is None and parts.uniform == 1 / 41
    x = np.log(mixed(z, parts.temperature, 40))
    np.testing.assert_allclose(softmax(x @ parts.weight_CC.T + parts.bias_C), calibrator(z), atol=1e-12)
    np.testing.assert_allclose(calibrator(z + np.linspace(-1e3, 1e3, 40)[:, None]), calibrator(z), atol=1e-9)
    assert abs(parts.bias_C.mean()) < 1e-12
    assert calibrators.from_json(calibrator.to_json()) == calibrator


def test_two_classes_bend_as_beta_does_where_the_truth_bends() -> None:
    """The log-odds of the truth are 2 ln q_1 - .5 ln q_0: no slope and offset in the log-odds of q give that."""
    rng = np.random.default_rng(5)
    q = np.clip(rng.beta(1.0, 1.0, 20_000), 1e-6, 1 - 1e-6)
    truth = 1 / (1 + np.exp(-(2 * np.log(q) - 0.5 * np.log1p(-q))))
    labels, z = (rng.random(20_000) < truth).astype(int), np.stack([np.log1p(-q), np.log(q)], axis=1)
    loss = {}
    for name in ("structured_vector", "structured_matrix", "beta", "platt"):
        p = calibrators.fit(z[::2], labels[::2], name)(z[1::2])
        loss[name] = float(-np.log(p[np.arange(10_000), labels[1::2]]).mean())
    assert abs(loss["structured_vector"] - loss["beta"]) < 3e-4 and abs(loss["structured_matrix"] - loss["beta"]) < 3e-4
    assert loss["platt"] > loss["beta"] + 0.005


def test_a_row_that_rules_the_truth_out_is_no_longer_than_the_mixture_allows() -> None:
    """Among 400 rows one has p_y = e^-400: its ln q is ln(1 / (3 * 401)), and the map gives it a chance."""
    z, labels = drawn(400, 3)
    z[0] = [0.0, -400.0, -400.0]
    labels[0] = 1
    for name in STRUCTURED:
        calibrator = calibrators.fit(z, labels, name)
        parts = calibrator.log_affine()
        assert parts is not None
        np.testing.assert_allclose(features(z[:1], 1.0, parts.uniform)[0, 1:], -np.log(3 * 401), rtol=1e-12)
        assert calibrator(z[:1])[0, 1] > 1e-8


@pytest.mark.parametrize("name", [*AFFINE, *STRUCTURED])
def test_scaling_the_logits_scales_the_map(name: str) -> None:
    z, labels = biased()
    np.testing.assert_allclose(
        calibrators.fit(4 * z, labels, name, **plain(name))(4 * z),
        calibrators.fit(z, labels, name, **plain(name))(z),
        atol=1e-7,
    )


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.floats(0.1, 4), st.floats(0.1, 4))
def test_the_shrunken_bias_correction_is_the_minimum_of_the_slow_loss(seed: int, errors: float, ridge: float) -> None:
    """Numeric gradient of the twin: pseudo-rows of the net's own softmax, and a ridge on the offsets."""
    z, labels = biased(40, 3, seed)
    calibrator = calibrators.fit(z, labels, "bias_corrected_temperature", shrinkage=errors, intercept=ridge)
    start = np.array([1 / calibrator.temperature, *np.asarray(calibrator.bias_C)])  # type: ignore[attr-defined]

    def loss(theta: Array) -> float:
        shrunk = twin.shrunk_nll(z.tolist(), labels.tolist(), 1 / theta[0], errors, theta[1:].tolist())
        return shrunk + ridge / 40 * float(theta[1:] @ theta[1:])

    assert np.abs(approx_fprime(start, loss, 1e-6)).max() < 3e-5
    assert np.abs(approx_fprime(start * 1.1 + 0.01, loss, 1e-6)).max() > 1e-3


def test_logits_that_say_nothing_leave_the_class_frequencies() -> None:
    """All logits equal: softmax(b) must be the share of each class, 3 : 2 : 1."""
    labels = np.array([0, 0, 0, 1, 1, 2])
    for name in ("bias_corrected_temperature", "vector"):
        calibrator = calibrators.fit(np.zeros((6, 3)), labels, name, **plain(name))
        np.testing.assert_allclose(calibrator(np.zeros((1, 3))), [[1 / 2, 1 / 3, 1 / 6]], rtol=1e-7)


def test_two_classes_by_hand() -> None:
    """Score +-1 (logits +-1/2): 3 of 4 right above, 4 of 5 below: sigma(w + b) = 3/4, sigma(-w + b) = 1/5."""
    z = np.array([[0.5, -0.5]] * 5 + [[-0.5, 0.5]] * 4)
    calibrator = calibrators.fit(
        z, np.array([0] * 4 + [1] * 4 + [0]), "bias_corrected_temperature", shrinkage=0, intercept=0
    )
    np.testing.assert_allclose(calibrator([[-0.5, 0.5], [0.5, -0.5]])[:, 1], [3 / 4, 1 / 5], rtol=1e-7)
    assert calibrator.temperature == pytest.approx(2 / (math.log(3) + math.log(4)), rel=1e-7)  # type: ignore[attr-defined]


def test_the_truth_is_recovered() -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(0, 2, (40_000, 3))
    factors, bias = np.array([0.5, 1.0, 0.8]), np.array([0.6, -0.4, -0.2])
    labels = ((z - z.mean(axis=1, keepdims=True)) * factors + bias + rng.gumbel(size=z.shape)).argmax(axis=1)
    calibrator = calibrators.fit(z, labels, "vector")
    np.testing.assert_allclose(calibrator.weight_C, factors, atol=0.03)  # type: ignore[attr-defined]
    np.testing.assert_allclose(calibrator.bias_C, bias, atol=0.03)  # type: ignore[attr-defined]


def test_no_factor_is_negative() -> None:
    """The logit of class 2 is turned round: its factor stops at 0, and T at its bound for logits all turned round."""
    z, labels = drawn(400, 3)
    z[:, 2] *= -1
    weight_C = np.asarray(calibrators.fit(z, labels, "vector").weight_C)  # type: ignore[attr-defined]
    assert weight_C[2] == 0
    assert (weight_C[:2] > 0).all()
    calibrator = calibrators.fit(-z[:, :2], np.minimum(labels, 1), "bias_corrected_temperature")
    assert calibrator.bound == "upper" and "stopped at its upper bound" in calibrator.warnings[-1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", AFFINE)
def test_separable_rows_have_a_fit(name: str) -> None:
    z, _ = drawn(60, 3)
    calibrator = calibrators.fit(z, z.argmax(axis=1), name)
    assert all("separates the 60 rows" in warning or "overfits" in warning for warning in calibrator.warnings)
    assert (calibrator(z).argmax(axis=1) == z.argmax(axis=1)).all()


def test_unregularised_matrix_on_separable_rows_is_refused_or_separates() -> None:
    z, _ = drawn(60, 3)
    try:
        calibrator = calibrators.fit(z, z.argmax(axis=1), "matrix", off_diagonal=0.0, intercept=0.0)
    except FitError as error:
        assert "stronger regularisation" in str(error)
    else:
        assert -np.log(calibrator(z)[np.arange(60), z.argmax(axis=1)]).mean() < 1e-6


@pytest.mark.parametrize("name", ["bias_corrected_temperature", "vector", "matrix", "dirichlet"])
def test_a_class_never_seen_is_named(name: str) -> None:
    z, labels = drawn(50, 5)
    with pytest.raises(FitError, match=rf"never hold class 2, 4, without which {name} .*; use 'temperature'"):
        calibrators.fit(z, np.where(np.isin(labels, [2, 4]), 0, labels), name)


@pytest.mark.parametrize("name", ["structured_vector", "structured_matrix"])
def test_the_structured_ones_do_not_need_every_class(name: str) -> None:
    z, labels = drawn(50, 5)
    probabilities = calibrators.fit(z, np.where(labels == 2, 0, labels), name)(z)
    assert probabilities[:, 2].min() > 0


def test_a_strong_penalty_is_temperature_scaling() -> None:
    z, labels = biased()
    strong = {"diagonal": 1e6, "off_diagonal": 1e6, "intercept": 1e6}
    calibrator = calibrators.fit(z, labels, "structured_matrix", **strong)
    expected = mixed(z, fitted(z, labels, SHRINKAGE).temperature, len(z))
    np.testing.assert_allclose(calibrator(z), expected, atol=1e-5)


def test_fifty_classes_keep_their_accuracy_only_with_a_penalty() -> None:
    """5 rows per class; fresh rows: the default penalty keeps what an unpenalised matrix destroys."""
    rng = np.random.default_rng(0)
    labels = np.arange(700) % 50
    z = rng.normal(0, 1.5, (700, 50)) + 4 * np.eye(50)[labels]
    few, fresh = slice(0, 250), slice(250, None)

    def accuracy(calibrator: calibrators.Calibrator) -> float:
        return float((calibrator(z[fresh]).argmax(axis=1) == labels[fresh]).mean())

    plain = accuracy(calibrators.Identity())
    assert accuracy(calibrators.fit(z[few], labels[few], "structured_matrix")) > plain - 0.01
    assert accuracy(calibrators.fit(z[few], labels[few], "matrix")) > plain - 0.05
    assert accuracy(calibrators.fit(z[few], labels[few], "matrix", off_diagonal=0.01, intercept=0.01)) < plain - 0.07


def test_logits_beyond_reach_are_refused() -> None:
    """One row is a billion times as large as the others, and right: the temperature is that of the others."""
    z, labels = drawn(50, 3)
    z[0] *= 1e9
    labels[0] = z[0].argmax()
    with pytest.raises(FitError, match=r"logits reach .*; use 'temperature'"):
        calibrators.fit(z, labels, "vector")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"calibrator": "vector", "weight_C": [1.0, 2.0], "bias_C": [0.0]},
            r"bias_C has shape \(1,\); allowed is \(2\)",
        ),
        ({"calibrator": "matrix", "weight_CC": [[1.0, 2.0]], "bias_C": [0.0]}, r"weight_CC has shape \(1, 2\)"),
        ({"calibrator": "vector", "weight_C": [math.nan], "bias_C": [0.0]}, "weight_C holds nan"),
        ({"calibrator": "vector", "weight_C": ["a"], "bias_C": [0.0]}, "weight_C is not an array of numbers"),
        ({"calibrator": "bias_corrected_temperature", "temperature": -1.0, "bias_C": [0.0]}, "temperature is -1.0"),
        (
            {
                "calibrator": "structured_vector",
                "temperature": 1.0,
                "uniform": 0.0,
                "bias_C": [0.0, 0.0],
                "weight_C": [1.0, 1.0],
            },
            r"uniform is 0\.0; allowed is a number in",
        ),
    ],
)
def test_fields_that_cannot_be_right(tree: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrators.from_json(tree)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("matrix", {"off_diagonal": -1.0}, "off_diagonal is -1.0; allowed is a number in"),
        ("structured_matrix", {"diagonal": 0.0}, "diagonal is 0.0"),
        ("structured_vector", {"intercept": math.nan}, "intercept is nan"),
    ],
)
def test_options_out_of_range(name: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrators.fit(*biased(), name, **options)


@pytest.mark.parametrize("name", ["matrix", "structured_matrix", "dirichlet"])
def test_a_fit_of_many_parameters_stops_where_the_loss_hardly_falls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = biased(600, 8)
    whole = calibrators.fit(z, labels, name)
    points = []
    evaluate = multinomial.Multinomial.value_and_gradient

    def counted(problem: multinomial.Multinomial, theta_P: Array) -> tuple[float, Array]:
        points.append(len(theta_P))
        return evaluate(problem, theta_P)

    monkeypatch.setattr(multinomial.Multinomial, "value_and_gradient", counted)
    calibrators.fit(z, labels, name)
    steps = len(points)
    points.clear()
    monkeypatch.setattr(multinomial, "MANY", 8 * 8)
    short = calibrators.fit(z, labels, name)
    assert len(points) < steps

    def nll(calibrator: calibrators.Calibrator) -> float:
        return float(-np.log(calibrator(z)[np.arange(len(z)), labels]).mean())

    assert nll(short) == pytest.approx(nll(whole), abs=1e-5)


def test_features_beyond_float32_guide_the_steps_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multinomial, "MANY", 1)
    z, labels = biased(200, 3)
    small = multinomial.Multinomial(z, labels, "full")
    large = multinomial.Multinomial(1e30 * z, labels, "full")
    for problem, size in ((small, 1.0), (large, 1e30)):
        problem.value_and_gradient(np.concatenate([np.eye(3).ravel() / size, np.zeros(3)]))
    np.testing.assert_allclose(large.hessian_diagonal()[:9], 1e60 * small.hessian_diagonal()[:9], rtol=1e-5)


def test_rows_too_flat_for_float32_are_fitted_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = drawn(400, 10, 1.0, 27.0)
    z, labels = z[:100], labels[:100]
    whole = calibrators.fit(z, labels, "matrix")
    monkeypatch.setattr(multinomial, "MANY", 1)
    monkeypatch.setattr(multinomial, "FALL", 0.0)
    np.testing.assert_allclose(calibrators.fit(z, labels, "matrix")(z), whole(z), atol=1e-5)


def test_a_loss_that_rises_by_rounding_does_not_end_the_search() -> None:
    class Rounded:
        """theta^2 / 2 + 1, with the loss rounded up a little more each time, and steps that leave a tenth."""

        calls = 0

        def value_and_gradient(self, theta_P: Array) -> tuple[float, Array]:
            self.calls += 1
            return 1.0 + 3.3e-16 * self.calls + float(theta_P @ theta_P) / 2, theta_P

        def hessian_times(self, direction_P: Array) -> Array:
            return direction_P / 0.9

        def hessian_diagonal(self) -> Array:
            return np.full(1, 1 / 0.9)

    (theta,) = minimise(Rounded(), np.array([1.5e-8]), -np.inf, np.inf, "x")
    assert abs(theta) <= 1e-9


def test_newton_says_when_numbers_leave_float64() -> None:
    class Overflowing:
        def value_and_gradient(self, theta_P: Array) -> tuple[float, Array]:
            return 1.0, np.ones(2)

        def hessian_times(self, direction_P: Array) -> Array:
            return np.full(2, np.nan)

        def hessian_diagonal(self) -> Array:
            return np.ones(2)

    with pytest.raises(FitError, match="left the range of float64"):
        minimise(Overflowing(), np.zeros(2), -1.0, 1.0, "a test")
