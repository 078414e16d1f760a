"""Fits of many parameters: the preconditioner is its docstring's formula, and shortcuts leave the minimum alone."""

from __future__ import annotations

import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest

from tests.calibrators.test_affine import biased
from tests.calibrators.test_calibrators import Array, Labels
from trueodds import calibrators
from trueodds.calibrators import FitError
from trueodds.calibrators.fitting import multinomial, newton
from trueodds.calibrators.fitting.kronecker import LEAST_CURVATURE, KroneckerInverse
from trueodds.calibrators.fitting.multinomial import MOST_CLASSES, Multinomial
from trueodds.calibrators.fitting.newton import minimise
from trueodds.sums.inputs import softmax

PENALISED = ["matrix", "structured_matrix", "dirichlet"]
CLASSES = 4


def penalty(classes: int, off_diagonal: float) -> Array:
    matrix = np.full((classes, classes), off_diagonal)
    np.fill_diagonal(matrix, 0.02)
    return np.append(matrix, np.full(classes, 0.03))


def exact_hessian(x: Array, p: Array, penalty_P: Array) -> Array:
    """Hessian of the loss, entry by entry: of W_ij and W_kl it is the mean of (p_i [i = k] - p_i p_k) x_j x_l.

    A bias is a weight of a feature that is always 1.
    """
    classes = p.shape[1]
    names = [(i, j) for i in range(classes) for j in range(classes)] + [(i, classes) for i in range(classes)]
    hessian = np.zeros((len(names), len(names)))
    for row, share in zip(np.column_stack([x, np.ones(len(x))]), p, strict=True):
        for a, (i, j) in enumerate(names):
            for b, (k, m) in enumerate(names):
                hessian[a, b] += (share[i] * (i == k) - share[i] * share[k]) * row[j] * row[m] / len(x)
    return hessian + np.diag(2 * penalty_P)


def rows_and_shares(is_constant: bool) -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    x, p = rng.normal(size=(30, CLASSES)), softmax(rng.normal(size=(30, CLASSES)))
    return x, np.repeat(p[:1], 30, axis=0) if is_constant else p


def test_with_equal_probabilities_the_blocks_are_the_exact_hessian() -> None:
    x, p = rows_and_shares(is_constant=True)
    penalty_P = penalty(CLASSES, 0.02)  # one ridge for all of W: the Kronecker product then has that of the diagonal
    hessian = exact_hessian(x, p, penalty_P)
    weights = CLASSES * CLASSES
    residual = np.random.default_rng(2).normal(size=weights + CLASSES)
    residual[: weights : CLASSES + 1] = 0
    found = KroneckerInverse([(x[:10], p[:10]), (x[10:], p[10:])], penalty_P)(residual)
    off = np.flatnonzero(~np.eye(CLASSES, dtype=bool).ravel())
    np.testing.assert_allclose(
        found[off], np.linalg.solve(hessian[:weights, :weights], residual[:weights])[off], rtol=1e-8
    )
    exact = np.append(np.arange(0, weights, CLASSES + 1), np.arange(weights, weights + CLASSES))
    ridge = np.diag(LEAST_CURVATURE * np.ones(2 * CLASSES))
    expected = np.linalg.solve(hessian[np.ix_(exact, exact)] + ridge, residual[exact])
    np.testing.assert_allclose(found[exact], expected, rtol=1e-4)


def test_the_block_of_the_diagonal_is_exact_for_any_probabilities() -> None:
    x, p = rows_and_shares(is_constant=False)
    penalty_P = penalty(CLASSES, 0.5)
    hessian = exact_hessian(x, p, penalty_P)
    inverse = KroneckerInverse([(x, p)], penalty_P)
    weights = CLASSES * CLASSES
    exact = np.append(np.arange(0, weights, CLASSES + 1), np.arange(weights, weights + CLASSES))
    residual = np.zeros(weights + CLASSES)
    residual[exact] = np.random.default_rng(3).normal(size=len(exact))
    np.testing.assert_allclose(
        inverse(residual)[exact], np.linalg.solve(hessian[np.ix_(exact, exact)], residual[exact]), rtol=1e-4
    )
    whole = np.array([inverse(column) for column in np.eye(weights + CLASSES)])
    np.testing.assert_allclose(whole, whole.T, atol=1e-10)
    assert np.linalg.eigvalsh(whole).min() > 0


