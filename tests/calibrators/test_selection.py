"""select: the winner is the candidate of least held-out NLL, and the table says how sure that is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.calibrators.test_calibrators import Array, Labels, drawn, mean_nll
from trueodds import calibrators
from trueodds.calibrators import FitError
from trueodds.calibrators.held_out import is_worse, stratified_folds
from trueodds.calibrators.selection import default_candidates
from trueodds.errors import ConfigError


def test_it_finds_what_the_truth_needs() -> None:
    z, labels = drawn(3_000, 4, 2.0)
    calibrator = calibrators.select(z, labels)
    identity, temperature, *_ = calibrator.table
    assert calibrator.calibrator.name != "identity"
    assert temperature.within_one_standard_error
    assert identity.behind is not None and identity.behind_standard_error is not None
    assert identity.behind > 5 * identity.behind_standard_error > 0
    assert not identity.within_one_standard_error
    mixing = np.array([[0.8, 0.5, 0.0], [0.0, 0.8, 0.5], [0.5, 0.0, 0.8]])
    z, _ = drawn(4_000, 3)
    labels = (z @ mixing + np.random.default_rng(1).gumbel(size=z.shape)).argmax(axis=1)
    assert calibrators.select(z, labels).calibrator.name == "structured_matrix"


def test_the_numbers_are_those_of_plain_folds() -> None:
    z, labels = drawn(60, 3, 1.5)
    calibrator = calibrators.select(
        z, labels, candidates=["temperature", ("temperature", {"objective": "brier"})], folds=3
    )
    fold = stratified_folds(labels, 3)
    losses = np.empty(60)
    for f in range(3):
        t = calibrators.fit(z[fold != f], labels[fold != f], "temperature").temperature  # type: ignore[attr-defined]
        losses[fold == f] = [mean_nll(z[[i]], labels[[i]], t) for i in np.flatnonzero(fold == f)]
    line = calibrator.table[0]
    assert line.nll == pytest.approx(losses.mean(), rel=1e-9)
    assert line.standard_error == pytest.approx(losses.std(ddof=1) / np.sqrt(60), rel=1e-9)
    assert calibrator.table[1].options == {"objective": "brier"}
    best = min(calibrator.table, key=lambda c: c.nll or 0.0)
    assert (best.behind, best.behind_standard_error, best.within_one_standard_error) == (0, 0, True)
    assert calibrator.calibrator == calibrators.fit(z, labels, best.name, **best.options)


@given(st.lists(st.integers(0, 4), min_size=5, max_size=60), st.integers(2, 5))
def test_folds_are_balanced_in_every_class(labels: list[int], folds: int) -> None:
    fold = stratified_folds(np.array(labels), folds)
    for k in set(labels):
        counts = np.bincount(fold[np.array(labels) == k], minlength=folds)
        assert counts.max() - counts.min() <= 1
    counts = np.bincount(fold, minlength=folds)
    assert counts.max() - counts.min() <= 1


def test_a_candidate_that_cannot_be_fitted_is_out() -> None:
    z, labels = drawn(50, 3)
    labels[labels == 2] = 1
    labels[0] = 2  # one row: unseen in the fold that holds it
    calibrator = calibrators.select(z, labels, candidates=("vector", "temperature"))
    assert calibrator.calibrator.name == "temperature"
    assert calibrator.table[0].nll is None
    assert "never hold class 2" in (calibrator.table[0].problem or "")
    with pytest.raises(FitError, match="no candidate can be fitted: vector: labels never hold"):
        calibrators.select(z, labels, candidates=("vector",))


def test_the_earlier_of_equals() -> None:
    z, labels = drawn(50, 3)
    pair: list[tuple[str, Any]] = [("matrix", {"off_diagonal": 5.0}), ("matrix", {"off_diagonal": 5})]
    assert calibrators.select(z, labels, candidates=["identity", "identity"]).calibrator.name == "identity"
    assert [line.behind for line in calibrators.select(z, labels, candidates=pair).table] == [0, 0]


def test_what_is_refused() -> None:
    z, labels = drawn(10, 2)
    with pytest.raises(ValueError, match=r"folds is 1; allowed is an integer in \[2, 10\]"):
        calibrators.select(z, labels, folds=1)
    with pytest.raises(ValueError, match="candidates is empty"):
        calibrators.select(z, labels, candidates=())
    with pytest.raises(ValueError, match="logits has 1 row"):
        calibrators.select(z[:1], labels[:1])
    with pytest.raises(ConfigError, match="unknown option of 'temperature' 'objectiv'"):
        calibrators.select(z, labels, candidates=[("temperature", {"objectiv": "nll"})])


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ("temperature", r"candidates is 'temperature'; allowed is a sequence: \['temperature'\]"),
        (3, "candidates is 3; allowed is a sequence"),
        ([3], r"candidates holds 3; allowed are names, classes and pairs \(name, options\)"),
        ([("temperature", "brier")], "candidates holds .*; allowed are names, classes and pairs"),
    ],
)
def test_candidates_are_names_and_pairs(candidates: Any, message: str) -> None:
    z, labels = drawn(20, 3)
    with pytest.raises(ValueError, match=message):
        calibrators.select(z, labels, candidates=candidates)


def few_errors(rows: int, wrong: int, seed: int = 0) -> tuple[Array, Labels]:
    """Rows of a calibrated net of accuracy .96, so many of them wrong."""
    z, labels = drawn(40 * rows, 10, 1.0, 27.0, seed)
    bad = z.argmax(axis=1) != labels
    chosen = np.concatenate([np.flatnonzero(bad)[:wrong], np.flatnonzero(~bad)[: rows - wrong]])
    return z[chosen], labels[chosen]


@pytest.mark.few(1)
@pytest.mark.parametrize("wrong", [0, 1, 2, 4])
def test_fifty_rows_never_cost_much(wrong: int) -> None:
    fresh, truth = drawn(4_000, 10, 1.0, 27.0, seed=99)
    plain = mean_nll(fresh, truth, 1.0)
    for seed in range(3):
        calibrator = calibrators.select(*few_errors(50, wrong, seed)).calibrator
        assert -np.log(calibrator(fresh)[np.arange(4_000), truth]).mean() < plain + 0.05


def test_a_fit_at_a_bound_or_without_doubt_is_passed_over() -> None:
    z, labels = few_errors(50, 0)
    pairs: list[str | tuple[str, dict[str, Any]]] = [
        "identity",
        ("temperature", {"shrinkage": 0.0}),
        ("ensemble_temperature", {"objective": "brier"}),
    ]
    calibrator = calibrators.select(z, labels, candidates=pairs)
    assert calibrator.calibrator.name == "identity"
    identity, *others = calibrator.table
    assert identity.behind == 0 and identity.passed_over is None
    for line in others:
        assert line.passed_over == "its fit on all rows stopped at a bound"
        assert line.behind is not None and line.behind < 0
    alone = calibrators.select(z, labels, candidates=pairs[1:2])
    assert alone.calibrator.name == "temperature" and alone.table[0].passed_over is None
    assert "stopped at its lower bound" in alone.calibrator.warnings[-1]


def test_few_wrong_rows_are_not_enough_for_weights_of_each_class() -> None:
    mixing = np.array([[0.8, 0.5, 0.0], [0.0, 0.8, 0.5], [0.5, 0.0, 0.8]])
    z, _ = drawn(4_000, 3, spread=6.0)
    labels = (z @ mixing + np.random.default_rng(1).gumbel(size=z.shape)).argmax(axis=1)
    wrong = np.cumsum(z.argmax(axis=1) != labels)
    for rows, name in ((int(np.searchsorted(wrong, 19, "right")), "identity"), (4_000, "structured_matrix")):
        calibrator = calibrators.select(z[:rows], labels[:rows], candidates=("identity", "structured_matrix"))
        assert calibrator.calibrator.name == name
    line = calibrators.select(z[:100], labels[:100], candidates=("identity", "structured_matrix")).table[1]
    assert line.passed_over is None or line.passed_over.endswith("too few for weights for each class; 20 are needed")


def test_rows_that_are_separated_are_passed_over() -> None:
    labels = np.arange(60) % 3
    z = np.eye(3)[labels] + [1.2, 0, 0] + np.random.default_rng(0).normal(0, 0.02, (60, 3))
    calibrator = calibrators.select(z, labels, candidates=("vector", "structured_vector"))
    assert (z.argmax(axis=1) != labels).sum() >= 20
    assert calibrator.calibrator.name == "structured_vector"
    assert calibrator.table[0].passed_over == "its fit separates the rows: it leaves no doubt about any row"


def test_the_chosen_line_says_why() -> None:
    z, labels = drawn(300, 3, 2.0)
    table = calibrators.select(z, labels, candidates=("identity", "temperature", "vector")).table
    (line,) = [line for line in table if line.chosen]
    assert line.name == "temperature" and line.chosen is not None and line.ece is not None
    assert line.chosen.startswith(
        f"cross-validated NLL {line.nll:.4f} +- {line.standard_error:.4f}, ECE {line.ece:.4f}"
    )
    assert "of 3" in line.chosen


def test_no_calibration_stays_within_one_standard_error() -> None:
    """Calibrated logits: what lies below identity's NLL lies there by chance, and its line says so."""
    taken, told = [], []
    for seed in range(12):
        z, labels = drawn(300, 4, 1.0, 2.0, seed=seed)
        selection = calibrators.select(z, labels, candidates=("identity", "temperature", "structured_vector"))
        taken.append(selection.calibrator.name == "identity")
        for line in selection.table:
            if line.passed_over and "without calibration" in line.passed_over:
                assert line.passed_over.endswith("within one standard error") and line.behind is not None
                assert line.behind <= 0 or not taken[-1]
                told.append(line.name)
    assert sum(taken) >= 9 and told


