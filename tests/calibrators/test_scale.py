"""Logits of any size: a factor on the logits is a factor on the temperature, or the fit warns."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.calibrators.test_calibrators import Array, Labels, drawn, ends, fitted, mean_nll
from trueodds import calibrators, metrics
from trueodds.calibrators.fitting import objectives
from trueodds.calibrators.fitting.objectives import WARM, Rows
from trueodds.calibrators.temperature import range_of
from trueodds.sums.inputs import softmax

FACTORS = (1e-6, 1 / 50, 200.0, 1e6)
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in calibrators.names() if name != "identity"),
    *(("temperature", {"objective": objective}) for objective in objectives.NAMES[1:]),
    ("ensemble_temperature", {"objective": "brier"}),
    ("isotonic", {"form": "pooled"}),
    ("histogram", {"form": "one_vs_rest", "binning": "mass"}),
    ("bbq", {"form": "one_vs_rest"}),
    ("spline", {"form": "one_vs_rest"}),
]
"""Every calibrator that is fitted, and its options that read the logits in another way."""


def cosines(n: int = 4000) -> tuple[Array, Labels]:
    """Cosine similarities: logits around .2 that differ by hundredths; the temperature is .01."""
    rng = np.random.default_rng(3)
    z = rng.normal(0.2, 0.02, (n, 10))
    return z, (z / 0.01 + rng.gumbel(size=z.shape)).argmax(axis=1)


def loss(calibrator: calibrators.Calibrator, z: Array, labels: Labels) -> float:
    return float(-np.log(np.maximum(calibrator(z)[np.arange(len(z)), labels], 1e-300)).mean())


@pytest.mark.parametrize("factor", FACTORS)
def test_a_factor_on_the_logits_is_a_factor_on_the_temperature(factor: float) -> None:
    z, labels = drawn(300, 5, 1.3)
    for options, close in (
        ({"shrinkage": 0.0}, 1e-9),
        ({"objective": "brier"}, 1e-9),
        ({"objective": "sb_ece"}, 1e-4),
        ({"objective": "sb_ece_label"}, 1e-4),
    ):
        one, other = (calibrators.fit(c * z, labels, "temperature", **options) for c in (1.0, factor))
        assert other.temperature == pytest.approx(factor * one.temperature, rel=close), options  # type: ignore[attr-defined]
        np.testing.assert_allclose(other(factor * z), one(z), atol=20 * close)
        assert not other.warnings


@pytest.mark.parametrize("objective", ["ece", "adaptive_ece"])
def test_the_published_grid_moves_by_powers_of_ten(objective: str) -> None:
    z, labels = drawn(300, 5, 1.3)
    one, *others = (
        calibrators.fit(c * z, labels, "temperature", objective=objective).temperature  # type: ignore[attr-defined]
        for c in (1.0, 1e-6, 1e-2, 1e6)
    )
    np.testing.assert_allclose(others, [1e-6 * one, 1e-2 * one, 1e6 * one], rtol=1e-12)


@pytest.mark.parametrize("factor", FACTORS)
def test_the_prior_of_two_errors_pulls_by_the_order_of_two_rows(factor: float) -> None:
    """It is the one term that knows the size; its pull is that of 2 rows or so among N."""
    for n in (200, 2000):
        z, labels = drawn(n, 5, 1.3)
        shrunk = fitted(factor * z, labels, 2.0).temperature
        assert shrunk == pytest.approx(factor * fitted(z, labels).temperature, rel=20 / n)


@pytest.mark.few(8)
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_every_calibrator_copes_with_the_size_or_says_so(name: str, options: dict[str, Any]) -> None:
    """Fresh rows: as good as at the size that it is made for, or a warning that names the temperature."""
    z, labels = drawn(4000, 5, 1.3, 2.5)
    rows, fresh = slice(0, 2000), slice(2000, None)
    usual = calibrators.fit(z[rows], labels[rows], name, **options)
    assert not any("logits' temperature is" in warning for warning in usual.warnings)
    best = loss(usual, z[fresh], labels[fresh])
    for factor in (200.0, 1 / 50):
        calibrator = calibrators.fit(factor * z[rows], labels[rows], name, **options)
        warned = [w for w in calibrator.warnings if "logits' temperature is" in w and "choose 'temperature'" in w]
        assert warned or loss(calibrator, factor * z[fresh], labels[fresh]) < best + 0.01, factor


def test_cosine_similarities_have_their_temperature() -> None:
    z, labels = cosines()
    rows, fresh = slice(0, 2000), slice(2000, None)
    truth = mean_nll(z[fresh], labels[fresh], 0.01)
    temperature = calibrators.fit(z[rows], labels[rows], "temperature")
    assert temperature.temperature == pytest.approx(0.01, rel=0.1)  # type: ignore[attr-defined]
    for method in ("temperature", "select", "vector"):
        calibrator = calibrators.fit(z[rows], labels[rows], method)
        assert loss(calibrator, z[fresh], labels[fresh]) < truth + 0.02
        assert metrics.ece(calibrator(z[fresh]), labels[fresh]) < 0.05
        assert not any("bound" in warning or "temperature is" in warning for warning in calibrator.warnings)
    large = calibrators.fit(20_000 * z[rows], labels[rows])
    assert loss(large, 20_000 * z[fresh], labels[fresh]) < truth + 0.02


@pytest.mark.parametrize("masked", [1, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_masked_classes_do_not_move_the_range(masked: int, dtype: type) -> None:
    """Logits of -1e6 say "never": T is that of the others, whatever their number. It was 1,000, and no choice left."""
    z, labels = drawn(2000, 4, 1.5)
    mask: Array = np.hstack([z, np.full((2000, masked + 3), -1e6)]).astype(dtype)
    alone, with_mask = (calibrators.fit(own, labels, "temperature") for own in (z, mask))
    assert with_mask.temperature == pytest.approx(alone.temperature, rel=1e-4)  # type: ignore[attr-defined]
    assert not any("stopped" in warning for warning in with_mask.warnings)
    brier = calibrators.fit(mask, labels, "temperature", objective="brier").temperature  # type: ignore[attr-defined]
    assert brier == pytest.approx(calibrators.fit(z, labels, "temperature", objective="brier").temperature, rel=1e-4)  # type: ignore[attr-defined]


def test_the_range_is_that_of_the_median_row() -> None:
    """Rows that say nothing, and up to half of the others at any size, do not move it; nor do reading parts of them."""
    z, labels = drawn(300, 4)
    usual = range_of(Rows(z, labels))
    assert usual == pytest.approx(ends(z), rel=1e-12)
    assert range_of(Rows(np.vstack([z, np.ones((900, 4))]), np.append(labels, np.zeros(900, int)))) == usual
    wild = z.copy()
    wild[:100] *= 1e12
    assert range_of(Rows(wild, labels))[0] < 3 * usual[0]
    many, labels = drawn(2 * WARM // 4, 4)
    assert range_of(Rows(many, labels)) == pytest.approx(ends(many[::2]), rel=1e-12)
    assert (
        range_of(Rows(np.ones((3, 2)), np.zeros(3, int)))[0] < 1 < range_of(Rows(np.ones((3, 2)), np.zeros(3, int)))[1]
    )


def test_the_ends_of_the_range_lose_nothing() -> None:
    """At the upper one the softmax is all but uniform: what a larger T could gain of ln C is below 1e-4 nats."""
    z, labels = drawn(500, 4)
    _, highest = ends(z)
    assert np.abs(softmax(z / highest) * 4 - 1).max() < 0.05
    assert abs(mean_nll(z, labels, highest) - mean_nll(z, labels, 1e9)) < 0.01
    wrong = calibrators.fit(z, z.argmin(axis=1), "temperature", shrinkage=0.0)
    assert loss(wrong, z, z.argmin(axis=1)) == pytest.approx(np.log(4), abs=0.02)


@pytest.mark.parametrize("factor", [1.0, *FACTORS])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("temperature", {"shrinkage": 0.0}),
        ("temperature", {"objective": "brier"}),
        ("temperature", {"objective": "sb_ece"}),
        ("ensemble_temperature", {"objective": "brier"}),
        ("bias_corrected_temperature", {"shrinkage": 0.0}),
    ],
)
def test_a_bound_that_is_met_is_a_warning_at_any_size(name: str, options: dict[str, Any], factor: float) -> None:
    """No row is wrong: T falls to the end of its range. A file keeps it."""
    z, _ = drawn(90, 3, spread=2.0)
    calibrator = calibrators.fit(factor * z, z.argmax(axis=1), name, **options)
    assert calibrator.at_bound and any(" stopped at " in warning for warning in calibrator.warnings)
    restored = calibrators.from_json(json.loads(json.dumps(calibrator.to_json())))
    assert restored.at_bound and restored.warnings == calibrator.warnings
    assert np.isfinite(calibrator(factor * z)).all()


def test_the_warning_on_the_size_is_rare_where_nothing_is_wrong() -> None:
    """Held-out rows, and two standard errors: of 40 draws at T = 1/4, where platt is no worse for it, few warn."""
    warned = 0
    for seed in range(40):
        z, labels = drawn(150, 2, 0.25, 0.5, seed)
        calibrator = calibrators.fit(z, labels, "platt")
        warned += any("logits' temperature is" in warning for warning in calibrator.warnings)
    assert warned <= 3
