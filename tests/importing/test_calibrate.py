"""`trueodds calibrate`: candidates compared on somebody's logits, the files it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.testing import assert_allclose

import trueodds
from tests.importing.models import Linear
from trueodds import calibrators, cli, metrics
from trueodds.calibrators.held_out import stratified_folds
from trueodds.importing.calibrate import compare, read_logits
from trueodds.importing.errors import LabelledRowsError
from trueodds.logits import Logits
from trueodds.reports.table.reading import read

RNG = np.random.default_rng(0)
Z = RNG.normal(0, 3, (300, 3))
Y = np.array([RNG.choice(3, p=p) for p in metrics.softmax(Z / 2)])
NAMES = ("cat", "dog", "hare")


def calibrate(*words: object) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["calibrate", *map(str, words), "--candidates", "temperature,vector"])


def csv(path: Path, header: str = "cat,dog,hare,label", logits: np.ndarray = Z) -> Path:
    lines = (f"{','.join(map(str, row))},{NAMES[label]}" for row, label in zip(logits.tolist(), Y, strict=True))
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_candidates_are_measured_on_rows_that_they_have_not_seen() -> None:
    comparison = compare(Logits(Z, Y), None, ["identity", "temperature"])
    p, fold = np.empty(Z.shape), stratified_folds(Y, 5)
    for k in range(5):
        p[fold == k] = calibrators.fit(Z[fold != k], Y[fold != k], "temperature")(Z[fold == k])
    assert [each.name for each in comparison.table] == ["temperature"] and comparison.folds == 5
    assert comparison.table[0].report == trueodds.report(p, Y)
    assert comparison.calibrator == calibrators.select(Z, Y, candidates=["identity", "temperature"]).calibrator
    on_test = compare(Logits(Z[:200], Y[:200]), Logits(Z[200:], Y[200:]), ["temperature"])
    assert on_test.after == trueodds.report(on_test.calibrator(Z[200:]), Y[200:]) == on_test.table[0].report
    assert on_test.before == trueodds.report(metrics.softmax(Z[200:]), Y[200:])


def test_a_candidate_that_cannot_be_fitted_says_why() -> None:
    few = Logits(Z, np.minimum(Y, 1))
    (bad,) = compare(few, few, ["temperature", "vector"]).table[1:]
    assert bad.report is None and "class 2" in bad.problem


def test_it_writes_the_calibrator_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "logits.npz", val_logits=Z, val_labels=Y, test_logits=Z[:90], test_labels=Y[:90])
    assert calibrate(tmp_path / "logits.npz", "--out", tmp_path / "out") == 0
    shown = capsys.readouterr().out
    assert "300 rows, 3 classes; measured on 90 test rows" in shown and "no calibration" in shown
    tree = json.loads((tmp_path / "out" / "calibrator.json").read_text())
    assert calibrators.from_json(tree) == calibrators.fit(Z, Y, candidates=["temperature", "vector"])
    assert {f"reliability-{when}.svg" for when in ("before", "after")} < {p.name for p in (tmp_path / "out").iterdir()}


def test_a_model_that_needs_no_calibration_is_the_marked_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["calibrate", str(tmp_path / "x.npz"), "--candidates", "identity,temperature", "--out", str(tmp_path)]
    for scale, marked, chosen in ((1, "temperature", "temperature"), (2, "no calibration", "identity, no calibration")):
        np.savez(tmp_path / "x.npz", logits=Z / scale, labels=Y)
        assert cli.main("trueodds", cli.COMMANDS, words) == 0
        shown = capsys.readouterr().out
        assert f"\n* {marked} " in shown and f"\nChosen: {chosen} (" in shown and shown.count("\n* ") == 1


def test_classes_in_another_order_than_the_labels_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "x.npz", logits=Z[:, [2, 0, 1]], labels=Y)
    assert calibrate(tmp_path / "x.npz", "--out", tmp_path / "out") == 0
    told = "would be if the order of the classes were '2', '0', '1'. Check the order of the classes."
    assert told in capsys.readouterr().out
    np.savez(tmp_path / "p.npz", probabilities=metrics.softmax(Z[:, [2, 0, 1]]), labels=Y)
    assert any(told in note for note in read(tmp_path / "p.npz").notes)


@pytest.mark.parametrize("rows", [1, 2])
def test_too_few_rows_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: int) -> None:
    np.savez(tmp_path / "x.npz", logits=Z[:rows], labels=np.zeros(rows, int))
    assert calibrate(tmp_path / "x.npz", "--first-label", "0", "--out", tmp_path / "out") == 1
    assert "allowed are 3 or more without test rows: give more" in capsys.readouterr().err


def test_a_table_names_its_classes(tmp_path: Path) -> None:
    assert calibrate(csv(tmp_path / "val.csv"), "--test", csv(tmp_path / "test.csv"), "--out", tmp_path / "csv") == 0
    np.savez(tmp_path / "p.npz", probabilities=metrics.softmax(Z), labels=Y)
    assert calibrate(tmp_path / "p.npz", "--probabilities", "--out", tmp_path / "p") == 0
    np.save(tmp_path / "logits.npy", Z)
    np.save(tmp_path / "labels.npy", Y)
    words = (tmp_path / "logits.npy", "--labels", tmp_path / "labels.npy")
    assert calibrate(*words, "--out", tmp_path / "npy") == 0
    names = ("csv", "p", "npy")
    fits = [json.loads((tmp_path / name / "calibrator.json").read_text())["calibrator"] for name in names]
    assert fits[0] == fits[1] == fits[2]


def test_test_rows_with_columns_in_another_order_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the names, the calibrator of one class is applied to another: a wrong number, and no error."""
    turned, told = csv(tmp_path / "turned.csv", "hare,cat,dog,label", Z[:, [2, 0, 1]]), []
    for test in (csv(tmp_path / "val.csv"), turned):
        assert calibrate(tmp_path / "val.csv", "--test", test, "--out", tmp_path) == 0
        told.append(capsys.readouterr().out.splitlines()[:6])
    named = {"logits": Z[:, [2, 0, 1]], "labels": np.array(NAMES)[Y], "class_names": ["hare", "cat", "dog"]}
    np.savez(tmp_path / "named.npz", **named)
    assert calibrate(tmp_path / "val.csv", "--test", tmp_path / "named.npz", "--out", tmp_path) == 0
    told.append([line for line in capsys.readouterr().out.splitlines() if not line.startswith("Read: ")][:6])
    assert told[0] == told[1] == told[2]
    splits = {"test_logits": named["logits"], "test_labels": named["labels"], **named, "logits": Z[::-1]}
    np.savez(tmp_path / "splits.npz", **splits)
    assert calibrate(tmp_path / "val.csv", "--test", tmp_path / "splits.npz", "--out", tmp_path) == 0
    own = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("Read: ")][:6]
    assert own == told[0]
    np.savez(tmp_path / "named.npz", **named | {"class_names": ["hare", "cat"]})
    assert calibrate(tmp_path / "named.npz", "--out", tmp_path) == 1
    assert "class_names has 2 names for 3 columns of logits; give one for each class" in capsys.readouterr().err


