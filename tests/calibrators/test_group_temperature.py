"""Temperatures by group: formula, gradient, likelihood, special cases, unlike populations, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy.optimize import minimize

from tests import reference_calibrators
from trueodds import calibrators, logits_of, metrics
from trueodds.calibrators import GroupTemperature, Temperature
from trueodds.calibrators.fitting.group_loss import GroupLoss, best_spread, log_evidence
from trueodds.calibrators.held_out import calibrated_nll

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def drawn(sizes: list[int], temperatures: Any, classes: int = 3, spread: float = 3.0, seed: int = 0) -> Rows:
    """Logits, labels from softmax(z / T_g), and the groups a, b, .. in a random order."""
    rng = np.random.default_rng(seed)
    group_N = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    z_NC = rng.normal(0, spread, (len(group_N), classes))
    p_NC = metrics.softmax(z_NC / np.asarray(temperatures)[group_N][:, None])
    labels_N = (p_NC.cumsum(axis=1) > rng.random((len(z_NC), 1))).argmax(axis=1)
    return z_NC, labels_N, np.array([chr(97 + g) for g in group_N], dtype=object)


def fit(rows: Rows, **options: Any) -> GroupTemperature:
    found = calibrators.fit(rows[0], rows[1], "group_temperature", groups=rows[2], **options)
    assert isinstance(found, GroupTemperature)
    return found


def loss_of(rows: Rows, prior: float = 0.0) -> GroupLoss:
    names = sorted({*rows[2].tolist()} - {None})
    index_N = np.array([names.index(g) if g is not None else -1 for g in rows[2]], dtype=np.intp)
    found = calibrators.fit(rows[0], rows[1], "temperature", shrinkage=0.0)
    assert isinstance(found, Temperature)
    return GroupLoss(rows[0], rows[1], index_N, len(names), found.temperature, prior)


@pytest.mark.parametrize("shrinkage", [0.0, 2.0])
@pytest.mark.parametrize("spread", [0.1, 0.8])
def test_it_minimises_the_loss_of_its_slow_twin(spread: float, shrinkage: float) -> None:
    z_NC, labels_N, groups = drawn([30, 5, 25], [0.6, 1.0, 3.0])
    groups[:8] = None  # rows without a group have T
    found = fit((z_NC, labels_N, groups), spread=spread, shrinkage=shrinkage)

    def twin(theta_P: np.ndarray) -> float:
        deviations = dict(zip("abc", theta_P[1:].tolist(), strict=True))
        args = z_NC.tolist(), labels_N.tolist(), groups.tolist(), float(theta_P[0]), deviations, shrinkage, spread
        return reference_calibrators.grouped_nll(*args)

    best = minimize(twin, np.zeros(4), method="BFGS", options={"gtol": 1e-7})
    ours = np.array([np.log(found.temperature), *np.asarray(found.log_ratio_G)])
    assert twin(ours) <= best.fun + 1e-9
    np.testing.assert_allclose(ours, best.x, atol=2e-5)


@pytest.mark.parametrize("prior", [0.0, 0.05])
def test_slope_and_curvature_are_the_differences_of_the_loss(prior: float) -> None:
    rows = drawn([40, 10], [0.5, 2.0], classes=4)
    rows[2][:5] = None
    loss, x_S, h = loss_of(rows, prior), np.array([0.3, -0.4, 0.1]), 1e-5
    _, slope_S, expected_S = loss(x_S)
    above, below = loss(x_S + h), loss(x_S - h)  # each sum depends on its own x only
    np.testing.assert_allclose(slope_S, (above[0] - below[0]) / (2 * h), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(expected_S - slope_S, (above[1] - below[1]) / (2 * h), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("spread", [0.1, 0.4])
def test_the_evidence_is_the_integral_over_all_temperatures(spread: float) -> None:
    rows = drawn([400, 150, 60], [1.0, 1.6, 0.7])
    loss = loss_of(rows)
    grid = np.linspace(-2.5, 2.5, 2001)
    likelihood_GM = np.exp(-np.array([(loss(np.full(4, x))[0] - loss(np.zeros(4))[0])[:3] for x in grid[::10]]).T)
    likelihood_GM = np.array([np.exp(np.interp(grid, grid[::10], np.log(line))) for line in likelihood_GM])
    normal_MX = np.exp(-((grid[:, None] - grid) ** 2) / (2 * spread**2)) / (spread * np.sqrt(2 * np.pi))
    step = grid[1] - grid[0]
    given_m = np.prod(normal_MX @ likelihood_GM.T * step, axis=1)
    exact = np.log(given_m.sum() / np.prod(likelihood_GM, axis=0).sum())
    loss_S, slope_S, expected_S = loss(np.zeros(4))
    information = float((expected_S - slope_S).sum())
    ours = log_evidence(spread, loss.minimum(spread, 1e-10), float(loss_S.sum()), information)
    assert ours == pytest.approx(exact, abs=0.05)


def test_one_group_and_an_infinite_penalty_are_temperature_scaling() -> None:
    z_NC, labels_N, groups = drawn([300, 300], [1.0, 3.0])
    plain = calibrators.fit(z_NC, labels_N, "temperature")
    assert isinstance(plain, Temperature)
    for same in (
        fit((z_NC, labels_N, np.full(600, "a", dtype=object))),
        fit((z_NC, labels_N, groups), spread=0.0),
        fit((z_NC, labels_N, np.full(600, None))),
    ):
        assert same.temperature == plain.temperature
        np.testing.assert_array_equal(same(z_NC, groups=groups), plain(z_NC))
    one = fit((z_NC, labels_N, np.full(600, "a", dtype=object)), spread=0.5)
    assert one.temperatures["a"] == pytest.approx(plain.temperature, rel=1e-9)
    narrow = fit((z_NC, labels_N, groups), spread=1e-4)
    assert list(narrow.temperatures.values()) == pytest.approx([plain.temperature] * 2, rel=1e-4)


def test_a_small_group_shrinks_to_the_whole_and_a_large_one_keeps_its_own() -> None:
    rows = drawn([2000, 2000, 2000, 10], [0.8, 1.2, 1.8, 5.0])
    found, small_N = fit(rows), rows[2] == "d"
    own = found.temperatures
    assert found.spread > 0
    assert [own["a"], own["b"], own["c"]] == pytest.approx([0.8, 1.2, 1.8], rel=0.1)
    alone = calibrators.fit(rows[0][small_N], rows[1][small_N], "temperature")
    assert isinstance(alone, Temperature)
    assert abs(np.log(own["d"] / found.temperature)) < 0.8 * abs(np.log(alone.temperature / found.temperature))


def test_rows_of_no_known_group_get_the_temperature_of_the_whole() -> None:
    z_NC, labels_N, groups = drawn([500, 500], [0.7, 2.5])
    found = fit((z_NC, labels_N, groups))
    whole = Temperature(found.temperature)(z_NC[:4])
    for none in (None, ["new", None, float("nan"), ""], [np.nan] * 4):
        np.testing.assert_array_equal(found(z_NC[:4], groups=none), whole)
    mixed = found.predict_proba(z_NC[:4], groups=["a", "b", None, "a"])
    for n, name in enumerate(["a", "b", None, "a"]):
        temperature = found.temperatures.get(str(name), found.temperature)
        np.testing.assert_allclose(mixed[n], Temperature(temperature)(z_NC[n : n + 1])[0], rtol=1e-13)
    assert found.groups_of(["a", "new", None]) == ["a", None, None]
    many = np.tile(z_NC, (400, 1)), np.tile(groups, 400)  # several blocks
    np.testing.assert_array_equal(found(many[0], groups=many[1])[-1000:], found(z_NC, groups=groups))


def test_integers_name_groups_and_a_fit_without_groups_says_so() -> None:
    z_NC, labels_N, groups = drawn([300, 300], [0.7, 2.5])
    numbers = [0 if g == "a" else 1 for g in groups]
    found = fit((z_NC, labels_N, np.array(numbers)))
    assert found.known_groups == ("0", "1")
    np.testing.assert_array_equal(found(z_NC, groups=numbers), fit((z_NC, labels_N, groups))(z_NC, groups=groups))
    bare = calibrators.fit(z_NC, labels_N, "group_temperature")
    assert "The fit got no groups" in bare.warnings[0]
    np.testing.assert_array_equal(bare(z_NC), calibrators.fit(z_NC, labels_N, "temperature")(z_NC))


def test_groups_of_arrow_and_torch_are_read_by_value() -> None:
    z_NC, labels_N, groups = drawn([300, 300], [0.7, 2.5])
    numbers = [0 if g == "a" else 1 for g in groups]
    named, numbered = fit((z_NC, labels_N, groups)), fit((z_NC, labels_N, np.array(numbers)))
    texts = pa.array([*groups[:-1], None])
    for given in (texts, pa.chunked_array([texts[:9], texts[9:]]), texts.dictionary_encode()):
        found = calibrators.fit(z_NC, labels_N, "group_temperature", groups=given)
        assert found.known_groups == named.known_groups
        np.testing.assert_array_equal(named(z_NC, groups=given), named(z_NC, groups=[*groups[:-1], None]))
    for tensors in (torch.tensor(numbers), list(torch.tensor(numbers))):
        np.testing.assert_array_equal(numbered(z_NC, groups=tensors), numbered(z_NC, groups=numbers))
    with pytest.raises(ValueError, match=r"groups\[0\] is .*; allowed are strings, integers, and None"):
        numbered(z_NC, groups=torch.full((600,), 0.5))


def test_it_survives_json_and_a_file(tmp_path: Path) -> None:
    found = fit(drawn([300, 300, 4], [0.7, 2.5, 1.0]))
    assert calibrators.from_json(json.loads(json.dumps(found.to_json()))) == found
    found.save(tmp_path / "calibrator.json")
    again = calibrators.from_json(json.loads((tmp_path / "calibrator.json").read_text()))
    assert isinstance(again, GroupTemperature)
    assert again.temperatures == found.temperatures and again.group_rows == {"a": 300, "b": 300, "c": 4}
    tree = found.to_json()
    for broken, words in (
        ({"groups": ["a", "a", "b"]}, "allowed is a list of different names"),
        ({"groups": ["a", "b"]}, "has shape"),
        ({"log_ratio_G": [0, 0, 99]}, "allowed is"),
        ({"spread": -1}, "spread is -1"),
        ({"temperature": 0}, "above 0"),
    ):
        with pytest.raises(ValueError, match=words):
            calibrators.from_json(tree | broken)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (["a"], "groups has 1 entries for 60 rows"),
        ("a" * 60, "allowed is a sequence"),
        ([0.5] * 60, r"groups\[0\] is 0.5; allowed are strings, integers, and None"),
        ([True] * 60, r"groups\[0\] is True"),
    ],
)
def test_groups_that_cannot_be_used_are_refused(groups: Any, words: str) -> None:
    z_NC, labels_N, _ = drawn([60], [1.0])
    found = fit(drawn([60, 60], [0.5, 3.0]), spread=0.5)
    for call in (
        lambda: calibrators.fit(z_NC, labels_N, "group_temperature", groups=groups),
        lambda: calibrators.select(z_NC, labels_N, groups=groups),
        lambda: found(z_NC, groups=groups),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_other_calibrators_refuse_groups_in_the_fit_and_ignore_them_after() -> None:
    z_NC, labels_N, groups = drawn([60], [1.0])
    with pytest.raises(ValueError, match="'temperature' treats all rows alike; leave groups out, or choose"):
        calibrators.fit(z_NC, labels_N, "temperature", groups=groups)
    plain = calibrators.fit(z_NC, labels_N, "temperature")
    np.testing.assert_array_equal(plain(z_NC, groups=groups), plain(z_NC))
    with pytest.raises(ValueError, match="groups has 3 entries"):
        plain(z_NC, groups=["a"] * 3)


def test_select_takes_it_where_groups_differ_and_one_temperature_where_they_do_not() -> None:
    for temperatures, wins in (([0.6, 2.5], True), ([1.5, 1.5], False)):
        z_NC, labels_N, groups = drawn([400, 400], temperatures)
        found = calibrators.select(z_NC, labels_N, candidates=["temperature", "group_temperature"], groups=groups)
        assert (found.calibrator.name == "group_temperature") == wins
        table = {line.name: line for line in found.table}
        nll = [calibrated_nll(found.calibrator, z_NC, labels_N, groups).mean(), table["temperature"].nll]
        assert nll[0] <= (nll[1] or 0) + 1e-3
    default = [line.name for line in calibrators.select(z_NC, labels_N, groups=groups).table]
    assert default[-1] == "group_temperature"
    assert "group_temperature" not in [line.name for line in calibrators.select(z_NC, labels_N).table]


def test_rounded_probabilities_keep_their_groups() -> None:
    z_NC, labels_N, groups = drawn([400, 400], [0.6, 2.5])
    rounded = np.round(metrics.softmax(z_NC), 2)
    logits = logits_of(rounded, resolution=0.01)
    found = calibrators.fit(logits, labels_N, "group_temperature", groups=groups, resolution=0.01)
    assert found.known_groups == ("a", "b")
    restored = calibrators.from_json(json.loads(json.dumps(found.to_json())))
    np.testing.assert_array_equal(restored(logits, groups=groups), found(logits, groups=groups))
    assert np.abs(found(logits, groups=groups) - found(logits)).max() > 0.05


@pytest.mark.parametrize("hard", ["certain", "equal", "masked", "huge", "right"])
def test_extreme_logits_give_finite_temperatures(hard: str) -> None:
    z_NC, labels_N, groups = drawn([100, 100], [0.6, 2.5])
    if hard == "certain":
        z_NC[groups == "b"] *= 1e4
    elif hard == "equal":
        z_NC[groups == "b"] = 0.0
    elif hard == "masked":
        z_NC[:, 2] = np.where(labels_N == 2, z_NC[:, 2], -1e6)
    elif hard == "huge":
        z_NC *= 1e5
    else:
        labels_N = z_NC.argmax(axis=1)
    for spread in (None, 0.8):
        found = fit((z_NC, labels_N, groups), spread=spread)
        assert np.isfinite([found.temperature, *found.temperatures.values()]).all()
        p_NC = found(z_NC, groups=groups)
        assert np.isfinite(p_NC).all() and np.allclose(p_NC.sum(axis=1), 1)


def test_too_many_groups_keep_the_largest() -> None:
    z_NC, labels_N, _ = drawn([2202], [1.0])
    groups = [f"g{n // 2}" for n in range(2000)] + ["big"] * 202
    found = fit((z_NC, labels_N, np.array(groups, dtype=object)))
    assert len(found.groups) == 1000 and found.group_rows["big"] == 202
    assert any("At most 1,000 groups" in note for note in found.warnings)


WORLD = ("sizes", "temperatures", "classes", "spread")
SIMULATED = [
    pytest.param([200] * 8, np.geomspace(0.5, 2.0, 8), 10, 6.0, id="unlike, sharp"),
    pytest.param([150] * 6, np.geomspace(0.6, 1.8, 6), 2, 1.5, id="unlike, dull, two classes"),
    pytest.param([4000] + [30] * 20, np.geomspace(0.7, 1.6, 21), 5, 3.0, id="unlike, one large and many small"),
]
EQUAL = [
    pytest.param([20] * 20, 1.5, 3, 3.0, id="equal, few rows"),
    pytest.param([300] * 2, 0.8, 10, 4.0, id="equal, two groups"),
    pytest.param([200] * 5, 1.0, 10, 27.0, id="equal, rare errors"),
]


def gains(sizes: list[int], temperatures: Any, classes: int, spread: float, draws: int = 12) -> np.ndarray:
    """NLL of one temperature minus that by group, on new rows, for several draws."""
    found = []
    for seed in range(draws):
        rows = drawn(sizes, temperatures, classes, spread, seed)
        test = drawn([200] * len(sizes), temperatures, classes, spread, 1000 + seed)
        one = calibrators.fit(rows[0], rows[1], "temperature")
        own = fit(rows)
        nll = [calibrated_nll(each, test[0], test[1], test[2]).mean() for each in (one, own)]
        found.append(nll[0] - nll[1])
    return np.array(found)


@pytest.mark.parametrize(WORLD, SIMULATED)
def test_groups_that_differ_lose_less(sizes: list[int], temperatures: Any, classes: int, spread: float) -> None:
    found = gains(sizes, temperatures, classes, spread)
    assert found.mean() > 3 * found.std(ddof=1) / np.sqrt(len(found))


@pytest.mark.parametrize(WORLD, EQUAL)
def test_groups_that_are_equal_lose_next_to_nothing(
    sizes: list[int], temperatures: float, classes: int, spread: float
) -> None:
    found = gains(sizes, [temperatures] * len(sizes), classes, spread)
    assert found.mean() > -0.002
    assert (found == 0).mean() >= 0.4  # one temperature for all, in about half of the draws or more


def test_the_spread_follows_the_groups() -> None:
    equal = [best_spread(loss_of(drawn([500] * 6, [1.5] * 6, seed=seed))) for seed in range(9)]
    assert np.median(equal) == 0 and max(equal) <= 0.1
    wide = best_spread(loss_of(drawn([500] * 6, np.geomspace(0.4, 2.5, 6))))
    assert wide >= 0.4


@pytest.mark.parametrize(
    "groups", [{"1", "2"}, {"1": 0, "2": 1}, pd.DataFrame({"1": ["2", "2"], "2": ["1", "1"]}), np.array("1")]
)
def test_groups_without_an_order_of_rows_are_refused(groups: Any) -> None:
    """A set has no order, and a mapping or a data frame iterates over its names."""
    fitted = calibrators.GroupTemperature(1.5, ["1", "2"], [-0.7, 0.9], [60, 40], 0.4)
    with pytest.raises(ValueError, match="allowed is a sequence with the name of each row's group"):
        fitted([[2.0, 0.0], [0.0, 2.0]], groups=groups)


@pytest.mark.parametrize("count", [100, 1000])
def test_a_group_that_contradicts_its_logits_leaves_the_others_their_temperature(count: int) -> None:
    """Its labels are most often those of the lowest logit. One temperature of all rows would stop at its end."""
    rng = np.random.default_rng(0)
    z_NC = rng.normal(0, 3, (1000 + count, 3))
    p_NC = np.exp(z_NC * np.where(np.arange(1000 + count) < 1000, 0.5, -0.8)[:, None])
    p_NC /= p_NC.sum(axis=1, keepdims=True)
    y_N = (p_NC.cumsum(axis=1) > rng.random((len(z_NC), 1))).argmax(axis=1)
    tags = ["sound"] * 1000 + ["inverted"] * count
    fitted = calibrators.fit(z_NC, y_N, "group_temperature", groups=tags)
    assert isinstance(fitted, GroupTemperature) and fitted.bound is None
    assert fitted.temperatures["sound"] == pytest.approx(2, abs=0.3) and fitted.temperatures["inverted"] > 50
    assert any("Groups 'inverted' have temperatures near the end" in words for words in fitted.warnings) == (
        count == 1000
    )
