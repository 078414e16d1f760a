"""Class shares under prior shift: slow twins, closed forms, an oracle's numbers, coverage, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import kstest

from benchmarks.library.quantification_oracle import RESULT, rows_of
from trueodds.metrics import PriorShift, prior_shift, prior_shift_of_scores
from trueodds.metrics.labelling.mixture_test import mixture_test, score_cells
from trueodds.metrics.labelling.prior_shift import _Estimation
from trueodds.metrics.labelling.reference_calibrator import ReferenceCalibrator, mixture_shares

ORACLE = json.loads(RESULT.read_text(encoding="utf-8"))
Rows = tuple[np.ndarray, np.ndarray]


def rows(rng: np.random.Generator, n: int, positives: float, gap: float = 2.0, slope: float = 1.0) -> Rows:
    """Probabilities of n rows that are calibrated for 50% positives if the slope is 1, and their labels."""
    y_N = (rng.random(n) < positives).astype(int)
    p_N = expit(slope * gap * rng.normal(gap * (y_N - 0.5), 1))
    return np.stack([1 - p_N, p_N], axis=1), y_N


def classes(rng: np.random.Generator, n: int, shares: np.ndarray, gap: float = 2.0) -> Rows:
    """Probabilities of n rows of normal classes, calibrated for equal shares."""
    y_N = rng.choice(len(shares), n, p=shares)
    logits_NC = gap * (rng.normal(size=(n, len(shares))) + gap * np.eye(len(shares))[y_N])
    p_NC = np.exp(logits_NC - logits_NC.max(axis=1, keepdims=True))
    return p_NC / p_NC.sum(axis=1, keepdims=True), y_N


def test_em_twin() -> None:
    """One answer after another, 3,000 plain steps, as the paper writes it."""
    rng = np.random.default_rng(0)
    p_NC, _ = classes(rng, 60, np.array([0.7, 0.2, 0.1]), 1.0)
    prior_C = np.array([0.5, 0.3, 0.2])
    w_C = prior_C.copy()
    for _ in range(3_000):
        total_C = np.zeros(3)
        for p_C in p_NC:
            joint_C = p_C * w_C / prior_C
            total_C += joint_C / joint_C.sum()
        w_C = total_C / len(p_NC)
    found_C = mixture_shares(p_NC / prior_C, np.ones(60), prior_C)
    assert found_C == pytest.approx(w_C, abs=1e-6)


def test_em_is_the_maximum_and_counts_are_repeated_rows() -> None:
    rng = np.random.default_rng(1)
    p_NC, _ = classes(rng, 200, np.array([0.1, 0.9]), 1.0)
    count_N = rng.integers(0, 4, 200)
    of_counts = mixture_shares(p_NC, count_N.astype(float), np.array([0.5, 0.5]))
    assert of_counts == pytest.approx(
        mixture_shares(np.repeat(p_NC, count_N, axis=0), np.ones(count_N.sum()), np.array([0.3, 0.7])), abs=1e-6
    )
    grid = np.linspace(0, 1, 100_001)
    value = sum(n * np.log(grid * p[1] + (1 - grid) * p[0]) for p, n in zip(p_NC, count_N, strict=True))
    assert of_counts[1] == pytest.approx(grid[value.argmax()], abs=2e-5)


def test_bias_corrected_temperature_twin() -> None:
    rng = np.random.default_rng(2)
    p_NC, y_N = classes(rng, 400, np.array([0.5, 0.3, 0.2]), 1.0)
    one = ReferenceCalibrator.fit(p_NC, np.eye(3)[y_N])

    def loss(x: np.ndarray) -> float:
        total = 5e-4 * ((x - [1, 0, 0, 0]) ** 2).sum()
        for p_C, y in zip(p_NC, y_N, strict=True):
            z_C = x[0] * np.log(p_C) + x[1:]
            total += np.log(np.exp(z_C).sum()) - z_C[y]
        return float(total)

    own = np.array([one.slope, *one.bias])
    other = minimize(loss, own + 0.1, method="BFGS").x
    other[1:] -= other[1:].mean()
    assert own == pytest.approx(other, abs=2e-3)
    gradient = [(loss(own + e) - loss(own - e)) / 2e-5 for e in 1e-5 * np.eye(4)]
    assert gradient == pytest.approx([0] * 4, abs=1e-2)
    # The biases make the mean probability of each class its share. The EM of the rows themselves thus returns it.
    assert one(p_NC).mean(axis=0) == pytest.approx(np.bincount(y_N) / 400, abs=1e-4)
    shares_C = np.bincount(y_N) / 400
    assert mixture_shares(one(p_NC) / shares_C, np.ones(400), np.full(3, 1 / 3)) == pytest.approx(shares_C, abs=1e-3)


def test_without_a_shift_the_shares_are_those_of_the_reference() -> None:
    """Answers that are the reference rows themselves: both methods give its shares, and the test sees no difference."""
    p_NC, y_N = classes(np.random.default_rng(3), 600, np.array([0.5, 0.3, 0.2]), 1.5)
    shift = prior_shift(p_NC, p_NC, y_N)
    assert shift.test is not None and shift.test.p_value > 0.999
    for shares in (shift.em, shift.bbse):
        assert [one.value for one in shares] == pytest.approx(shift.reference_shares, abs=1e-3)
        assert all(one.lower < one.value < one.upper for one in shares)  # type: ignore[operator]


@pytest.mark.parametrize("shift", ["none", "far"])
@pytest.mark.parametrize("name", ["too dull, shifted", "heavy tails", "3 classes"])
def test_quapy_gives_the_same_shares(name: str, shift: str) -> None:
    """The committed numbers of QuaPy's EMQ with BCTS and of its ACC, on the same rows."""
    (theirs,) = (row for row in ORACLE["rows"] if (row["population"], row["shift"]) == (name, shift))
    known_RC, y_R, p_NC = rows_of(name, shift)
    found = prior_shift(p_NC, known_RC, y_R)
    assert [one.value for one in found.bbse] == pytest.approx(theirs["quapy_bbse"], abs=1e-9)
    assert [one.value for one in found.em] == pytest.approx(theirs["quapy_em"], abs=2e-4)
    prior_C = found.reference_shares
    plain_C = mixture_shares(p_NC / prior_C, np.ones(len(p_NC)), prior_C)
    assert plain_C == pytest.approx(theirs["quapy_plain_em"], abs=1e-6)