def test_columns_with_a_meaning_and_rows_without_a_label_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [",".join(map(str, row)) for row in Z.tolist()]
    cells = [NAMES[k] if i % 3 else "" for i, k in enumerate(Y)]
    lines = (f"{i},{row},eu,2026-01-01,{cell}" for i, (row, cell) in enumerate(zip(rows, cells, strict=True)))
    (tmp_path / "a.csv").write_text("\n".join(["id,cat,dog,hare,tag,time,label", *lines]) + "\n")
    np.savez(tmp_path / "a.npz", logits=Z, labels=np.where(np.arange(300) % 3, Y, np.nan))
    known = np.arange(300) % 3 > 0
    for file in ("a.csv", "a.npz"):
        assert calibrate(tmp_path / file, "--out", tmp_path) == 0
        assert "100 rows without a label left out." in capsys.readouterr().out
        rows_of = read_logits(tmp_path / file, "label").rows
        assert_allclose(rows_of.logits_NC, Z[known])
        assert rows_of.labels_N.tolist() == Y[known].tolist()


def test_one_column_of_probabilities_among_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p, labels = metrics.softmax(Z)[:, 0], (Y == 0).astype(int)
    lines = (f"c{i},{p[i]},{1 - p[i]},{labels[i]}" for i in range(300))
    (tmp_path / "a.csv").write_text("\n".join(["customer,score,other,churned", *lines]) + "\n")
    np.savez(tmp_path / "a.npz", probabilities=p, labels=labels)
    words = ("--label", "churned", "--probabilities", "--classes", "score", "--positive", "1")
    fits = []
    for file, options in (("a.csv", words), ("a.npz", ())):
        assert calibrate(tmp_path / file, *options, "--out", tmp_path) == 0
        fits.append(json.loads((tmp_path / "calibrator.json").read_text())["calibrator"])
    assert fits[0] == fits[1]
    assert "The column 'score' is read as p(1), as --positive says." in capsys.readouterr().out


