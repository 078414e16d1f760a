"""The calibrator for other class shares: its formula, its forms in a graph and in bounds, and its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import trueodds
from pipeline.recalibrate.gains import gain_limits, scores
from trueodds import calibrators, metrics
from trueodds.calibrators import Calibrator, GroupTemperature, PriorCorrected, Temperature

RATIO_C = np.log([0.2 / 0.5, 0.3 / 0.3, 0.5 / 0.2])
BIAS_C = np.array([0.3, -0.1, -0.2])


def logits(n: int = 300) -> np.ndarray:
    z_NC: np.ndarray = np.random.default_rng(0).normal(0, 4, (n, 3))
    return z_NC


def slow(p_N: np.ndarray, slope: float) -> list[list[float]]:
    """The formula of one row after the other."""
    found = []
    for row in p_N.tolist():
        joint = [p**slope * np.exp(b) * np.exp(r) for p, b, r in zip(row, BIAS_C, RATIO_C, strict=True)]
        found.append([value / sum(joint) for value in joint])
    return found


@pytest.mark.parametrize("inner", [Temperature(1.7), calibrators.fit(logits(90), np.arange(90) % 3, "isotonic")])
def test_formula_and_file(inner: Calibrator, tmp_path: Path) -> None:
    made = PriorCorrected(0.8, BIAS_C, RATIO_C, inner)
    assert made(logits()) == pytest.approx(np.array(slow(inner(logits()), 0.8)), abs=1e-12)
    made.save(tmp_path / "c.json")
    again = trueodds.load(tmp_path / "c.json")
    assert isinstance(again, Calibrator)
    assert again == made and np.array_equal(again(logits()), made(logits()))
    same = PriorCorrected(1.0, np.zeros(3), np.zeros(3), inner)
    assert same(logits()) == pytest.approx(inner(logits()), abs=1e-12), "equal shares change nothing"


def test_it_is_that_of_the_estimate() -> None:
    """`PriorShift.correct` has the same formula for rows; the two agree on the rows of a real estimate."""
    rng = np.random.default_rng(1)

    def rows(n: int, shares: list[float]) -> tuple[np.ndarray, np.ndarray]:
        y_N = rng.choice(3, n, p=shares)
        return 2 * (2 * np.eye(3)[y_N] + rng.normal(size=(n, 3))), y_N

    (z_RC, y_R), (z_NC, _) = rows(2_000, [0.4, 0.3, 0.3]), rows(2_000, [0.1, 0.2, 0.7])
    shift = metrics.prior_shift(softmax(z_NC, axis=1), softmax(z_RC, axis=1), y_R)
    assert shift.calibrator is not None
    ratio_C = np.log([float(one.value or 0) for one in shift.em]) - np.log(shift.reference_shares)
    bias_C = np.array(shift.calibrator.bias)
    made = PriorCorrected(shift.calibrator.slope, bias_C, ratio_C, Temperature(1.0))
    assert made(z_NC) == pytest.approx(shift.correct(softmax(z_NC, axis=1)), abs=1e-9)
    fresh_NC, fresh_N = rows(4_000, [0.1, 0.2, 0.7])
    assert metrics.nll(made(fresh_NC), fresh_N) < metrics.nll(softmax(fresh_NC, axis=1), fresh_N) - 0.05


def test_forms_and_limits_of_the_gain() -> None:
    inner, z_NC = calibrators.BiasCorrectedTemperature(1.7, [0.1, 0.2, -0.3]), logits(4_000)
    made = PriorCorrected(0.8, BIAS_C, RATIO_C, inner)
    form = made.affine(3)
    assert form is not None
    assert softmax(z_NC @ form[0].T + form[1], axis=1) == pytest.approx(made(z_NC), abs=1e-12)
    labels_N = np.arange(4_000) % 3
    least, most = gain_limits(inner, made, 3, same_logits=True)
    gain_N = scores(made, z_NC, labels_N)[0] - scores(inner, z_NC, labels_N)[0]
    assert least <= gain_N.min() < gain_N.max() <= most < 3 < np.log(1 + 3 * 999)
    structured = calibrators.fit(z_NC[:300], labels_N[:300], "structured_vector")
    logs = PriorCorrected(0.8, BIAS_C, RATIO_C, structured).log_affine()
    assert logs is not None
    q_NC = (1 - logs.uniform) * softmax(z_NC / logs.temperature, axis=1) + logs.uniform / 3
    shown_NC = np.exp(log_softmax(np.log(q_NC) @ logs.weight_CC.T + logs.bias_C, axis=1))
    assert shown_NC == pytest.approx(PriorCorrected(0.8, BIAS_C, RATIO_C, structured)(z_NC), abs=1e-9)


def test_groups_stay() -> None:
    inner = GroupTemperature(1.7, ["day", "night"], np.log([0.9 / 1.7, 5.0 / 1.7]), [1, 1], 0.8)
    made, z_NC = PriorCorrected(1.0, BIAS_C, RATIO_C, inner), logits(2_000)
    tags = ["day", "night", None, "x"] * 500
    assert made.known_groups == ("day", "night")
    assert made(z_NC, groups=tags) == pytest.approx(np.array(slow(inner(z_NC, groups=tags), 1.0)), abs=1e-12)
    least, most = gain_limits(inner, made, 3, same_logits=True)
    y_N, tags_N = np.arange(2_000) % 3, np.array(tags, dtype=object)
    gain_N = scores(made, z_NC, y_N, groups_N=tags_N)[0] - scores(inner, z_NC, y_N, groups_N=tags_N)[0]
    assert least <= gain_N.min() < gain_N.max() <= most < 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slope": 0.0}, "slope is 0"),
        ({"slope": 21.0}, "slope is 21.0; allowed is a number in"),
        ({"bias_C": [0.0, np.inf, 0.0]}, "bias_C holds inf"),
        ({"log_ratio_C": [0.0, 0.0]}, r"log_ratio_C has shape \(2,\); allowed is \(3\)"),
        ({"bias_C": [1e308, 0, 0], "log_ratio_C": [1e308, 0, 0]}, r"bias_C \+ log_ratio_C is too large for a number"),
        ({"calibrator": "temperature"}, "calibrator is 'temperature'; allowed is a calibrator"),
        ({"calibrator": calibrators.Vector(np.ones(2), np.zeros(2))}, "bias_C has 3 classes and the calibrator 2"),
    ],
)
def test_refusals(change: dict[str, object], message: str) -> None:
    given = {"slope": 1.0, "bias_C": BIAS_C, "log_ratio_C": RATIO_C, "calibrator": Temperature(1.0)} | change
    with pytest.raises(ValueError, match=message):
        PriorCorrected(**given)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="recalibrate --prior-shift makes one"):
        PriorCorrected.fit(logits(), np.zeros(300, np.intp))
    with pytest.raises(ValueError, match="a calibrator is None; allowed is a JSON object"):
        calibrators.from_json({"calibrator": "prior_corrected", "slope": 1.0, "bias_C": [0], "log_ratio_C": [0]})


def test_nesting_in_a_file_has_a_limit() -> None:
    made: Calibrator = Temperature(1.5)
    for _ in range(8):
        made = PriorCorrected(1.0, BIAS_C, RATIO_C, made)
    assert np.array_equal(calibrators.from_json(made.to_json())(logits()), made(logits()))
    tree = made.to_json()
    for _ in range(3_000):
        tree = {**made.to_json(), "inner": tree}
    with pytest.raises(ValueError, match="3008 calibrators are around one another; allowed are 8"):
        calibrators.from_json(tree)