def test_two_classes_in_closed_form() -> None:
    """BBSE: w = (q - fpr) / (tpr - fpr), and Fieller's limits; tpr .8, fpr .1, q .31."""
    p_SC = np.array([[0.2, 0.8], [0.21, 0.79], [0.9, 0.1], [0.91, 0.09]])
    rows_SC = np.array([[50, 400], [50, 400], [450, 100], [450, 100]])
    answers_S = np.array([310, 310, 690, 690])
    shift = prior_shift_of_scores(p_SC, answers_S, rows_SC)
    w = (0.31 - 0.1) / (0.8 - 0.1)
    one, other = shift.bbse[1], shift.bbse[0]
    assert one.value == pytest.approx(w) and other.value == pytest.approx(1 - w)
    n, z = 1000, 1.959964
    share = {k: (a * n / (n + 4) + 0.45 * 4 / (n + 4)) for k, a in (("tpr", 0.8), ("fpr", 0.1))}
    v1, v0 = (share[k] * (1 - share[k]) / 0.7**2 for k in ("tpr", "fpr"))
    for c in (one.lower, one.upper):
        assert c is not None
        variance = (c * v1 + (1 - c) * v0) / 2000 + (c**2 * v1 + (1 - c) ** 2 * v0) / n
        assert (w - c) ** 2 == pytest.approx(z**2 * variance, rel=1e-4)
    assert one.lower is not None and one.upper is not None
    assert other.lower == pytest.approx(1 - one.upper) and other.upper == pytest.approx(1 - one.lower)


def test_no_interval_vanishes_at_an_end() -> None:
    """tpr .8, fpr .1, and only 5% of the answers are predicted positive: BBSE solves to -.07, so the share is 0."""
    p_SC = np.array([[0.2, 0.8], [0.21, 0.79], [0.9, 0.1], [0.91, 0.09]])
    rows_SC = np.array([[50, 400], [50, 400], [450, 100], [450, 100]])
    result = _Estimation(p_SC, np.array([15.0, 15, 285, 285]), rows_SC.astype(float), 1.959964)
    phi_SC = np.eye(2)[p_SC.argmax(axis=1)]
    shares = result._shares(phi_SC, None, np.array([0.99, 0.01]))
    assert shares is not None and (shares[1].value, shares[1].lower) == (0.0, 0.0)
    assert shares[1].upper is not None and 0.02 < shares[1].upper < 0.1
    assert shares[0].lower == pytest.approx(1 - shares[1].upper) and shares[0].upper == 1