def test_groups_of_a_column_or_an_array_get_temperatures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tags = ["eu", "us", ""] * 100
    labels = [RNG.choice(3, p=p) for p in metrics.softmax(Z / np.tile([0.5, 4.0, 1.5], 100)[:, None])]
    lines = (f"{','.join(map(str, z))},{NAMES[y]},{tag}" for z, y, tag in zip(Z.tolist(), labels, tags, strict=True))
    (tmp_path / "val.csv").write_text("\n".join(["cat,dog,hare,label,site", *lines]) + "\n")
    place_N = np.tile([0, 1, -1], 100)
    arrays: dict[str, Any] = {"logits": Z, "labels": labels, "tag": place_N, "tag_names": ["eu", "us"]}
    np.savez(tmp_path / "rows.npz", **arrays, site=np.array(tags))
    fits = []
    for file, column in (("val.csv", "site"), ("rows.npz", "site"), ("rows.npz", "tag")):
        words = [tmp_path / file, "--groups", column, "--out", tmp_path / "out", "--test", tmp_path / file]
        command = ["calibrate", *map(str, words), "--candidates", "temperature,group_temperature"]
        assert cli.main("trueodds", cli.COMMANDS, command) == 0
        shown = capsys.readouterr().out
        assert "Chosen: group_temperature" in shown and "any other" in shown and "eu" in shown
        fits.append(calibrators.from_json(json.loads((tmp_path / "out" / "calibrator.json").read_text())))
    names = [tag or None for tag in tags]
    assert fits[0] == fits[1] == fits[2] == calibrators.fit(Z, labels, "group_temperature", groups=names)
    np.save(tmp_path / "rows.npy", Z)
    np.save(tmp_path / "labels.npy", labels)
    for file, column, problem in (
        ("val.csv", "place", "the column of groups, 'place', is not one of"),
        ("val.csv", "label", "the column of groups, 'label', holds the labels"),
        ("rows.npz", "place", "has no array 'place' of groups"),
        ("rows.npz", "logits", "expected one text or whole number per row"),
        ("rows.npy", "site", "holds one array and no groups"),
    ):
        words = [tmp_path / file, "--groups", column, "--out", tmp_path / "out"]
        words += ["--labels", tmp_path / "labels.npy"] * (file == "rows.npy")
        assert calibrate(*words) == 1
        assert problem in capsys.readouterr().err
    np.savez(tmp_path / "bad.npz", **arrays | {"tag_names": ["eu"]})
    assert calibrate(tmp_path / "bad.npz", "--groups", "tag", "--out", tmp_path / "out") == 1
    assert "a place among the names is outside [-1, 1)" in capsys.readouterr().err


P = metrics.softmax(Z)
BINARY = np.stack([1 - P[:, 0], P[:, 0]], axis=1)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("arrays", "chosen", "read"),
    [
        ({"logits": Z}, False, "Read: logits."),
        ({"logits": P}, True, "Read: logits; probabilities are converted to logits by log."),
        ({"probabilities": P}, True, "Read: probabilities; probabilities are converted to logits by log."),
        ({"probabilities": P}, False, "Read: probabilities; probabilities are converted to logits by log."),
        ({"probabilities": P[:, 0]}, False, "Read: probabilities; probabilities are converted to logits by log."),
        ({"val_probabilities": P}, False, "Read: val_probabilities; probabilities are"),
        ({"logits": Z, "probabilities": P[::-1]}, False, "Read: logits."),
        ({"logits": Z[::-1], "probabilities": P}, True, "Read: probabilities; probabilities are"),
        (
            {"val_probabilities": P, "test_probabilities": P[:50]},
            False,
            "Read: val_probabilities and test_probabilities; probabilities are",
        ),
        ({"val_logits": Z, "test_probabilities": P[:50]}, False, "Read: val_logits and test_probabilities; prob"),
    ],
)
def test_the_array_that_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arrays: dict[str, np.ndarray], chosen: bool, read: str
) -> None:
    """Issue: `--probabilities` wanted an array that is called logits."""
    labels = {f"{name.rpartition('_')[0]}_labels".lstrip("_"): Y[: len(rows)] for name, rows in arrays.items()}
    if any(rows.ndim == 1 for rows in arrays.values()):
        labels = {"labels": (Y == 0).astype(int)}
    np.savez(tmp_path / "a.npz", **arrays, **labels)  # type: ignore[arg-type]
    source = read_logits(tmp_path / "a.npz", "label", probabilities=chosen)
    expected = BINARY if source.rows.logits_NC.shape[1] == 2 else P
    assert_allclose(metrics.softmax(source.rows.logits_NC), expected, atol=1e-12)
    if source.test:
        assert_allclose(metrics.softmax(source.test.logits_NC), P[:50], atol=1e-12)
    words = ["--probabilities"] if chosen else []
    assert calibrate(tmp_path / "a.npz", *words, "--out", tmp_path) == 0
    assert read in capsys.readouterr().out.splitlines()[1]