def test_a_candidate_of_less_ece_and_no_less_nll_is_passed_over_in_true_words() -> None:
    z, labels = drawn(700, 2, 1.0, 2.0, seed=1)
    selection = calibrators.select(z, labels)
    lines = {line.name: line for line in selection.table}
    assert selection.calibrator.name == "identity"
    above = [line for line in selection.table if line.passed_over and (line.behind or 0) > 0]
    for line in above:
        assert line.passed_over is not None and line.passed_over.endswith("above that without calibration")
        assert f"NLL is {line.behind:.4f} +- " in line.passed_over and (line.ece or 1) <= (lines["identity"].ece or 0)
    assert above


def test_a_few_dear_errors_are_evidence_against_no_calibration() -> None:
    """The gain's standard error is as large as itself, yet the rows are e^40 times likelier under the temperature."""
    rng = np.random.default_rng(3)
    labels = np.zeros(100, int)
    labels[:2] = 1
    z = np.stack([np.full(100, 60.0) + rng.normal(0, 1, 100), np.zeros(100)], axis=1)
    selection = calibrators.select(z, labels, candidates=("identity", "temperature"))
    gain = np.asarray(selection.nll_MN[0]) - np.asarray(selection.nll_MN[1])
    assert gain.mean() < 2 * gain.std(ddof=1) / 10 and gain.sum() > 40
    assert selection.calibrator.name == "temperature"