def test_mixture_test_twin_and_its_level() -> None:
    """The statistic is the minimum that a search finds, and its p-values are uniform where p(x | y) is unchanged."""
    rng = np.random.default_rng(4)
    p_values = []
    for run in range(120):
        (p_NC, _), (q_RC, y_R) = (
            classes(rng, 300, np.array([0.6, 0.3, 0.1]), 1.2),
            classes(rng, 300, np.full(3, 1 / 3), 1.2),
        )
        p_SC = np.concatenate([p_NC, q_RC])
        answers_S, rows_SC = np.repeat([1.0, 0.0], 300), np.concatenate([np.zeros((300, 3)), np.eye(3)[y_R]])
        w_C = np.array([0.6, 0.3, 0.1])
        found = mixture_test(p_SC, answers_S, rows_SC, w_C)
        assert found is not None and found.degrees == found.cells - 3
        p_values.append(found.p_value)
        if run == 0:
            cell_S = score_cells(p_SC, answers_S, rows_SC)
            assert min(np.bincount(cell_S[:300]).min(), np.bincount(cell_S[300:]).min()) >= 5
            assert statistic_by_search(cell_S, y_R, w_C) == pytest.approx(found.statistic, rel=0.02)
    assert kstest(p_values, "uniform").pvalue > 0.01


def statistic_by_search(cell_S: np.ndarray, y_R: np.ndarray, w_C: np.ndarray) -> float:
    """Minimise d' V^-1 d over shares by simplex search. P and w in V come from the joint likelihood."""
    cells = cell_S.max() + 1
    answers_M = np.array([(cell_S[:300] == s).sum() for s in range(cells)])
    rows_MC = np.array([[((cell_S[300:] == s) & (y_R == y)).sum() for y in range(3)] for s in range(cells)])
    n_C = rows_MC.sum(axis=0)
    pseudo_MC = rows_MC + ((answers_M + rows_MC.sum(axis=1)) / 600)[:, None]
    p_MC, w_C = pseudo_MC / pseudo_MC.sum(axis=0), w_C.copy()
    for _ in range(100):
        joint_MC = np.array(
            [[answers_M[s] * w_C[y] * p_MC[s, y] / (p_MC[s] @ w_C) for y in range(3)] for s in range(cells)]
        )
        w_C, p_MC = joint_MC.sum(axis=0) / 300, (pseudo_MC + joint_MC) / (pseudo_MC + joint_MC).sum(axis=0)
    mixed_M = p_MC @ w_C
    v_MM = (np.diag(mixed_M) - np.outer(mixed_M, mixed_M)) / 300
    for y in range(3):
        v_MM = v_MM + w_C[y] ** 2 * (np.diag(p_MC[:, y]) - np.outer(p_MC[:, y], p_MC[:, y])) / n_C[y]
    inverse_MM = np.linalg.pinv(v_MM, rcond=1e-9)

    def value(x: np.ndarray) -> float:
        d_M = answers_M / 300 - rows_MC / n_C @ np.array([*x, 1 - x.sum()])
        return float(d_M @ inverse_MM @ d_M)

    return float(minimize(value, w_C[:2], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-8}).fun)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("positives", "gap", "slope", "reference", "answers"),
    [(0.5, 2.0, 1.0, 600, 300), (0.1, 1.2, 1.0, 300, 1_000), (0.0, 3.0, 1.0, 200, 400), (0.8, 2.0, 2.5, 400, 400)],
)
def test_coverage(positives: float, gap: float, slope: float, reference: int, answers: int) -> None:
    """Both intervals cover the share among the answers in about 95%, also if p is miscalibrated (slope 2.5)."""
    rng = np.random.default_rng(answers)
    inside: dict[str, list[bool]] = {"em": [], "bbse": []}
    for _ in range(100):
        (p_NC, y_N), known = rows(rng, answers, positives, gap, slope), rows(rng, reference, 0.4, gap, slope)
        shift = prior_shift(p_NC, *known)
        for name in inside if shift.refusal is None else ():
            one = getattr(shift, name)[1]
            inside[name].append(one.lower <= y_N.mean() <= one.upper)
    assert len(inside["em"]) >= 85
    assert min(np.mean(rows) for rows in inside.values()) >= 0.88


