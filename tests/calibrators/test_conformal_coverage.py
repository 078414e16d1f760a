"""Coverage of conformal sets on fresh draws: its law by split, class by class, and against MAPIE where installed."""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np
import pytest
from scipy.stats import betabinom, kstest

from tests.calibrators.test_conformal import population
from trueodds.calibrators import conformal
from trueodds.processes.choices import SetMethod
from trueodds.sums.inputs import Array

DRAWS = 200
ROWS, FRESH, LEVEL = 79, 400, 0.9
WORLDS = [
    pytest.param(10, 3.0, True, id="sharp"),
    pytest.param(5, 0.7, True, id="dull"),
    pytest.param(6, 2.5, False, id="over-confident"),
]


def coverages(method: SetMethod, classes: int, spread: float, *, honest: bool) -> Array:
    """Return the number of covered fresh rows for each of many calibrations."""
    counts = []
    for seed in range(DRAWS):
        p_NC, labels_N = population(ROWS + FRESH, classes, seed, spread, honest=honest)
        rule = conformal.fit(p_NC[:ROWS], labels_N[:ROWS], method, seed=seed).at(LEVEL)
        counts.append(conformal.measure(rule, p_NC[ROWS:], labels_N[ROWS:]).hits)
    return np.array(counts)


@pytest.mark.few(2)
@pytest.mark.parametrize("method", ["lac", "aps"])
@pytest.mark.parametrize(("classes", "spread", "honest"), WORLDS)
def test_coverage_follows_the_beta_binomial_law(method: SetMethod, classes: int, spread: float, honest: bool) -> None:
    covered = coverages(method, classes, spread, honest=honest)
    rank = conformal.rank_of(ROWS, LEVEL)
    law = betabinom(FRESH, rank, ROWS + 1 - rank)
    # For a discrete law, the test's p-value is too large, so a small one still counts.
    assert kstest(covered, law.cdf).pvalue > 0.001
    assert abs(covered.mean() - law.mean()) < 4 * law.std() / np.sqrt(DRAWS)


@pytest.mark.few(1)
@pytest.mark.parametrize(("classes", "spread", "honest"), WORLDS)
def test_raps_covers_on_average(classes: int, spread: float, honest: bool) -> None:
    covered = coverages("raps", classes, spread, honest=honest) / FRESH
    assert covered.mean() > LEVEL - 4 * covered.std() / np.sqrt(DRAWS)


def test_a_confidence_holds_in_this_share_of_calibrations() -> None:
    reached = []
    for seed in range(DRAWS):
        p_NC, labels_N = population(200 + 4000, 4, seed)
        rule = conformal.fit(p_NC[:200], labels_N[:200]).at(LEVEL, confidence=0.9)
        reached.append(conformal.measure(rule, p_NC[200:], labels_N[200:]).coverage >= LEVEL)
    assert 0.83 < np.mean(reached) < 0.99


def test_class_sets_cover_each_class_where_lac_does_not() -> None:
    by_method: dict[SetMethod, list[Array]] = {"class": [], "lac": []}
    for seed in range(40):
        p_NC, labels_N = population(2400, 3, seed, 2.0)
        p_NC[:, 2] /= 4  # class 2 is more frequent than its probability says
        p_NC /= p_NC.sum(axis=1, keepdims=True)
        for method, shares in by_method.items():
            rule = conformal.fit(p_NC[:400], labels_N[:400], method).at(LEVEL)
            measured = conformal.measure(rule, p_NC[400:], labels_N[400:])
            shares.append(np.array(measured.class_hits) / measured.class_rows)
    for_class, for_lac = (np.mean(by_method[method], axis=0) for method in ("class", "lac"))
    assert (for_class > LEVEL - 0.015).all() and for_lac.min() < LEVEL - 0.05 and for_lac.max() > LEVEL + 0.02


def test_ties_only_raise_the_coverage() -> None:
    covered = []
    for seed in range(DRAWS):
        p_NC, labels_N = population(ROWS + FRESH, 4, seed)
        p_NC = np.round(p_NC, 1) + 1e-3
        p_NC /= p_NC.sum(axis=1, keepdims=True)
        rule = conformal.fit(p_NC[:ROWS], labels_N[:ROWS]).at(LEVEL)
        covered.append(conformal.measure(rule, p_NC[ROWS:], labels_N[ROWS:]).coverage)
    assert np.mean(covered) > LEVEL


@pytest.mark.skipif(not importlib.util.find_spec("mapie"), reason="MAPIE is not installed; the slow twin stands in")
def test_sets_are_those_of_mapie() -> None:
    classification = importlib.import_module("mapie.classification")
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
        """Model whose inputs are its probabilities."""

        def fit(self, x: Array, y: Array) -> Given:
            self.classes_, self.n_features_in_ = np.arange(x.shape[1]), x.shape[1]
            return self

        def predict_proba(self, x: Array) -> Array:
            return x

        def predict(self, x: Array) -> Array:
            top: Array = np.argmax(x, axis=1)
            return top

        def __sklearn_is_fitted__(self) -> bool:
            return True

    p_NC, labels_N = population(1500, 6, 3)
    model = Given().fit(p_NC, labels_N)

    def peer(score: str, **params: object) -> Array:
        theirs = classification.SplitConformalClassifier(model, LEVEL, score, prefit=True, random_state=0)
        theirs.conformalize(p_NC[:700], labels_N[:700])
        sets: Array = theirs.predict_set(p_NC[700:], params or None)[1][:, :, 0]
        return sets

    ours = conformal.fit(p_NC[:700], labels_N[:700]).at(LEVEL).sets(p_NC[700:])
    assert (ours == peer("lac")).all()
    draws = conformal.fit(p_NC[:700], labels_N[:700], "aps").at(LEVEL)
    random = peer("aps", include_last_label="randomized")
    measured = conformal.measure(draws, p_NC[700:], labels_N[700:])
    theirs = random[np.arange(800), labels_N[700:]].mean()
    assert abs(measured.coverage - theirs) < 0.03 and abs(measured.mean_size - random.sum(axis=1).mean()) < 0.15
