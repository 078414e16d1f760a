"""Platt scaling of independent labels: slow twins, gradients, one label, shrinkage, files, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import trueodds
from trueodds import calibrators
from trueodds.calibrators import FitError, MultilabelPlatt, Platt
from trueodds.calibrators.affine.label_platt import cross_fit
from trueodds.calibrators.affine.label_shrinkage import PRIOR_SPREAD, Shrinkage
from trueodds.calibrators.affine.label_slopes import slope_intervals
from trueodds.cli import COMMANDS, main
from trueodds.errors import ConfigError
from trueodds.files import FileError


def rows(n: int = 120, labels: int = 3, seed: int = 0, unknown: float = 0.3) -> tuple[Any, Any]:
    """Logits that are too large, with labels of different slopes and offsets."""
    rng = np.random.default_rng(seed)
    z_NL = rng.normal(-1, 2, (n, labels))
    slope_L, offset_L = np.exp(rng.normal(-0.7, 0.4, labels)), rng.normal(0, 0.5, labels)
    truth_NL = (rng.random(z_NL.shape) < expit(slope_L * z_NL + offset_L)).astype(float)
    truth_NL[rng.random(z_NL.shape) < unknown] = np.nan
    return z_NL, truth_NL


def slow_loss(z_NL: Any, truth_NL: Any, theta: Any, spread: Any) -> float:
    """The loss of the docstring, in loops. theta: ln a, b, then ln a_l and b_l of each label."""
    known = [y for y in truth_NL.reshape(-1).tolist() if y == y]
    hits, misses = sum(known), len(known) - sum(known)
    total = 0.0
    for label in range(z_NL.shape[1]):
        log_slope, offset = theta[2 + 2 * label], theta[3 + 2 * label]
        for z, y in zip(z_NL[:, label].tolist(), truth_NL[:, label].tolist(), strict=True):
            if y == y:
                t, eta = ((hits + 1) / (hits + 2) if y else 1 / (misses + 2)), math.exp(log_slope) * z + offset
                total += math.log1p(math.exp(eta)) - t * eta
        for k, value in enumerate((log_slope, offset)):
            total += (value - theta[k]) ** 2 / (2 * spread[k] ** 2)
    return total


def test_the_fit_is_the_minimum_of_the_slow_loss() -> None:
    z_NL, truth_NL = rows(40)
    problem, spread = Shrinkage(z_NL, truth_NL), np.array([0.2, 0.5])
    theta_L2, centre = problem.minimise(np.zeros((3, 2)), np.zeros(2), spread)
    found = np.concatenate([centre, theta_L2.reshape(-1)])
    assert problem.total_loss(theta_L2, centre, spread) == pytest.approx(slow_loss(z_NL, truth_NL, found, spread))
    least = minimize(lambda theta: slow_loss(z_NL, truth_NL, theta, spread), np.zeros(8), tol=1e-12)
    assert found == pytest.approx(least.x, abs=1e-4)
    assert centre == pytest.approx(theta_L2.mean(axis=0), abs=1e-5)  # the optimum of the shared parameters


def test_the_gradient_is_that_of_differences() -> None:
    problem = Shrinkage(*rows(60, seed=1))
    theta_L2 = np.random.default_rng(0).normal(0, 0.5, (3, 2))
    gradient_L2, information_L22 = problem.derivatives(theta_L2)
    for label, k in np.ndindex(3, 2):
        step = np.zeros((3, 2))
        step[label, k] = 1e-6
        difference = (problem.loss(theta_L2 + step)[label] - problem.loss(theta_L2 - step)[label]) / 2e-6
        assert gradient_L2[label, k] == pytest.approx(difference, rel=1e-6)
    second = (problem.derivatives(theta_L2 + step)[0] - problem.derivatives(theta_L2 - step)[0]) / 2e-6
    assert information_L22[2, 1, 1] == pytest.approx(second[2, 1], rel=1e-5)


def test_the_spreads_are_a_fixed_point() -> None:
    problem = Shrinkage(*rows(200, 8, seed=2))
    found = problem.solve()
    assert problem.update(found.theta_L2, found.centre, found.spread) == pytest.approx(found.spread, rel=0.02)
    covariance = [np.linalg.inv(h + np.diag(found.spread**-2.0)) for h in problem.derivatives(found.theta_L2)[1]]
    squares = [(theta - found.centre) ** 2 + np.diag(c) for theta, c in zip(found.theta_L2, covariance, strict=True)]
    twin = np.sqrt((PRIOR_SPREAD**2 + sum(squares)) / 9)
    assert problem.update(found.theta_L2, found.centre, found.spread) == pytest.approx(twin)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_label_is_platt_scaling(seed: int) -> None:
    z_NL, truth_NL = rows(150, 1, seed, unknown=0.0)
    one = MultilabelPlatt.fit(z_NL, truth_NL)
    binary = calibrators.fit(np.hstack([np.zeros_like(z_NL), z_NL]), truth_NL[:, 0].astype(int), "platt")
    assert isinstance(binary, Platt)
    assert np.asarray(one.slope_L)[0] == pytest.approx(np.asarray(binary.slope_C)[1], rel=1e-4)
    assert np.asarray(one.offset_L)[0] == pytest.approx(np.asarray(binary.offset_C)[1], rel=1e-3)
    assert (one.slope_spread, one.offset_spread) == (0.0, 0.0)


def test_labels_with_few_rows_stay_near_the_shared_curve() -> None:
    z_NL, truth_NL = rows(2_000, 10, seed=3, unknown=0.0)
    few = truth_NL.copy()
    few[15:, 4], few[:, 5] = np.nan, np.nan
    many, found = MultilabelPlatt.fit(z_NL, truth_NL), MultilabelPlatt.fit(z_NL, few)
    slope_L = np.asarray(found.slope_L)
    assert slope_L[5] == pytest.approx(found.slope, rel=1e-4)
    assert np.asarray(found.offset_L)[5] == pytest.approx(found.offset, abs=1e-4)
    assert abs(math.log(slope_L[4] / found.slope)) < abs(math.log(np.asarray(many.slope_L)[4] / many.slope))
    assert np.delete(slope_L, [4, 5]) == pytest.approx(np.delete(np.asarray(many.slope_L), [4, 5]), rel=0.03)
    assert found.warnings == ("label 5 without a known truth: the shared curve is used.",)


def test_alike_labels_are_pooled_and_unlike_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    z_NL = rng.normal(-1, 2, (400, 30))
    alike = MultilabelPlatt.fit(z_NL, (rng.random(z_NL.shape) < expit(z_NL / 2)) * 1)
    apart = MultilabelPlatt.fit(z_NL, (rng.random(z_NL.shape) < expit(z_NL * np.geomspace(0.2, 1.5, 30))) * 1)
    assert alike.slope_spread < 0.12 and apart.slope_spread > 0.45
    assert alike.slope == pytest.approx(0.5, abs=0.03)


def test_separable_and_turned_labels_stay_finite_with_a_warning() -> None:
    z_NL = np.random.default_rng(0).normal(0, 2, (300, 1))
    steep, turned = (MultilabelPlatt.fit(z_NL, truth_NL * 1.0) for truth_NL in (z_NL > 0, z_NL < 0))
    assert np.isfinite(steep(z_NL)).all() and np.isfinite(turned(z_NL)).all()
    assert "slope of 0" in turned.warnings[0] and turned(z_NL) == pytest.approx(0.5, abs=0.1)


def test_small_logits_get_a_warning_that_names_their_size() -> None:
    z_NL, truth_NL = rows(2000)
    (warning,) = MultilabelPlatt.fit(z_NL / 100, truth_NL).warnings
    assert "or are too small: multiply them by a constant" in warning
    assert not MultilabelPlatt.fit(z_NL, truth_NL).warnings


def test_it_is_saved_exactly(tmp_path: Path) -> None:
    z_NL, truth_NL = rows()
    fitted = MultilabelPlatt.fit(z_NL, truth_NL, classes=["a", "b", "c"])
    fitted.save(tmp_path / "calibrator.json")
    restored = MultilabelPlatt.from_json(json.loads((tmp_path / "calibrator.json").read_text()))
    assert restored == fitted and hash(restored) == hash(fitted) and restored.labels == ("a", "b", "c")
    assert np.array_equal(restored.predict_proba(z_NL), fitted(z_NL))


def test_cross_fits_do_not_see_their_rows() -> None:
    z_NL, truth_NL = rows(60)
    p_NL = cross_fit(z_NL, truth_NL, folds=3)
    inside_N = np.random.default_rng(0).permutation(60) % 3 == 1
    twin = MultilabelPlatt.fit(z_NL[~inside_N], truth_NL[~inside_N])(z_NL[inside_N])
    assert np.array_equal(p_NL[inside_N], twin)


@pytest.mark.parametrize(
    ("z", "labels", "words"),
    [
        ([[0.0, np.inf]], [[0, 1]], r"logits\[0, 1\] is inf"),
        (np.linspace(0.01, 0.99, 40).reshape(20, 2), np.eye(2)[[0, 1] * 10], "as probabilities do; pass scipy"),
        ([[1.0, 2.0]], [[0, 2]], r"labels\[0, 1\] is 2; allowed are 0, 1 and NaN"),
        ([[1.0, 2.0]], [[1, np.nan]], "every known truth is true"),
        ([[1.0, 2.0]], [[0, 0]], "every known truth is false"),
    ],
)
def test_bad_rows(z: Any, labels: Any, words: str) -> None:
    with pytest.raises((ValueError, FitError), match=words):
        MultilabelPlatt.fit(z, labels)


def test_other_refusals() -> None:
    z_NL, truth_NL = rows(50)
    fitted = MultilabelPlatt.fit(z_NL, truth_NL)
    with pytest.raises(ValueError, match="was fitted on 3 labels"):
        fitted(z_NL[:, :2])
    with pytest.raises(ConfigError, match="classes has 1 names for 3 columns"):
        MultilabelPlatt.fit(z_NL, truth_NL, classes=["a"])
    with pytest.raises(ValueError, match="folds is 1"):
        cross_fit(z_NL, truth_NL, folds=1)
    tree = fitted.to_json()
    for change, words in (
        ({"slope_L": [1.0, -1.0, 1.0]}, "allowed are numbers above 0"),
        ({"offset_L": [1.0]}, "offset_L has shape"),
        ({"slope": "x"}, "slope is 'x'"),
        ({"color": 1}, "cannot be restored"),
    ):
        with pytest.raises(ValueError, match=words):
            MultilabelPlatt.from_json(tree | change)


def test_fit_and_load_are_the_public_doors(tmp_path: Path) -> None:
    z_NL, truth_NL = rows()
    fitted = trueodds.fit(z_NL, truth_NL, multilabel=True, classes=["a", "b", "c"])
    assert fitted == MultilabelPlatt.fit(z_NL, truth_NL, classes=["a", "b", "c"])
    fitted.save(path := tmp_path / "calibrator.json")
    assert trueodds.load(path) == fitted
    with pytest.raises(ValueError, match="is for independent labels, not for classes"):
        calibrators.from_json(fitted.to_json())
    with pytest.raises(ConfigError, match="method is 'beta' with multilabel=True"):
        trueodds.fit(z_NL, truth_NL, "beta", multilabel=True)
    with pytest.raises(ConfigError, match=r"resolution is 0\.01 with multilabel=True"):
        trueodds.fit(z_NL, truth_NL, multilabel=True, resolution=0.01)
    with pytest.raises(ConfigError, match="unknown option with multilabel=True 'folds'"):
        trueodds.fit(z_NL, truth_NL, multilabel=True, folds=3)
    with pytest.raises(ConfigError, match="multilabel is 1"):
        trueodds.fit(z_NL, truth_NL, multilabel=1)
    with pytest.raises(ConfigError, match="for independent yes/no labels pass multilabel=True"):
        trueodds.fit(z_NL, np.eye(3)[[0, 1, 2] * 40])
    path.write_text(json.dumps(fitted.to_json() | {"slope_L": []}))
    with pytest.raises(FileError, match="holds no valid calibrator"):
        trueodds.load(path)


def saved(path: Path, z_NL: Any, truth_NL: Any) -> Path:
    names = ["a", "b", "c"]
    lines = [",".join([*("z_" + name for name in names), *("y_" + name for name in names)])]
    for z_L, truth_L in zip(z_NL.tolist(), truth_NL.tolist(), strict=True):
        lines.append(",".join([*map(repr, z_L), *("" if y != y else f"{y:.0f}" for y in truth_L)]))
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*words: object) -> int:
    return main("trueodds", COMMANDS, ["calibrate", *map(str, words)])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    z_NL, truth_NL = rows(400)
    path, out = saved(tmp_path / "rows.csv", z_NL, truth_NL), tmp_path / "out"
    assert run(path, "--multi-label", "--out", out) == 0
    text = capsys.readouterr().out
    assert trueodds.load(out / "calibrator.json") == MultilabelPlatt.fit(z_NL, truth_NL, classes=["a", "b", "c"])
    after = trueodds.report(cross_fit(z_NL, truth_NL), truth_NL, multilabel=True, classes=["a", "b", "c"])
    before = trueodds.report(expit(z_NL), truth_NL, multilabel=True, classes=["a", "b", "c"])
    assert "measured in 5 folds of whole rows" in text and after.reading in text
    assert f"{before.whole.nll:.4f}" in text and f"{after.whole.nll:.4f}" in text
    assert (after.whole.nll or 0) < (before.whole.nll or 0)
    assert after.reading.partition(":")[0] in (out / "report-after.html").read_text()

    fresh, fresh_truth = rows(300, seed=0)
    assert run(path, "--multi-label", "--test", saved(tmp_path / "test.csv", fresh, fresh_truth), "--out", out) == 0
    assert "measured on the 300 rows" in capsys.readouterr().out


def test_arrays_of_logits_and_probabilities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    z_NL, truth_NL = rows(200)
    np.savez(tmp_path / "both.npz", probabilities=expit(z_NL), logits=2 * z_NL, labels=truth_NL)
    np.save(tmp_path / "z.npy", z_NL)
    np.save(tmp_path / "y.npy", truth_NL)
    found = []
    for words in (["both.npz"], ["both.npz", "--probabilities"], ["z.npy", "--labels", str(tmp_path / "y.npy")]):
        assert run(tmp_path / words[0], *words[1:], "--multi-label", "--out", tmp_path) == 0
        found.append(trueodds.load(tmp_path / "calibrator.json"))
        assert ("converted to logits" in capsys.readouterr().out) == ("--probabilities" in words)
    of_double, of_p, of_z = (np.asarray(one.slope_L) for one in found)  # type: ignore[union-attr]
    assert of_p == pytest.approx(of_z, rel=1e-6) and (of_double < of_z).all()


def test_probabilities_whose_logits_lie_between_0_and_1(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    p_N = rng.choice([0.55, 0.6, 0.7], 200)
    lines = [f"{p},{int(y)}\n" for p, y in zip(p_N.tolist(), rng.random(200) < p_N, strict=True)]
    (path := tmp_path / "dull.csv").write_text("p_a,y_a\n" + "".join(lines))
    assert run(path, "--multi-label", "--out", tmp_path) == 0
    assert run(path, "--multi-label", "--test", path, "--out", tmp_path) == 0


@pytest.mark.parametrize(
    ("truths", "words"),
    [([1, 0, 1], "3 rows cannot be split into 5 folds"), ([1, *[0] * 8], r"of 5, every known truth is false; a fit")],
)
def test_too_few_rows_for_folds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], truths: list[int], words: str
) -> None:
    (path := tmp_path / "few.csv").write_text("z_a,y_a\n" + "".join(f"{k}.5,{y}\n" for k, y in enumerate(truths)))
    assert run(path, "--multi-label", "--out", tmp_path) == 1
    message = capsys.readouterr().err
    assert words in message and "--test" in message
    assert run(path, "--multi-label", "--test", path, "--out", tmp_path) == 0


def test_probabilities_of_0_and_1_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    p_NL = expit(rng.normal(0, 2, (200, 2)))
    truth_NL = (rng.random((200, 2)) < p_NL) * 1.0
    p_NL[:3, 0], truth_NL[:3, 0], p_NL[0, 1], truth_NL[0, 1] = 0, [0, 0, 1], 1, 1
    np.savez(path := tmp_path / "a.npz", probabilities=p_NL, labels=truth_NL)
    assert run(path, "--multi-label", "--out", tmp_path) == 0
    assert "Probabilities of 0 and 1 (4 here) count as 1e-12" in capsys.readouterr().out
    report = trueodds.report(p_NL, truth_NL, multilabel=True)
    assert "ruled out what happened: 1 of 400 known truths" in report.reading and "708.4 nats" in report.reading
    p_NL[2, 0] = 0.1
    assert "ruled out" not in trueodds.report(p_NL, truth_NL, multilabel=True).reading
    assert "ruled out" not in trueodds.report(p_NL.round(2), truth_NL, multilabel=True, resolution=0.01).reading


def test_a_fit_that_does_not_help_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(2)
    z_NL = rng.normal(0, 1.5, (400, 3))
    calibrated = saved(tmp_path / "good.csv", z_NL, (rng.random(z_NL.shape) < expit(z_NL)) * 1.0)
    for path, is_kept in ((calibrated, True), (saved(tmp_path / "bad.csv", *rows(400)), False)):
        assert run(path, "--multi-label", "--out", tmp_path) == 0
        assert ("keep the model's own probabilities" in capsys.readouterr().out) == is_kept


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--candidates", "platt"], "--candidates is given beside --multi-label"),
        (["--positive", "a"], "--positive is given beside --multi-label"),
        (["--conformal", "lac"], "--conformal is given beside --multi-label"),
        (["--label", "x"], "--label x is given beside --multi-label"),
        (["--classes", "a,q"], "has no column z_q"),
        (["--test", "other.csv"], "other.csv has no column z_b"),
    ],
)
def test_bad_options(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    path = saved(tmp_path / "rows.csv", *rows(60))
    (tmp_path / "other.csv").write_text("z_a,y_a\n1,1\n-1,0\n")
    words = [str(tmp_path / word) if word == "other.csv" else word for word in words]
    assert run(path, "--multi-label", *words, "--out", tmp_path) == 1
    assert message in capsys.readouterr().err
    assert run(path, "--classes", "a") == 1 and "add --multi-label" in capsys.readouterr().err


@pytest.mark.parametrize(("size", "shift"), [(-1, 0), (0.01, 0), (1, 100), (1, -60), (1e4, 0), (1e-4, 0)])
@pytest.mark.parametrize("labels", [1, 3])
def test_turned_tiny_large_and_shifted_logits_reach_the_optimum(size: float, shift: float, labels: int) -> None:
    z_NL, truth_NL = rows(300, labels, seed=5)
    z_NL = size * z_NL + shift
    problem = Shrinkage(z_NL, truth_NL)
    found = problem.solve()

    def value_and_gradient(theta: Any) -> Any:
        theta_L2 = theta.reshape(-1, 2)
        centre = theta_L2.mean(axis=0)
        gradient_L2 = problem.derivatives(theta_L2)[0] + (theta_L2 - centre) / found.spread**2
        return problem.total_loss(theta_L2, centre, found.spread), gradient_L2.reshape(-1)

    ours = found.theta_L2.reshape(-1)
    limits = [(problem.low, problem.high), (None, None)] * labels
    least = minimize(value_and_gradient, ours, jac=True, method="L-BFGS-B", bounds=limits)
    assert value_and_gradient(ours)[0] == pytest.approx(least.fun, abs=1e-3)
    known_NL, p_NL = ~np.isnan(truth_NL), MultilabelPlatt.fit(z_NL, truth_NL)(z_NL)
    assert (p_NL - truth_NL)[known_NL].mean() == pytest.approx(0, abs=0.01)


def test_the_intervals_of_slopes_are_those_of_a_logistic_regression() -> None:
    """The same maximum by another optimiser and the same standard error; coverage in a small simulation."""
    rng, covered = np.random.default_rng(0), 0
    z_NL = rng.normal(-3, 2, (300, 2))
    truth_NL = (rng.random(z_NL.shape) < expit(0.4 * z_NL + [1, 0])).astype(float)
    truth_NL[rng.random(z_NL.shape) < 0.3] = np.nan
    lower_L, upper_L = slope_intervals(z_NL, truth_NL)
    for label in range(2):
        known_N = ~np.isnan(truth_NL[:, label])
        z_M, y_M = z_NL[known_N, label], truth_NL[known_N, label]

        def loss(theta: Any, z_M: Any = z_M, y_M: Any = y_M) -> float:
            eta_M = theta[0] * z_M + theta[1]
            return float((np.logaddexp(0, eta_M) - y_M * eta_M).sum())

        best = minimize(loss, [0.1, 0.0], method="BFGS", options={"gtol": 1e-6})
        p_M = expit(best.x[0] * z_M + best.x[1])
        design = np.stack([z_M, np.ones(len(z_M))], axis=1)
        error = np.sqrt(np.linalg.inv((design * (p_M * (1 - p_M))[:, None]).T @ design)[0, 0])
        assert (lower_L[label] + upper_L[label]) / 2 == pytest.approx(best.x[0], abs=1e-3)
        assert (upper_L[label] - lower_L[label]) / 2 == pytest.approx(1.96 * error, rel=1e-2)
    for _ in range(100):
        z_NL = rng.normal(0, 1.5, (150, 1))
        low, high = slope_intervals(z_NL, (rng.random((150, 1)) < expit(0.5 * z_NL - 1)).astype(float))
        covered += bool(low[0] <= 0.5 <= high[0])
    assert covered >= 90


def test_a_fit_names_labels_that_the_logits_do_not_tell() -> None:
    rng = np.random.default_rng(1)
    z_NL = rng.normal(0, 2, (600, 3))
    truth_NL = (rng.random(z_NL.shape) < expit(z_NL)).astype(float)
    assert MultilabelPlatt.fit(z_NL, truth_NL).warnings == ()
    swapped = MultilabelPlatt.fit(z_NL, truth_NL[:, [1, 0, 2]], classes=["a", "b", "c"]).warnings
    assert any(words.startswith("labels a, b with a slope whose 95% interval includes 0") for words in swapped)
    turned = MultilabelPlatt.fit(z_NL, np.column_stack([1 - truth_NL[:, 0], truth_NL[:, 1:]])).warnings
    assert turned == ("label 0 with a slope of 0: higher logits do not mean more true rows.",)
    few = truth_NL.copy()
    few[9:, 1] = np.nan  # too few rows to say anything
    told = MultilabelPlatt.fit(z_NL, few[:, [1, 0, 2]]).warnings
    assert [words[:8] for words in told if "interval" in words] == ["label 1 "]


@pytest.mark.parametrize("mean", [-200.0, 60.0])
def test_a_fit_says_that_logits_far_from_0_leave_no_slopes(mean: float) -> None:
    rng = np.random.default_rng(2)
    z_NL = rng.normal(0, 1, (400, 3))
    truth_NL = (rng.random(z_NL.shape) < expit(z_NL)).astype(float)
    assert "The logits lie far from 0" in MultilabelPlatt.fit(z_NL + mean, truth_NL).warnings[0]
    assert MultilabelPlatt.fit(z_NL - 4, truth_NL).warnings == ()
