"""`trueodds compare --set-level`: coverage and size of conformal sets on the same rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import trueodds
from trueodds import cli
from trueodds.calibrators import conformal
from trueodds.errors import ConfigError
from trueodds.metrics import softmax
from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.texts import short


def run(*words: object) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["compare", *map(str, words)])


def made(path: Path, p_NC: Any, labels: list[str], sets: list[list[str]], ids: list[str]) -> Path:
    rows = zip(ids, *np.round(p_NC.T, 6).tolist(), labels, map(json.dumps, sets), strict=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "a", "b", "c", "label", "set"), *rows])
    return path


def drawn(folder: Path, count: int = 500) -> tuple[list[Path], list[list[list[str]]], list[str]]:
    """Tables of two models; the second has the rows in another order, and some labels are missing in one of them."""
    rng = np.random.default_rng(3)
    logits_NC = rng.normal(0, 2, (2 * count, 3))
    y_N = (softmax(logits_NC).cumsum(axis=1) > rng.random((2 * count, 1))).argmax(axis=1)
    labels, ids = ["abc"[k] for k in y_N[count:]], [f"r{n}" for n in range(count)]
    paths, found = [], []
    for name, noise in (("old", 1.5), ("new", 0.0)):
        p_NC = softmax(logits_NC + noise * rng.normal(size=logits_NC.shape))
        inside_NC = conformal.fit(p_NC[:count], y_N[:count], "lac").at(0.9).sets(p_NC[count:])
        sets = [["abc"[k] for k in np.flatnonzero(row)] for row in inside_NC]
        found.append(sets)
        order = rng.permutation(count) if name == "new" else np.arange(count)
        known = ["" if name == "old" and n < 20 else labels[n] for n in order]
        own = [sets[n] for n in order]
        paths.append(made(folder / f"{name}.csv", p_NC[count:][order], known, own, [ids[n] for n in order]))
    return paths, found, labels


def test_the_figures_are_those_of_the_common_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths, sets, labels = drawn(tmp_path)
    assert run(*paths, "--set-level", 0.9, "--json", tmp_path / "c.json") == 0
    printed = capsys.readouterr().out
    part = json.loads((tmp_path / "c.json").read_text())["sets"]
    rows = range(20, 500)
    hit_MN = np.array([[labels[n] in of[n] for n in rows] for of in sets])
    size_MN = np.array([[len(of[n]) for n in rows] for of in sets])
    for one, hit_N, size_N in zip(part["models"], hit_MN, size_MN, strict=True):
        assert (one["hits"], one["mean_size"]) == (hit_N.sum(), pytest.approx(size_N.mean()))
        assert one["empty"] == (size_N == 0).sum()
        assert (one["lower"], one["upper"]) == pytest.approx(
            tuple(map(float, binomial_interval(int(hit_N.sum()), 480)))
        )
    coverage, size = part["differences"]
    for one, (old_N, new_N) in ((coverage, hit_MN.astype(float)), (size, size_MN.astype(float))):
        twin = stats.ttest_rel(new_N, old_N)
        limits = twin.confidence_interval(0.95)
        assert (one["model"], one["baseline"]) == ("new", "old")
        assert (one["value"], one["p_value"]) == pytest.approx(((new_N - old_N).mean(), twin.pvalue))
        assert (one["lower"], one["upper"]) == pytest.approx((limits.low, limits.high))
    assert size["value"] < 0 and "new: size of the sets -0." in printed and "Conformal sets of level 0.9" in printed
    assert "20 rows without a label in every table left out." in printed


def test_three_models_are_corrected_for_their_number(tmp_path: Path) -> None:
    (old, new), _, _ = drawn(tmp_path)
    same = tmp_path / "same.csv"
    same.write_text(old.read_text())
    run(old, new, same, "--set-level", 0.9, "--json", tmp_path / "c.json")
    both = json.loads((tmp_path / "c.json").read_text())["sets"]["differences"]
    run(old, new, "--set-level", 0.9, "--json", tmp_path / "c.json")
    (_, alone) = json.loads((tmp_path / "c.json").read_text())["sets"]["differences"]
    assert both[1]["p_value"] == pytest.approx(2 * alone["p_value"])
    assert both[2]["value"] == both[3]["value"] == 0 and both[2]["differing"] == 0
    share = 100 * (1 - 0.025 ** (1 / 480))
    told = f"no difference from old's in 480 rows: at most {share:.2f}% of all rows differ"
    limits = f"[-{share:.2f}, +{share:.2f}]"
    assert f"same: coverage of the sets +0.00 points {limits}, {told}" in both[2]["sentence"]


def test_tables_without_sets_and_bad_levels_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (old, new), _, _ = drawn(tmp_path)

    def refused(*words: object) -> str:
        assert run(*words) == 1
        return capsys.readouterr().err

    assert "--set-level is 1.5; allowed is (0, 1)" in refused(old, new, "--set-level", 1.5)
    assert "--set-rows 500 without --set-level" in refused(old, new, "--set-rows", 500)
    assert "--set-rows is 0; allowed are whole numbers from 1" in refused(old, new, "--set-level", 0.9, "--set-rows", 0)
    for text in ("many", "5.5", "1,2,3", "500,", "-5", "1" * 5000):
        said = refused(old, new, "--set-level", 0.9, f"--set-rows={text}")
        assert f"--set-rows is {short(text)}, and there are 2 tables; allowed is a whole number" in said
    said = refused(old, new, "--set-level", 0.9, "--set-rows", 10**400)
    assert "--set-rows is 1000" in said and "allowed are whole numbers from 1 to 2^53 - 1" in said
    rows = list(csv.reader(old.read_text().splitlines()))
    plain = tmp_path / "plain.csv"
    plain.write_text("\n".join(",".join(row[:-1]) for row in rows) + "\n")
    assert "has no column 'set', which --set-level needs" in refused(plain, new, "--set-level", 0.9)
    text = new.read_text()
    new.write_text(text.replace("[]", "eggs", 1) if "[]" in text else text.replace('""a""', '""eggs""', 1))
    assert "new.csv, row" in refused(old, new, "--set-level", 0.9)
    assert run(old, plain) == 0
    assert "`trueodds report` and `compare` measure its coverage if --set-level names" in capsys.readouterr().out


def test_the_coverage_is_tested_against_the_floor_of_its_calibration_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, _, _ = drawn(tmp_path)
    assert run(*paths, "--set-level", 0.9, "--set-rows", "500,60", "--json", tmp_path / "c.json") == 0
    printed = capsys.readouterr().out
    models = json.loads((tmp_path / "c.json").read_text())["sets"]["models"]
    for one, rows in zip(models, (500, 60), strict=True):
        # The coverage of a threshold at rank k of n rows is Beta(k, n + 1 - k); sound ones reach its 5% quantile.
        rank = int(np.ceil(0.9 * (rows + 1)))
        floor = stats.beta.ppf(0.05, rank, rows + 1 - rank)
        assert (one["calibration_rows"], one["floor"]) == (rows, pytest.approx(floor))
        assert one["p_value"] == pytest.approx(stats.binom.cdf(one["hits"], 480, floor))
    assert "calibration rows" in printed and "To test each model's coverage" not in printed
    assert run(*paths, "--set-level", 0.9, "--set-rows", 500) == 0
    assert "calibration rows" in capsys.readouterr().out
    assert run(*paths, "--set-level", 0.9, "--set-rows", "500,8") == 0
    few = "A threshold of level 0.9 needs at least 9 calibration rows, and these sets have 8."
    assert few in (printed := capsys.readouterr().out) and "these sets have 500" not in printed
    assert run(*paths, "--set-level", 0.9) == 0
    assert "give the number of rows that chose its thresholds (--set-rows" in capsys.readouterr().out


def of_library(count: int = 300) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    rng = np.random.default_rng(5)
    logits_NC = rng.normal(0, 2, (2 * count, 3))
    y_N = (softmax(logits_NC).cumsum(axis=1) > rng.random((2 * count, 1))).argmax(axis=1)
    models = {
        name: softmax(logits_NC + noise * rng.normal(size=logits_NC.shape)) for name, noise in (("a", 1), ("b", 0))
    }
    sets = {
        name: conformal.fit(p_NC[:count], y_N[:count], "lac").at(0.9).sets(p_NC[count:])
        for name, p_NC in models.items()
    }
    return {name: p_NC[count:] for name, p_NC in models.items()}, y_N[count:], sets


def test_the_library_compares_sets_as_the_command_does(tmp_path: Path) -> None:
    models, y_N, sets = of_library()
    paths = []
    for name, p_NC in models.items():
        paths.append(tmp_path / f"{name}.npz")
        np.savez(paths[-1], probabilities=p_NC, labels=y_N, sets=sets[name])
    run(*paths, "--set-level", 0.9, "--set-rows", "300,200", "--json", tmp_path / "c.json")
    written = json.loads((tmp_path / "c.json").read_text())["sets"]
    options: dict[str, Any] = {"set_level": 0.9, "set_rows": {"a": 300, "b": 200}}
    found = trueodds.compare(models, y_N, sets=sets, **options)
    assert found.as_dict()["sets"] == written and "Conformal sets of level 0.9" in str(found)
    names = ["x", "y", "z"]
    lists = {name: [[names[k] for k in np.flatnonzero(row)] for row in inside] for name, inside in sets.items()}
    named = trueodds.compare(models, np.array(names)[y_N], classes=names, sets=lists, **options)
    reports = {name: trueodds.report(p_NC, y_N) for name, p_NC in models.items()}
    indices = {name: [np.flatnonzero(row).tolist() for row in inside] for name, inside in sets.items()}
    of_reports = trueodds.compare(reports, sets=indices, **options)
    assert named.as_dict()["sets"] == of_reports.as_dict()["sets"] == written
    assert trueodds.compare(models, y_N).sets is None
    alone = trueodds.compare(models, y_N, sets=sets, set_level=0.9).sets
    assert alone is not None and [one.calibration_rows for one in alone.models] == [None, None]


def test_sets_that_cannot_be_compared_say_which_row() -> None:
    models, y_N, sets = of_library(4)
    lists: dict[str, Any] = {name: [[0], [1], [], [0, 2]] for name in models}
    one = {"set_level": 0.9}
    for given, words in (
        ({"sets": sets}, "sets without set_level: give the level"),
        (one, "set_level 0.9 without sets: give the sets of each model"),
        ({"set_rows": 5}, "set_rows 5 without sets"),
        ({"sets": sets, "set_level": 1.5}, r"set_level is 1.5; allowed is \(0, 1\)"),
        ({"sets": sets["a"], **one}, "sets is ndarray; give those of each model by its name"),
        ({"sets": {"a": sets["a"]}, **one}, "sets has none of 'b'; give those of every model"),
        ({"sets": sets | {"c": sets["a"]}, **one}, "sets has 'c'; the models are 'a', 'b'"),
        ({"sets": sets, **one, "set_rows": {"a": 5}}, "set_rows has none of 'b'"),
        ({"sets": sets, **one, "set_rows": 10**5000}, "set_rows of 'a' is an int with too many digits to show"),
        ({"sets": sets, **one, "set_rows": 0.5}, "set_rows of 'a' is 0.5; allowed are whole numbers from 1"),
        (
            {"sets": sets | {"b": sets["b"][:3]}, **one},
            r"sets of 'b' has shape \(3, 3\) and type bool; give a bool array",
        ),
        ({"sets": sets | {"b": sets["b"] * 1}, **one}, r"sets of 'b' has shape \(4, 3\) and type int64"),
        ({"sets": lists | {"b": [[0]] * 3}, **one}, "sets of 'b' has 3 rows, and the models 4"),
        (
            {"sets": lists | {"b": [[0], [1], [], [3]]}, **one},
            "sets of 'b', row 4: the set holds 3; without names, the classes are 0 to 2; give a bool array of shape",
        ),
        ({"sets": lists | {"b": [[0], ["1"], [], []]}, **one}, "row 2: the set holds '1'; without names, the classes"),
        ({"sets": sets | {"b": [*sets["b"]]}, **one}, "row 1: the set holds .*(True|False).*; without names, the cl"),
        ({"sets": lists | {"b": [[0], [1, 1], [], []]}, **one}, "sets of 'b', row 2: the set holds 1 twice"),
        ({"sets": lists | {"b": [[0], "01", [], []]}, **one}, "sets of 'b', row 2: .* is no list of classes"),
    ):
        with pytest.raises(ConfigError, match=words):
            trueodds.compare(models, y_N, **given)
    nets = {name: np.stack([p_NC, p_NC]) for name, p_NC in models.items()}
    with pytest.raises(ConfigError, match="2 nets of each model, and sets; give one net of each"):
        trueodds.compare(nets, y_N, sets=sets, set_level=0.9)