def test_other_changes_make_it_silent() -> None:
    """Scores that no mixture gives are refused. A concept shift is not seen: nothing in the scores changes."""
    rng = np.random.default_rng(6)
    known = rows(rng, 2_000, 0.5, 3.0)
    between = expit(rng.normal(0, 0.5, 2_000))  # answers between both classes
    shift = prior_shift(np.stack([1 - between, between], axis=1), *known)
    assert shift.refusal is not None and "p(x | y) has changed" in shift.refusal
    assert (shift.em, shift.bbse, shift.calibrator) == ((), (), None)
    with pytest.raises(ValueError, match="there are no class shares: p\\(x"):
        shift.correct([[0.5, 0.5]])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"label": 1}, "label is 1 and share is None; give both, or neither"),
        ({"share": 0.9}, "label is None and share is 0.9; give both"),
        ({"label": 1, "share": 1.7}, "share is 1.7; allowed is"),
        ({"label": 1, "share": float("nan")}, "share is nan"),
        ({"label": -1, "share": 0.5}, "label is -1; allowed are the class indices 0..1"),
        ({"label": 2, "share": 0.5}, "label is 2"),
        ({"probabilities": np.ones((5, 1))}, "probabilities have 1 class, the shares 2"),
        ({"probabilities": np.full((5, 3), 1 / 3)}, "probabilities have 3 classes, the shares 2"),
    ],
)
def test_a_correction_refuses_what_it_cannot_use(given: dict[str, Any], words: str) -> None:
    rng = np.random.default_rng(3)
    shift = prior_shift(rows(rng, 500, 0.2)[0], *rows(rng, 500, 0.5))
    with pytest.raises(ValueError, match=words):
        shift.correct(**({"probabilities": [[0.5, 0.5]]} | given))


def test_corrected_probabilities_hold_under_the_new_shares() -> None:
    rng = np.random.default_rng(7)
    known, (p_NC, y_N) = rows(rng, 5_000, 0.5), rows(rng, 5_000, 0.1)
    shift = prior_shift(p_NC, *known)
    corrected_NC = shift.correct(p_NC)
    assert corrected_NC.sum(axis=1) == pytest.approx(1)
    assert corrected_NC[:, 1].mean() == pytest.approx(shift.em[1].value, abs=1e-4)  # what the EM solves
    high_N = corrected_NC[:, 1] > 0.3
    assert y_N[high_N].mean() == pytest.approx(corrected_NC[high_N, 1].mean(), abs=0.05)
    assert abs(y_N[high_N].mean() - p_NC[high_N, 1].mean()) > 0.1
    replaced_NC = shift.correct(p_NC, label=1, share=shift.reference_shares[1])
    assert shift.calibrator is not None and replaced_NC == pytest.approx(shift.calibrator(p_NC))


def refusal_of(shift: PriorShift) -> str:
    assert shift.refusal is not None and shift.em == shift.bbse == ()
    return shift.refusal


def test_too_few_rows_or_scores_are_refused_in_words() -> None:
    rng = np.random.default_rng(8)
    known, (p_NC, _) = rows(rng, 400, 0.5), rows(rng, 200, 0.5)
    assert refusal_of(prior_shift(p_NC[:49], *known)) == "there are 49 answers; at least 50 are needed"
    rare = rows(rng, 400, 0.02)
    assert "class 1 has" in refusal_of(prior_shift(p_NC, *rare))
    assert "different values to test" in refusal_of(prior_shift(np.round(p_NC), np.round(known[0]), known[1]))
    blind = rng.random(400)
    assert "do not tell the classes apart" in refusal_of(
        prior_shift_of_scores(np.stack([1 - blind, blind], axis=1), np.ones(400), np.full((400, 2), 0.5))
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p, y: prior_shift(p[:, :1], p, y), "1"),
        (lambda p, y: prior_shift(np.full((9, 3), 1 / 3), p, y), "3 classes, those of the reference 2"),
        (lambda p, y: prior_shift(p, p, y + 1), "label"),
        (lambda p, y: prior_shift(p, p, y[:-1]), "label"),
        (lambda p, y: prior_shift(p * 2, p, y), "holds 1.99"),
        (lambda p, y: prior_shift(p, p, y, level=1.0), "level"),
        (lambda p, y: prior_shift_of_scores(p, np.ones(3), np.ones(p.shape)), "a count for each score"),
        (lambda p, y: prior_shift_of_scores(p, -np.ones(len(p)), np.ones(p.shape)), "answers holds the count -1"),
        (lambda p, y: prior_shift_of_scores(np.full((2, 101), 1 / 101), [1, 1], np.ones((2, 101))), "2 to 100"),
    ],
)
def test_bad_input(call, words: str) -> None:  # type: ignore[no-untyped-def]
    p_NC, y_N = rows(np.random.default_rng(9), 60, 0.5)
    with pytest.raises(ValueError, match=words):
        call(p_NC, y_N)