def test_a_table_of_probabilities_and_another_file_for_the_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = csv(tmp_path / "p.csv", logits=P)
    np.savez(tmp_path / "test.npz", test_logits=Z, test_labels=Y, logits=Z, labels=Y)
    assert calibrate(table, "--probabilities", "--out", tmp_path) == 0
    assert "\nRead: probabilities; probabilities are converted to logits by log.\n" in capsys.readouterr().out
    assert calibrate(csv(tmp_path / "z.csv"), "--test", tmp_path / "test.npz", "--out", tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[1] == "Read: test_logits."
    np.savez(tmp_path / "p.npz", probabilities=P, labels=Y)
    assert calibrate(tmp_path / "p.npz", "--onnx", tmp_path / "model.onnx", "--out", tmp_path) == 1
    assert f"export logits: {tmp_path / 'p.npz'} holds probabilities" in capsys.readouterr().err


def test_a_label_in_another_writing_is_the_class_that_alone_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("New York,rome,label\n2,1,new_york\n1,2,Rome\n")
    assert read_logits(path, "label").rows.labels_N.tolist() == [0, 1]
    path.write_text("New York,rome,label\n2,1,York\n1,2,Rome\n")
    with pytest.raises(trueodds.UserError, match=r"label 'York'; allowed are 'New York', 'rome'.* mean 'New York'"):
        read_logits(path, "label")


def test_the_calibrator_is_folded_into_a_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Linear().write(tmp_path / "model.onnx")
    np.savez(tmp_path / "logits.npz", logits=Z, labels=Y)
    assert calibrate(tmp_path / "logits.npz", "--onnx", model, "--out", tmp_path) == 0
    x = RNG.normal(0, 1, (7, 5)).astype(np.float32)
    logits, p = (
        onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
        for path in (model, tmp_path / "model_calibrated.onnx")
    )
    calibrator = calibrators.from_json(json.loads((tmp_path / "calibrator.json").read_text()))
    assert_allclose(p, calibrator(logits), atol=1e-6)
    assert "probabilities of" not in capsys.readouterr().out
    assert calibrate(csv(tmp_path / "a.csv"), "--onnx", model, "--out", tmp_path) == 0
    assert "of 'cat', 'dog', 'hare', if the graph's outputs are in this order" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": Z}, "has no array logits, labels; it holds x. Expected an .npz with logits and labels"),
        ({"logits": Z}, "has no array labels; it holds logits"),
        (
            {"probabilities": Z, "labels": Y},
            "If these are logits, name the array logits, and leave out --probabilities",
        ),
        ({"labels": Y + 1}, "has no array logits; it holds labels"),
        ({"logits": Z, "labels": Y + 1}, "has labels from 1 to 3 of 3 classes, and none is 0"),
        (
            {"logits": Z, "labels": Y - 1},
            "labels holds -1; allowed are the class indices 0..2; give each row the place",
        ),
        ({"logits": metrics.softmax(Z), "labels": Y}, "logits holds probabilities: give --probabilities"),
        (
            {"logits": Z[:, 0], "labels": Y % 2},
            "; with two classes, give 0 for the other one, or name p(positive) prob",
        ),
        (
            {"logits": Z, "labels": Y.astype(str)},
            "has dtype <U21; expected numbers, or names with an array class_names",
        ),
        ({"logits": Z, "labels": np.eye(3)[Y]}, "for one column a class pass labels.argmax(axis=1)"),
        ({"logits": Z.T, "labels": Y}, "may have rows and classes exchanged: transpose them"),
        (
            {"logits": Z[:, :1], "labels": Y % 2},
            "the outputs have one column; give a column for each class: for a logit z",
        ),
        ({"logits": np.where(Z > 8, np.nan, Z), "labels": Y}, "is nan; every value must be finite"),
        (
            {"logits": Z, "labels": Y, "test_logits": Z[:, :2], "test_labels": Y % 2},
            "logits has 3 classes and test_logits 2",
        ),
    ],
)
def test_bad_arrays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "logits.npz", **arrays)  # type: ignore[arg-type]
    assert calibrate(tmp_path / "logits.npz", "--out", tmp_path) == 1
    assert message in capsys.readouterr().err and not (tmp_path / "calibrator.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no.npz"], "no.npz does not exist; expected an .npz with"),
        (["a.txt"], "has the suffix '.txt'; rename it to .csv if its cells are separated by commas"),
        (["names.csv"], "names.csv has the label 'hare'; allowed are 'cat', 'dog', '2'"),
        (["none.csv"], "has no column 'label'"),
        (["one.csv"], "one.csv: the column 'p' holds one logit for each answer; expected one for each class"),
        (["one.csv", "--probabilities"], "say whose probability it is: --positive spam or --positive ham"),
        (["one.csv", "--probabilities", "--positive", "egg"], "--positive 'egg' is not a class of the labels"),
        (["text.csv"], "If 'customer' is not a class, name the columns of the classes: --classes spam,ham"),
        (["empty.csv"], "empty.csv: no row of 2 has a label; a fit needs rows with one"),
        (
            ["good.csv", "--test", "tag.csv"],
            "tag.csv has the classes 'spam', 'ham', and the rows of the fit have 'cat'",
        ),
        (["z.npy", "--classes", "a,b"], "z.npy has no columns with names; leave it out"),
        (["z.npy"], "z.npy holds one array; give the file of its labels: --labels labels.npy"),
        (["z.npy", "--labels", "y.npy"], "y.npy does not exist; expected an .npz"),
        (["tags.csv", "--groups", "tag"], "none of the candidates temperature, vector reads groups"),
        (["tag.csv", "--groups", "tag"], "tag is empty in every row; name the column of the groups"),
        (["good.csv", "--labels", "y.npy"], "good.csv holds the labels itself; remove --labels"),
        (["names.csv", "--onnx", "m.onnx", "--probabilities"], "remove --probabilities"),
        (["good.csv", "--onnx", "a.txt"], "a.txt is not an ONNX model"),
    ],
)
def test_bad_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("nothing")
    np.save(tmp_path / "z.npy", Z)
    csv(tmp_path / "names.csv", "cat,dog,2,label")
    csv(tmp_path / "none.csv", "cat,dog,hare,class")
    csv(tmp_path / "good.csv")
    (tmp_path / "tag.csv").write_text("spam,ham,tag,label\n" + "3,-1,,spam\n-2,2,,ham\n" * 9)
    (tmp_path / "tags.csv").write_text("spam,ham,tag,label\n" + "3,-1,a,spam\n-2,2,b,ham\n" * 9)
    (tmp_path / "one.csv").write_text("p,label\n0.9,spam\n0.2,ham\n")
    (tmp_path / "text.csv").write_text("customer,spam,ham,label\nc1,1,0,spam\nc2,0,2,ham\n")
    (tmp_path / "empty.csv").write_text("spam,ham,label\n1,0,\n0,1,\n")
    assert calibrate(*words) == 1
    assert message in capsys.readouterr().err


