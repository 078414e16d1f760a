"""Audits: the worst group in words, its test on rows that the search has not seen, and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trueodds.cli import COMMANDS, main
from trueodds.evaluation.audit_result import audit_of
from trueodds.evaluation.worst_group import STAKES, Condition, best_split, log_e_value, worst_group


def rows(n: int, off: float = 0.3, seed: int = 0) -> tuple[Any, Any, dict[str, Any]]:
    """Rows that are right `off` less often than they say by night, in the north, above 60; some ages are missing."""
    rng = np.random.default_rng(seed)
    age = np.where(rng.random(n) < 0.1, np.nan, rng.integers(18, 90, n))
    site, confidence_N = rng.choice(["north", "south", ""], n), rng.uniform(0.7, 1, n)
    bad_N = (age > 60) & (site == "north")
    right_N = rng.random(n) < confidence_N - off * bad_N
    return confidence_N, right_N, {"age": age, "site": site, "noise": rng.normal(size=n)}


def test_it_finds_the_group_and_says_it_in_words() -> None:
    confidence_N, right_N, features = rows(6_000)
    audit = worst_group(confidence_N, right_N, features)
    (group,) = audit.groups
    assert audit.is_found and group.is_found and {c.feature for c in group.conditions} == {"age", "site"}
    assert 'site is "north"' in group.words and "age > 6" in group.words
    assert group.lower < -0.3 < group.upper < 0 and group.signed_gap == group.accuracy - group.mean_confidence
    low = next(c.value for c in group.conditions if c.feature == "age")
    assert isinstance(low, float) and low == pytest.approx(60.5, abs=2)
    both = worst_group(confidence_N, right_N, features, swap=True)
    assert len(both.groups) == 2 and both.threshold == 40 and audit.threshold == 20 and both.groups[0].log_e > 0


def test_the_numbers_are_those_of_the_words_on_the_other_half() -> None:
    confidence_N, right_N, features = rows(3_000, seed=4)
    (group,) = worst_group(confidence_N, right_N, features, seed=9).groups
    search_N = np.zeros(3_000, bool)
    search_N[np.random.default_rng(9).permutation(3_000)[:1_500]] = True
    inside_N = ~search_N
    for condition in group.conditions:
        values = features[condition.feature]
        if condition.relation == "is":
            inside_N &= values == condition.value
        else:
            assert condition.relation == ">" and isinstance(condition.value, float)
            inside_N &= values > condition.value
    c_N, a_N = confidence_N[inside_N], right_N[inside_N]
    assert group.rows == inside_N.sum() and group.share == group.rows / 1_500
    assert group.accuracy == a_N.mean() and group.mean_confidence == c_N.mean()
    capital = [1.0] * len(STAKES)
    for c, a in zip(c_N.tolist(), a_N.tolist(), strict=True):  # one row after the other, as a gambler would
        capital = [m * (1 + L * ((c - a) - 0.02) / 1.02) for m, L in zip(capital, STAKES, strict=True)]
    assert group.log_e == pytest.approx(math.log(sum(capital) / len(STAKES)))


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_bet_is_fair_at_the_limit_of_the_null(sign: float) -> None:
    for c in (0.5, 0.8, 0.97):
        truth = min(c + sign * 0.02, 1.0)
        right, wrong = (math.exp(log_e_value(np.array([c]), np.array([a]), sign, 0.02)) for a in (True, False))
        assert truth * right + (1 - truth) * wrong <= 1 + 1e-12


def test_sound_tables_seldom_get_a_group() -> None:
    """At the limit of the null, with 40 tables: 6 finds or more of 5% each have a probability of 1.4%."""
    found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        confidence_N = np.where(rng.random(400) < 0.5, 0.98, rng.uniform(0.5, 0.9, 400))
        features = {"x": rng.normal(size=400), "k": rng.choice(list("abc"), 400), "c": confidence_N}
        found += worst_group(confidence_N, rng.random(400) < confidence_N - 0.02, features, seed=seed).is_found
    assert found < 6


def drawn_rows(seed: int, n: int = 5_000) -> list[Any]:
    """Labelled rows of a sound population: sure answers are better than they say, others worse and labelled more."""
    rng = np.random.default_rng(seed)
    is_sure_N = rng.random(n) < 0.5
    confidence_N = np.where(is_sure_N, 0.85, 0.65)
    right_N = rng.random(n) < confidence_N + np.where(is_sure_N, 0.15, -0.15)
    propensity_N = np.where(is_sure_N, 0.1, 0.9)
    labelled_N = rng.random(n) < propensity_N
    return [some[labelled_N] for some in (confidence_N, right_N, propensity_N, rng.normal(size=n))]


def test_the_audit_is_about_all_answers_if_labels_are_drawn_with_propensities() -> None:
    """Without propensities, the rows are off by 12 points. 4 finds or more of 20, of 5% each, have a chance of 2%."""
    found = {True: 0, False: 0}
    for seed in range(20):
        c_N, right_N, p_N, x_N = drawn_rows(seed)
        for is_weighted in found:
            audit = worst_group(c_N, right_N, {"x": x_N}, propensity_N=p_N if is_weighted else None, seed=seed)
            found[is_weighted] += audit.is_found
            assert audit.left_out == 0 and audit.groups[0].rows <= audit.groups[0].labels
    assert found[True] < 4 and found[False] > 15


def test_a_group_with_one_propensity_loses_no_label() -> None:
    rng = np.random.default_rng(2)
    night_N = rng.random(3_000) < 0.2
    p_N = np.where(night_N, 0.8, 0.1)
    right_N = rng.random(3_000) < 0.9 - 0.4 * night_N
    labelled_N = rng.random(3_000) < p_N
    audit = worst_group(
        np.full(3_000, 0.9)[labelled_N],
        right_N[labelled_N],
        {"night": night_N[labelled_N]},
        propensity_N=p_N[labelled_N],
    )
    (group,) = audit.groups
    assert audit.is_found and group.rows == group.labels and group.share == pytest.approx(0.2, abs=0.03)


def test_rows_without_a_propensity_take_no_part() -> None:
    """Complaints, which are all wrong, do not make the group bad."""
    rng = np.random.default_rng(4)
    right = [*(rng.random(400) < 0.9), *[False] * 100]
    features = {"complained": [False] * 400 + [True] * 100}
    audit = worst_group([0.9] * 500, right, features, propensity_N=[0.5] * 400 + [np.nan] * 100)
    assert (audit.rows, audit.left_out) == (400, 100) and not audit.is_found
    said = audit_of(audit, [*features], ["Looked."])
    assert said.notes == ["Looked.", "100 labels have no propensity and are left out: no random sample."]
    unknown = worst_group([0.9] * 500, right, features, propensity_N=[np.nan] * 500)
    assert (unknown.rows, unknown.left_out) == (500, 0) and unknown.is_found
    with pytest.raises(ValueError, match=r"9 rows with a propensity \(491 have none\) are too few"):
        worst_group([0.9] * 500, right, features, propensity_N=[0.5] * 9 + [np.nan] * 491)
    for bad in (0.0, 1.5):
        with pytest.raises(ValueError, match=f"propensity holds {bad}; allowed is"):
            worst_group([0.9] * 500, right, features, propensity_N=[bad] * 500)
    with pytest.raises(ValueError, match=r"propensity has shape \(2,\); expected \(500,\)"):
        worst_group([0.9] * 500, right, features, propensity_N=[0.5, 0.5])


def test_missing_values_may_be_the_group() -> None:
    rng = np.random.default_rng(1)
    gone_N = rng.random(3_000) < 0.3
    for values in (np.where(gone_N, np.nan, rng.normal(size=3_000)), np.where(gone_N, "", "known")):
        audit = worst_group([0.9] * 3_000, rng.random(3_000) < 0.9 - 0.3 * gone_N, {"x": values})
        assert audit.is_found and audit.groups[0].words in ("x is missing", 'x is not "known" or missing')


def test_words() -> None:
    assert str(Condition("age", "<=", 30.5, with_missing=True)) == "age <= 30.5 or missing"
    assert str(Condition("site", "is", "north")) == 'site is "north"'
    rng = np.random.default_rng(0)
    everywhere = worst_group([0.9] * 900, rng.random(900) < 0.6, {"x": rng.normal(size=900)})
    assert everywhere.groups[0].words == "all rows" and everywhere.groups[0].share == 1


@pytest.mark.parametrize(("alpha", "words"), [(0.05, "at most 5%"), (0.025, "at most 2.5%"), (0.001, "at most 0.1%")])
def test_a_small_alpha_is_not_rounded(alpha: float, words: str) -> None:
    audit = worst_group([0.9] * 50, [True] * 50, {"x": range(50)}, alpha=alpha)
    assert audit_of(audit, ["x"], []).reading.endswith(f"with a probability of {words}.")


def test_refusals() -> None:
    c, a = [0.9] * 50, [True] * 50
    for change, words in (
        ({"tolerance": 0.7}, "tolerance is 0.7"),
        ({"depth": 9}, "depth is 9; allowed are whole numbers from 1 to 6"),
        ({"alpha": 0}, "alpha is 0"),
    ):
        with pytest.raises(ValueError, match=words):
            worst_group(c, a, {"x": range(50)}, **change)
    with pytest.raises(ValueError, match=r"feature 'x' has 3 values, but there are 50 rows"):
        worst_group(c, a, {"x": [1, 2, 3]})
    with pytest.raises(ValueError, match=r"features is empty"):
        worst_group(c, a, {})
    with pytest.raises(ValueError, match=r"5 rows are too few for an audit; give 40 or more"):
        worst_group(c[:5], a[:5], {"x": range(5)})


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (
            [*map(str, range(59)), "n/a"],
            "'x' is read as text, because 1 of 60 values are not numbers, such as 'n/a'; leave",
        ),
        (
            [f"{k},5" for k in range(60)],
            "'x' is read as text, such as '0,5'; a decimal comma is written as a point: 0.5",
        ),
        ([f"id {k}" for k in range(60)], "Of 60 values of x, the 30 most frequent may form groups."),
        ([1.5] * 50 + [math.inf] * 10, "because 10 of 60 values are not numbers, such as 'inf'"),
        (["a", "b"] * 30, ""),
        (range(60), ""),
    ],
)
def test_a_feature_that_may_be_meant_otherwise_is_said(cells: Any, words: str) -> None:
    found = worst_group([0.9] * 60, [True] * 60, {"x": cells})
    assert words in " ".join(found.notes) and bool(found.notes) == bool(words)
    assert set(found.notes) <= {*audit_of(found, ["x"], []).notes}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    confidence_N, right_N, features = rows(4_000)
    path, out = tmp_path / "answers.csv", tmp_path / "audit.json"
    lines = ["confidence,correct,age,site"]
    for c, a, age, site in zip(confidence_N, right_N, features["age"], features["site"], strict=True):
        lines.append(f"{c},{int(a)},{'' if math.isnan(age) else int(age)},{site}")
    path.write_text("\n".join(lines), encoding="utf-8")
    assert main("trueodds", COMMANDS, ["audit", str(path), "--features", "age,site", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("A group is off by more than 0.02:\n- ") and 'site is "north"' in text
    assert "Groups are found on half of the 4,000 labelled rows" in text
    document = json.loads(out.read_text(encoding="utf-8"))
    direct = worst_group(confidence_N, right_N, {name: features[name] for name in ("age", "site")})
    assert document["is_found"] and document["groups"][0]["words"] == direct.groups[0].words
    assert document["groups"][0]["log_e"] == pytest.approx(direct.groups[0].log_e)
    for words, message in (
        (["--features", "height"], "--features names 'height'"),
        (["--features", "age,age"], "name each column once"),
        (["--features", "Age"], "Did you mean 'age'?"),
        (["--features", "correct"], "and neither the label's column nor correct"),
        (["--features", "age", "--depth", "0"], "depth is 0"),
    ):
        assert main("trueodds", COMMANDS, ["audit", str(path), *words]) != 0
        assert message in capsys.readouterr().err
    np.savez(tmp_path / "answers.npz", logits=np.zeros((3, 2)), labels=[0, 1, 0])
    assert main("trueodds", COMMANDS, ["audit", str(tmp_path / "answers.npz"), "--features", "age"]) != 0
    assert "has no named columns" in capsys.readouterr().err


def test_members_are_the_rows_of_the_words() -> None:
    confidence_N, right_N, features = rows(6_000)
    (group,) = worst_group(confidence_N, right_N, features).groups
    low = next(c.value for c in group.conditions if c.feature == "age")
    assert isinstance(low, float)
    assert group.members(features).tolist() == ((features["age"] > low) & (features["site"] == "north")).tolist()
    assert group.members({"age": [80, 80, None], "site": ["north", "south", "north"]}).tolist() == [True, False, False]
    for given, words in (
        ({}, "features is empty"),
        ({"age": [1]}, "features lacks 'site', a column of the group"),
        ({"age": [1], "site": [3]}, "feature 'site' has numbers; give texts, as in the audit"),
        ({"age": ["old"], "site": ["north"]}, "feature 'age' has texts; give numbers, as in the audit"),
    ):
        with pytest.raises(ValueError, match=words):
            group.members(given)


@pytest.mark.parametrize("seed", range(8))
def test_the_split_is_that_of_scikit_learn(seed: int) -> None:
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(seed)
    columns_FN = [
        rng.normal(size=300).astype(np.float32).astype(np.float64),
        (rng.random(300) < 0.1).astype(np.float64),
        rng.integers(0, 4, 300).astype(np.float64),
        np.ones(300),
    ]
    residual_N = rng.normal(size=300) + 0.5 * (columns_FN[seed % 3] > 0.5)
    fewest = 10 + 20 * (seed % 2)
    regressor = DecisionTreeRegressor(max_depth=1, min_samples_leaf=fewest, random_state=0)
    tree = regressor.fit(np.column_stack(columns_FN), residual_N).tree_
    found = best_split(columns_FN, residual_N, fewest)
    assert found is not None and found[0] == tree.feature[0] and found[1] == pytest.approx(tree.threshold[0])


def test_no_split_is_allowed() -> None:
    assert best_split([np.ones(50)], np.arange(50.0), 10) is None
    assert best_split([np.arange(50.0)], np.arange(50.0), 26) is None
    assert best_split([], np.arange(50.0), 10) is None