def test_of_equal_nll_the_ece_decides_from_500_rows_on() -> None:
    """What is behind the least by more than its standard error is never taken for its ECE."""
    z, labels = drawn(1500, 6, 1.6, 2.0)
    selection = calibrators.select(z, labels)
    lines = {line.name: line for line in selection.table}
    chosen = lines[selection.calibrator.name]
    least = min(selection.table, key=lambda line: line.nll or 9.0)
    nll = dict(zip(lines, selection.nll_MN, strict=True))
    own, best = nll[chosen.name], nll[least.name]
    assert own is not None and best is not None
    behind = own - best
    assert behind.mean() <= behind.std(ddof=1) / np.sqrt(1500) + 1e-12


@pytest.mark.parametrize("seed", [2, 5])
def test_each_reason_against_a_candidate_is_true(seed: int) -> None:
    rng = np.random.default_rng(seed)
    z = rng.normal(-2, 1.2, 2400)
    labels = (rng.random(2400) < 1 / (1 + np.exp(-z))).astype(int)
    selection = calibrators.select(np.stack([np.zeros(2400), 1.8 * z], axis=1), labels)
    rows = dict(zip((line.name for line in selection.table), map(np.asarray, selection.nll_MN), strict=True))
    chosen = next(line for line in selection.table if line.chosen)
    first = min(rows, key=lambda name: float(rows[name].mean()))
    reasons = [line for line in selection.table if line.passed_over]
    for line in reasons:
        assert line.passed_over is not None and line.ece is not None and chosen.ece is not None
        behind = rows[line.name] - rows[first]
        is_alike = behind.mean() <= behind.std(ddof=1) / np.sqrt(2400)
        words = "its ECE is less" if is_alike else f"more than one standard error behind {first}'s"
        assert words in line.passed_over and (line.ece >= chosen.ece or not is_alike)
    assert reasons