def test_labels_from_1_on_are_refused_until_it_is_said(tmp_path: Path) -> None:
    """Issue: 1 and 2 of three classes were read as indices, because the third happens to be absent."""
    path = tmp_path / "a.npz"
    np.savez(path, logits=Z, labels=Y % 2 + 1)
    with pytest.raises(LabelledRowsError, match="has labels from 1 to 2 of 3 classes, and none is 0; give the number"):
        read_logits(path, "label")
    for first in (0, 1):
        assert (read_logits(path, "label", first=first).rows.labels_N == Y % 2 + 1 - first).all()
    np.savez(path, logits=Z, labels=np.where(Y, Y, np.nan))
    with pytest.raises(LabelledRowsError, match="has labels from 1 to 2 of 3 classes"):
        read_logits(path, "label")
    np.savez(path, logits=Z, labels=Y % 2 + 1, test_logits=Z, test_labels=Y)
    assert (read_logits(path, "label").rows.labels_N == Y % 2 + 1).all()


@pytest.mark.full
def test_levels_have_further_candidates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "a.npz", logits=Z, labels=Y)
    words = [str(tmp_path / "a.npz"), "--out", str(tmp_path / "out")]
    for ordered in (False, True):
        assert cli.main("trueodds", cli.COMMANDS, ["calibrate", *words, *["--ordered"] * ordered]) == 0
        assert ("ordered_temperature" in capsys.readouterr().out) == ordered