def test_the_products_are_the_slope_of_the_gradient_and_the_gradient_that_of_the_loss() -> None:
    z, labels = biased(80, CLASSES)
    problem = Multinomial(z, labels, "full", penalty(CLASSES, 0.1))
    rng = np.random.default_rng(4)
    theta, direction = problem.start_P + rng.normal(0, 0.3, 20), rng.normal(size=20)
    up, down = (problem.value_and_gradient(theta + step * direction) for step in (1e-5, -1e-5))
    gradient = problem.value_and_gradient(theta)[1]
    assert (up[0] - down[0]) / 2e-5 == pytest.approx(gradient @ direction, rel=1e-7)
    np.testing.assert_allclose(problem.hessian_times(direction), (up[1] - down[1]) / 2e-5, rtol=1e-5, atol=1e-7)
    p = softmax(z @ theta[:-CLASSES].reshape(CLASSES, CLASSES).T + theta[-CLASSES:])
    np.testing.assert_allclose(
        problem.hessian_times(direction), exact_hessian(z, p, problem.penalty_P) @ direction, rtol=1e-5, atol=1e-7
    )


def ill_scaled(rows: int = 2_000, classes: int = 12, is_periodic: bool = False) -> tuple[Array, Labels]:
    """Log-probabilities have a mean far from 0, and some classes are alike."""
    rng = np.random.default_rng(7)
    labels = np.arange(rows) % classes if is_periodic else rng.integers(0, classes, rows)
    near = 3 * np.eye(classes) + 1.5 * np.eye(classes)[np.arange(classes) ^ 1]
    z: Array = near[labels] + rng.normal(0, 1.2, (rows, classes))
    return z, labels


@pytest.mark.parametrize("name", PENALISED)
def test_the_preconditioner_saves_products_and_leaves_the_fit_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    products = []
    multiply = Multinomial.hessian_times

    def counted(problem: Multinomial, direction_P: Array) -> Array:
        products.append(1)
        return multiply(problem, direction_P)

    monkeypatch.setattr(Multinomial, "hessian_times", counted)
    z, labels = ill_scaled()
    kind = calibrators.registry.get(name)
    short = kind.fit(z, labels)
    few = len(products)
    monkeypatch.setattr(multinomial, "KRONECKER", 1 << 30)
    products.clear()
    whole = kind.fit(z, labels)
    assert few < len(products)
    np.testing.assert_allclose(short(z), whole(z), atol=1e-6)


@pytest.mark.full
def test_a_preconditioner_that_fails_gives_way_to_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows, and a column of another scale: the blocks alone reach no minimum."""
    rng = np.random.default_rng(1)
    rows, classes = 20, 12
    labels = np.arange(rows) % classes
    z: Array = np.eye(classes)[labels] * rng.gamma(2, 0.5, (rows, 1)) + rng.normal(0, 1.2, (rows, classes))
    z[:, 3] *= 1e3
    diagonal = calibrators.Dirichlet.fit(z, labels, off_diagonal=1.0, intercept=1.0)
    monkeypatch.setattr(multinomial, "KRONECKER", 1)
    found = calibrators.Dirichlet.fit(z, labels, off_diagonal=1.0, intercept=1.0)
    np.testing.assert_allclose(found(z), diagonal(z), atol=1e-6)


@pytest.mark.parametrize(("classes", "is_used"), [(3, False), (9, False), (10, True)])
def test_the_diagonal_is_the_preconditioner_of_few_classes(classes: int, is_used: bool) -> None:
    """With a column of another scale, 150,000 rows of three classes took 35 times as long with the blocks."""
    z, labels = biased(17_000, classes)
    problem = Multinomial(z, labels, "full", penalty(classes, 0.1))
    problem.value_and_gradient(problem.start_P)
    assert (problem._inverse() is not None) is is_used


def test_with_fewer_rows_than_classes_no_matrix_is_factored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The penalty is then most of the Hessian. 1,000 classes with 600 rows took seven times as long with the blocks."""
    monkeypatch.setattr(multinomial, "KroneckerInverse", lambda *_: pytest.fail("factored"))
    monkeypatch.setattr(multinomial, "KRONECKER", 1)
    z, labels = ill_scaled(40, 60)
    short = calibrators.StructuredMatrix.fit(z, labels)
    monkeypatch.setattr(multinomial, "KroneckerInverse", KroneckerInverse)
    monkeypatch.setattr(Multinomial, "_is_mostly_penalty", lambda _: False)
    np.testing.assert_allclose(short(z), calibrators.StructuredMatrix.fit(z, labels)(z), atol=1e-6)