def test_curves_are_candidates_from_500_rows_on_and_venn_abers_of_two_classes() -> None:
    assert "structured_curve" in default_candidates(3, 500) and "structured_curve" not in default_candidates(3, 499)
    assert "venn_abers" in default_candidates(2, 20) and "spline" not in default_candidates(2, 5000)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "spread", "rows"), [("vector", 27.0, 100), ("matrix", 27.0, 100), ("dirichlet", 27.0, 100)]
)
def test_a_catastrophic_fit_is_warned_of(name: str, spread: float, rows: int) -> None:
    """Nats on fresh rows, from a few rows that cost a hundred: their spread hid the mean."""
    z, labels = drawn(4000, 10, 1.0, spread)
    for start in range(0, 400, 100):
        own = slice(start, start + rows)
        calibrator = calibrators.fit(z[own], labels[own], name)
        fresh, truth = z[1000:], labels[1000:]
        cost = -np.log(np.maximum(calibrator(fresh)[np.arange(3000), truth], 1e-300)).mean() - mean_nll(
            fresh, truth, 1.0
        )
        assert cost < 0.5 or any(
            "overfits" in warning or "free parameters" in warning for warning in calibrator.warnings
        )


def test_fewer_than_five_rows_a_parameter_are_always_warned_of() -> None:
    """Whatever the held-out rows say: here the logits are four times too large, and any fit is better than none."""
    z, labels = drawn(100, 10, 4.0, 12.0)
    for name, warned in (("matrix", True), ("structured_matrix", False), ("temperature", False), ("spline", False)):
        warnings = calibrators.fit(z, labels, name).warnings
        assert any("free parameters for 100 rows" in w or "overfits" in w for w in warnings) == warned, (name, warnings)


def test_a_trimmed_mean_sees_what_the_spread_of_a_few_hides() -> None:
    rng = np.random.default_rng(0)
    worse = np.append(rng.normal(0.3, 0.1, 98), [400.0, -380.0])
    assert worse.mean() < worse.std() / 10 and is_worse(worse)
    assert not is_worse(np.append(np.full(95, 0.1), np.full(5, -5.0)))  # right rows lose a little, wrong ones gain much
    assert not is_worse(np.empty(0))
    assert not is_worse(rng.permutation(np.linspace(-1, 1.02, 100)))
