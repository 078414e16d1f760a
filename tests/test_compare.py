"""`trueodds.compare` and `trueodds compare`: models on the same rows, matched by ids or order."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import trueodds
from trueodds import cli, metrics
from trueodds.errors import ConfigError, UserError
from trueodds.metrics.significance.differences import of_rows
from trueodds.reports.table.comparison.models import NOTE, OF_REPORTS

Array = npt.NDArray[np.float64]
MEASURES = ["error_rate", "nll", "brier", "squared_calibration_error"]


def three_classes(n: int = 600, seed: int = 0) -> tuple[dict[str, Array], npt.NDArray[np.intp]]:
    """One model is right, the other twice as sure as it may be."""
    rng = np.random.default_rng(seed)
    logits_NC = rng.normal(0, 2, (n, 3))
    p_NC = metrics.softmax(logits_NC)
    labels_N = (p_NC.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return {"old": metrics.softmax(2 * logits_NC), "new": p_NC}, labels_N


def run(*words: object) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["compare", *map(str, words)])


def table(path: Path, p_NC: Array, labels_N: npt.NDArray[Any], ids: list[Any] | None = None) -> Path:
    names = [f"c{k}" for k in range(p_NC.shape[1])]
    lines = [",".join(["id"] * (ids is not None) + [*names, "label"])]
    for row, (p_C, label) in enumerate(zip(p_NC, labels_N, strict=True)):
        cells = [str(ids[row])] * (ids is not None) if ids else []
        lines.append(",".join([*cells, *(f"{p:.8f}" for p in p_C), "" if label < 0 else names[label]]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_reports_are_compared_as_their_arrays_are() -> None:
    models, labels_N = three_classes()
    arrays = trueodds.compare(models, labels_N)
    old, new = (trueodds.report(p_NC, labels_N) for p_NC in models.values())
    for found, names in (
        (trueodds.compare([old, new]), ["report 1", "report 2"]),
        (trueodds.compare({"old": old, "new": new}), ["old", "new"]),
    ):
        assert [one.name for one in found.models] == names and found.rows == 600
        for one, other in zip(found.differences, arrays.differences, strict=True):
            assert one.measure == other.measure
            assert (one.value, one.p_value) == pytest.approx((other.value, other.p_value))
        for model, twin in zip(found.models, arrays.models, strict=True):
            assert (model.ece, model.mce_floor, model.nll) == pytest.approx((twin.ece, twin.mce_floor, twin.nll))
            assert model.classwise_ece is None
        assert OF_REPORTS in found.notes and "class-wise" not in str(found).partition("\n\n")[0]


def test_reports_of_p_positive_are_compared_by_it() -> None:
    rng = np.random.default_rng(1)
    p, y = rng.random(300), rng.random(300)
    labels = np.array(["no", "yes"])[(y < p) * 1]
    reports = {"a": trueodds.report(p, labels, classes=["no", "yes"]), "b": trueodds.report(p**2, (y < p) * 1)}
    arrays = trueodds.compare({"a": p, "b": p**2}, (y < p) * 1)
    found = trueodds.compare(reports)
    assert [one.sentence for one in found.differences] == [one.sentence for one in arrays.differences]
    assert found.models[0].ece == arrays.models[0].ece


def test_reports_that_cannot_be_compared_say_what_is_missing() -> None:
    models, labels_N = three_classes(60)
    old, new = (trueodds.report(p_NC, labels_N) for p_NC in models.values())
    named = [trueodds.report(models["old"], np.array(list(order))[labels_N], classes=order) for order in ("abc", "bac")]
    for given, labels, message in (
        ([old, new], labels_N, "reports hold their labels, classes and resolution; give none"),
        ([old], None, "1 model to compare; give two or more"),
        ([old, models["new"]], None, "'report 2' is ndarray, and 'report 1' a report; give reports or arrays of all"),
        ([old, replace(new, rows=None)], None, "'report 2' has lost its rows .*make it again with trueodds.report"),
        (
            [old, trueodds.report(models["new"][:50], labels_N[:50])],
            None,
            "has 60 rows and 'report 2' 50; give reports",
        ),
        (
            [old, trueodds.report(models["new"], (labels_N + 1) % 3)],
            None,
            "different labels in 60 rows; give reports of",
        ),
        (
            [old, trueodds.report(models["new"][:, 0], (labels_N == 0) * 1)],
            None,
            "3 columns and 'report 2' about the positive",
        ),
        (named, None, "has the classes .'a', 'b', 'c'. and 'report 2' .'b', 'a', 'c'.; make both with the same"),
        (models, None, "models is dict, without labels; give .* or reports"),
        ([models["old"], models["new"]], labels_N, "models is list, with labels; give .*reports of trueodds.report"),
    ):
        with pytest.raises(ConfigError, match=message):
            trueodds.compare(given, labels)  # type: ignore[arg-type]


def test_arrays_are_compared_row_by_row() -> None:
    models, labels_N = three_classes()
    found = trueodds.compare(models, labels_N)
    assert [(one.model, one.baseline, one.measure) for one in found.differences] == [
        ("new", "old", measure) for measure in MEASURES
    ]
    of = {one.measure: one for one in found.differences}
    rows = np.arange(600)
    nll = of_rows((np.log(models["old"]) - np.log(models["new"]))[rows, labels_N][None])
    assert of["nll"].value == pytest.approx(nll.mean) and of["nll"].p_value == pytest.approx(nll.p_value or 0)
    assert of["error_rate"].value == 0 and of["error_rate"].p_value == 1
    assert of["squared_calibration_error"].value < 0 and of["squared_calibration_error"].p_value < 0.05
    old, new = found.models
    assert of["squared_calibration_error"].value == pytest.approx(
        new.squared_calibration_error - old.squared_calibration_error
    )
    report = trueodds.report(models["old"], labels_N)
    assert (old.ece, old.mce, old.nll) == pytest.approx((report.ece, report.mce, report.nll))
    assert old.ece_floor == pytest.approx(report.floor_mean) and new.classwise_ece_floor is not None
    text = str(found)
    assert f"{old.ece:.4f}, floor {old.ece_floor:.4f}" in text and NOTE in text
    assert "one seed, which compares two nets, not two methods" in text and "Holm" not in text
    assert not any(word in one.sentence for one in found.differences for word in ("ECE", "MCE"))
    assert json.loads(json.dumps(found.as_dict()))["models"][0]["name"] == "old"


def test_seeds_and_several_models() -> None:
    seeds = [three_classes(300, seed) for seed in range(3)]
    labels_N = seeds[0][1]
    models = {name: np.stack([of[name] for of, _ in seeds]) for name in ("old", "new")}
    found = trueodds.compare(models | {"again": models["old"]}, labels_N)
    assert found.seeds == 3 and len(found.differences) == 8
    assert all("after Holm's correction; 3 seeds)" in one.sentence for one in found.differences)
    assert "two nets" not in str(found)
    again = [one for one in found.differences if one.model == "again"]
    assert all(one.value == 0 and one.p_value == 1 for one in again)


def test_a_positive_class_is_compared_over_all_of_its_probabilities() -> None:
    rng = np.random.default_rng(1)
    p_N = rng.beta(1, 20, 3000)
    labels_N = (rng.random(3000) < p_N).astype(int)
    found = trueodds.compare({"right": p_N, "twice": np.minimum(2 * p_N, 1.0)}, labels_N)
    columns = {"right": p_N[:, None], "twice": np.minimum(2 * p_N, 1.0)}
    assert trueodds.compare(columns, labels_N[:, None]).models == found.models
    brier = found.models[0].brier
    assert brier == pytest.approx(float(((p_N - labels_N) ** 2).mean())) and found.models[0].classwise_ece is None
    assert found.differences[-1].value > 0 and found.differences[-1].p_value < 0.05


def test_rows_in_one_bin_are_spoken_of() -> None:
    rng = np.random.default_rng(1)
    p_N, constant_N = rng.beta(1, 200, 1000), np.full(1000, 0.005)
    labels_N = (rng.random(1000) < p_N).astype(int)
    models = {"fine": p_N, "same": constant_N}
    (said,) = (note for note in trueodds.compare(models, labels_N).notes if "in one of" in note)
    assert said.startswith("100.0% of the rows of fine lie in one of 15 bins of equal width")
    assert not any("in one of" in note for note in trueodds.compare(models, labels_N, bins=300).notes)


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ({"a": np.full((4, 2), 0.5)}, "1 model to compare; give two or more"),
        ({"a": np.full((4, 2), 0.5), "b": np.full((2, 4, 2), 0.5)}, "'a' has 1 net of 4 rows and 'b' 2 nets of 4 rows"),
        ({"a": np.full((4, 2), 0.5), "b": np.full((4, 2), 0.7)}, "sums to"),
        ({"a": np.full((4, 2), 0.5), "b": np.full((4, 3), 1 / 3)}, "'a' has 2 columns and 'b' 3 columns"),
        ({"a": np.full(4, 0.5), "b": np.full((4, 2), 0.5)}, "'a' has the positive class's probability alone and 'b' 2"),
        ({"a": np.full((2, 2), 0.5), "b": np.full((2, 2), 0.5)}, "2 labelled rows to compare; give 3 or more"),
    ],
)
def test_what_arrays_cannot_be_compared(models: dict[str, Array], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        trueodds.compare(models, [0, 1, 0, 1][: len(models["a"])])


def test_tables_are_matched_by_their_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, labels_N = three_classes(400)
    labels_N[7] = -1
    ids = [f"r{k}" for k in range(400)]
    shuffled = np.random.default_rng(2).permutation(400)[:390]
    old = table(tmp_path / "old.csv", models["old"], labels_N, ids)
    new = table(tmp_path / "new.csv", models["new"][shuffled], labels_N[shuffled], [ids[k] for k in shuffled])
    assert run(old, new, "--json", tmp_path / "out.json") == 0
    said = capsys.readouterr().out
    kept = np.array([k for k in range(400) if k in set(shuffled.tolist()) and labels_N[k] >= 0])
    of_arrays = trueodds.compare({name: p_NC[kept] for name, p_NC in models.items()}, labels_N[kept])
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert written["rows"] == len(kept) and "10 rows of old left out: not in every table." in said
    for ours, theirs in zip(written["differences"], of_arrays.differences, strict=True):
        assert ours["value"] == pytest.approx(theirs.value, abs=1e-6)
        assert ours["p_value"] == pytest.approx(theirs.p_value, rel=1e-3, abs=1e-9)
    assert "new: NLL -" in said and "lower than old's (p " in said


def test_tables_in_one_order_and_confidences_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, labels_N = three_classes(300)
    for name, p_NC in models.items():
        np.savez(tmp_path / f"{name}.npz", probabilities=p_NC, labels=labels_N)
    p_NC = models["new"]
    top = {"confidence": p_NC.max(axis=1), "correct": p_NC.argmax(axis=1) == labels_N}
    np.savez(tmp_path / "top.npz", **top)
    assert run(tmp_path / "old.npz", tmp_path / "new.npz") == 0
    assert "class-wise ECE" in capsys.readouterr().out
    assert run(tmp_path / "new.npz", tmp_path / "top.npz") == 0
    said = capsys.readouterr().out
    assert "NLL and Brier score are computed from the confidence" in said and "class-wise ECE  " not in said
    alike = "no difference from new's in 300 rows: at most 1.22% of all rows differ (p 1)."
    assert f"top: error +0.00 points [-1.22, +1.22], {alike}" in said and f"top: NLL +0.0000, {alike}" in said
    assert f"top: Brier score +0.0000 [-0.0122, +0.0122], {alike}" in said


def test_what_tables_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, labels_N = three_classes(60)
    ids = list(range(60))
    plain = table(tmp_path / "plain.csv", models["old"], labels_N)
    short = table(tmp_path / "short.csv", models["new"][:50], labels_N[:50])
    named = table(tmp_path / "named.csv", models["new"], labels_N, ids)
    other = table(tmp_path / "other.csv", models["new"], (labels_N + 1) % 3)
    twice = table(tmp_path / "twice.csv", models["new"], labels_N, [0, *range(59)])
    swapped = table(tmp_path / "swapped.csv", models["new"][::-1], (labels_N[::-1] + 1) % 3, ids[::-1])
    one = [table(tmp_path / f"{name}1.csv", p_NC[:1], labels_N[:1]) for name, p_NC in models.items()]
    far = table(tmp_path / "far.csv", models["new"], labels_N, [k + 100 for k in ids])
    for words, problem in (
        ((plain,), "is one table; give those of two or more models"),
        ((plain, plain), "is given twice"),
        ((plain, short), "plain has 60 rows and short 50; give the same rows in the same order, or a column id"),
        ((plain, named), "named has ids and plain has none"),
        ((plain, other), "row 1 of plain has the label"),
        ((named, swapped), "'0' of named has the label"),
        (one, "1 labelled row to compare; give 3 or more"),
        ((named, twice), "twice.csv has the id '0' twice"),
        ((named, far), "named and far share no id (the first ones are '0' and '100'); give"),
        ((plain, named, "--bins", 7), "--bins is 7"),
    ):
        assert run(*words) == 1
        assert problem in capsys.readouterr().err


def test_names_of_files_that_are_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, labels_N = three_classes(60)
    paths = []
    for folder, p_NC in models.items():
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "answers.npz")
        np.savez(paths[-1], probabilities=p_NC, labels=labels_N)
    assert run(*paths) == 0
    assert f"{paths[1]}: NLL" in capsys.readouterr().out


def test_its_errors_are_of_users() -> None:
    with pytest.raises(UserError):
        trueodds.compare({}, [])