@pytest.mark.parametrize("is_periodic", [False, True])
@pytest.mark.parametrize("name", PENALISED)
def test_a_fit_of_some_rows_is_only_a_start(name: str, is_periodic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = ill_scaled(is_periodic=is_periodic)
    kind = calibrators.registry.get(name)
    whole = kind.fit(z, labels)
    monkeypatch.setattr(multinomial, "SEVERAL", 1)
    np.testing.assert_allclose(kind.fit(z, labels)(z), whole(z), atol=1e-6)


def test_no_first_fit_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = ill_scaled()
    whole = calibrators.registry.get("structured_matrix").fit(z, labels)
    monkeypatch.setattr(multinomial, "SEVERAL", 1)

    def fails_on_few(problem: Multinomial, *arguments: object) -> Array:
        if len(problem.labels_N) < len(labels):
            raise FitError("no minimum")
        return minimise(problem, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(multinomial, "minimise", fails_on_few)
    np.testing.assert_allclose(calibrators.registry.get("structured_matrix").fit(z, labels)(z), whole(z), atol=1e-6)


def test_some_rows_guide_the_steps_only_under_a_strong_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean loss that they reach is that of all rows, to 1e-5 where 1e-4 is promised."""
    z, labels = ill_scaled()
    x = z - z.mean(axis=1, keepdims=True)
    monkeypatch.setattr(multinomial, "SEVERAL", 1)
    for strength, guiding in ((1e-4, None), (5.0, 500)):
        penalty_P = penalty(12, strength)
        losses = []
        for many in (1 << 30, 1):
            monkeypatch.setattr(multinomial, "MANY", many)
            problem = Multinomial(x, labels, "full", penalty_P)
            weights, bias_C = problem.solve(-np.inf, np.inf, "a test")
            losses.append(problem.value_and_gradient(np.append(weights, bias_C))[0])
        assert problem._guiding == (guiding or len(labels))
        assert losses[1] == pytest.approx(losses[0], abs=1e-5)


def long_tailed(seed: int, rows: int = 1_000, classes: int = 12) -> tuple[Array, Labels]:
    """Most rows belong to one class, and a quarter of the rows has one or two of some others."""
    rng = np.random.default_rng(seed)
    share = (1 + np.arange(classes)) ** -3.0
    labels = rng.choice(classes, rows, p=share / share.sum())
    labels[:classes] = np.arange(classes)
    z: Array = 8 * np.eye(classes)[labels] * rng.gamma(2, 0.5, (rows, 1)) + rng.normal(0, 1.2, (rows, classes))
    return z, np.where(rng.random(rows) < 0.2, (z + 2 * rng.gumbel(size=z.shape)).argmax(axis=1), labels)


@pytest.mark.parametrize("seed", [0, 3, 5])
@pytest.mark.parametrize(("diagonal", "guiding"), [(0.0, 1_000), (1e-4, 250)])
def test_rows_that_mislead_do_not_end_the_search(
    seed: int, diagonal: float, guiding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The diagonal has a weak penalty or none, and a quarter of the rows does not determine it."""
    z, labels = long_tailed(seed)
    x = z - z.mean(axis=1, keepdims=True)
    penalty_P = penalty(12, 5.0)
    penalty_P[:144:13] = diagonal
    penalty_P[144:] = 1e-3
    monkeypatch.setattr(multinomial, "SEVERAL", 1)
    losses = []
    for many in (1 << 30, 1):
        monkeypatch.setattr(multinomial, "MANY", many)
        problem = Multinomial(x, labels, "full", penalty_P)
        first = problem._guiding
        weights, bias_C = problem.solve(-np.inf, np.inf, "a test")
        losses.append(problem.value_and_gradient(np.append(weights, bias_C))[0])
    assert first == guiding and problem._guiding == len(labels)
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


class OneSlope:
    """Mean NLL of y in {-1, 1} by the sigmoid of slope * x, where x is 1e-7 times y in 80% of the rows."""

    def value_and_gradient(self, theta_P: Array) -> tuple[float, Array]:
        right = 1e-7 * theta_P[0]
        self.p = 1 / (1 + np.exp(-right))
        return float(np.log1p(np.exp(-right)) + 0.2 * right), np.array([1e-7 * (self.p - 0.8)])

    def hessian_times(self, direction_P: Array) -> Array:
        return self.hessian_diagonal() * direction_P

    def hessian_diagonal(self) -> Array:
        return np.array([1e-14 * self.p * (1 - self.p)])


@pytest.mark.parametrize(("steps", "is_enough"), [(1, False), (200, True)])
def test_a_search_that_ends_early_is_an_error_whatever_the_scale_of_the_features(
    steps: int, is_enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of small features are below 1e-6 everywhere, also far from the minimum."""
    monkeypatch.setattr(newton, "ITERATIONS", steps)
    with nullcontext() if is_enough else pytest.raises(FitError, match="no minimum within reach"):
        slope = minimise(OneSlope(), np.zeros(1), -np.inf, np.inf, "a test")
        assert slope[0] == pytest.approx(np.log(4) * 1e7, rel=0.05)


def test_many_classes_take_no_matrix_that_memory_does_not_hold() -> None:
    """The vocabulary of a language model has 100,000 words; only a fit of a full matrix needs one."""
    logits, labels = np.zeros((2, MOST_CLASSES + 1)), np.array([0, 1])
    for name in ("structured_matrix", "matrix", "dirichlet"):
        with pytest.raises(FitError, match=rf"20,001 classes make a matrix of 3 GiB; {name} allows up to 20,000"):
            calibrators.fit(logits, labels, name)
    tracemalloc.start()
    Multinomial(logits, labels, "diagonal")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * logits.nbytes
