"""`trueodds import`: from files to a bundle that the service answers with."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.models.model import Model
from tests.importing.models import Linear, images, labels_of, vectors
from trueodds import cli, logits
from trueodds.bundle import Bundle, open_models
from trueodds.inputs import ImageInput
from trueodds.metrics import softmax


def command(*words: object, trusted: bool = True) -> int:
    """`trueodds import`, in this process unless its limits are what is tested."""
    return cli.main("trueodds", cli.COMMANDS, ["import", *map(str, words), *(["--trusted"] if trusted else [])])


@pytest.mark.full
def test_an_array_of_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels are drawn at twice the temperature: it is found, on the half that calibrates."""
    monkeypatch.chdir(tmp_path)
    model, x = Linear("NCHW", 3, batch=1, head="probabilities"), images(1500, 3)
    path = model.write(tmp_path / "my net.onnx")
    y = labels_of(model.logits(((x / 255 - 0.5) / 0.25).transpose(0, 3, 1, 2)))
    np.savez(tmp_path / "val.npz", x=x, y=y)
    words = ["--labelled", "val.npz", "--preprocess", "{mean: 0.5, std: 0.25}", "--classes", "cat,dog,hare"]
    assert command(path, *words, "--publish", "models") == 0
    printed = capsys.readouterr().out
    assert "my-net: 3 classes, image 4 x 4 x 3; 750 calibration rows, 750 test rows" in printed
    assert "note: The output 'p' holds probabilities (rows that sum to 1), not logits" in printed
    assert "TRUEODDS_MODELS=models trueodds serve" in printed
    (version,) = (version for version in open_models(Path("models")).versions("my-net"))
    served = Model.load(tmp_path / "models" / "my-net" / version, threads=1)
    card = served.bundle.card
    assert (card.classes, card.method) == (["cat", "dog", "hare"], "imported")
    assert card.input == ImageInput(height=4, width=4, channels=3) and card.training["form"] == "probabilities"
    kept = logits.read(Path("imported/my-net/logits.npz"), "val")
    assert len(kept.labels_N) == 750
    after = json.loads(Path("imported/my-net/metrics.json").read_text())["after"]
    before = json.loads(Path("imported/my-net/metrics.json").read_text())["before"]
    assert after["ece"] < before["ece"] / 2 and after["nll"] < before["nll"]
    scores = served.score(x[:20])
    assert np.allclose(scores.probabilities_NC.sum(axis=1), 1)


def test_a_folder_of_images_of_any_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are cut and scaled as the service will do it."""
    model, x = Linear("NHWC", 3, type="uint8"), images(120, 3)
    y = labels_of(model.logits(x), 0.1)
    for n, (pixels, label) in enumerate(zip(x, y, strict=True)):
        folder = tmp_path / "photos" / f"class{label}"
        folder.mkdir(parents=True, exist_ok=True)
        large = Image.fromarray(pixels).resize((40, 40), Image.Resampling.NEAREST)
        wide = Image.new("RGB", (60, 40))
        wide.paste(large, (10, 0))
        wide.save(folder / f"{n}.png")
    words = [model.write(tmp_path / "net.onnx"), "--labelled", tmp_path / "photos", "--out", tmp_path / "out"]
    assert command(*words) == 0, capsys.readouterr().err
    card = json.loads((tmp_path / "out/net/bundle/card.json").read_text())
    assert card["input"]["resized"] and card["classes"] == ["class0", "class1", "class2"]
    assert card["metrics"]["before"]["accuracy"] > 0.75  # of 1 without scaling; of .4 elsewhere in the pictures
    broken = tmp_path / "photos" / "class1" / "broken.jpg"
    broken.write_bytes(b"no image")
    assert command(*words) == 1
    assert (
        f"1 of 121 images cannot be read; repair or remove them:\n  {broken}: not an image" in capsys.readouterr().err
    )


def test_a_table_with_a_test_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Linear(columns=("age", "income"), features=2, head="probability")
    x = vectors(300, 2)
    y = labels_of(model.logits(x))
    for name, part in (("a.csv", slice(0, 200)), ("b.csv", slice(200, None))):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["paid", "income", "age" if name == "a.csv" else "AGE"])
            writer.writerows([label, *row[::-1]] for row, label in zip(x[part].tolist(), y[part].tolist(), strict=True))
    words = [model.write(tmp_path / "loan.onnx"), "--labelled", tmp_path / "a.csv", "--test", tmp_path / "b.csv"]
    words += ["--label", "paid", "--out", tmp_path, "--classes", "no,yes"]
    assert command(*words, "--positive", "yess") == 1
    assert "unknown positive class 'yess'; allowed: no, yes. Did you mean 'yes'?" in capsys.readouterr().err
    assert command(*words, "--positive", "yes") == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "loan: 2 classes, vector 2; 200 calibration rows, 100 test rows" in printed
    assert re.search(r"note: The column 'AGE' of \S+b\.csv is the input 'age'\.", printed)
    starred = next(line.split() for line in printed.splitlines() if line.startswith("* "))
    others = [line.split() for line in printed.splitlines() if line[:2] == "  " and line[2:3].isalpha()]
    better = {name for name, nll, *_ in others if float(nll) < float(starred[2])}
    assert "CV NLL" in printed and all(f"{name} was passed over: " in printed for name in better)
    assert "p(yes), over all of 0 to 1; " in printed and "Brier (0 to 1)" in printed
    served = Model.load(tmp_path / "loan" / "bundle", threads=1)
    assert served.bundle.card.input.model_dump()["features"] == ["age", "income"]
    card, kept = served.bundle.card, logits.read(tmp_path / "loan" / "logits.npz", "test")
    of_yes = json.loads((tmp_path / "loan" / "metrics.json").read_text())["after"]["positive"]
    assert card.positive == of_yes["class"] == "yes" and card.metrics["after"]["positive"] == of_yes
    assert of_yes["prevalence"] == kept.labels_N.mean()
    assert of_yes["mean_probability"] == pytest.approx(served.bundle.calibrator(kept.logits_NC)[:, 1].mean())
    z_N = model.logits(x[:5])[:, 1].clip(-17.3, 17.3)  # a float32 sigmoid is 0 or 1 from there on
    assert np.allclose(np.diff(served.logits(x[:5]))[:, 0], z_N, atol=0.1)


def test_a_parquet_table_is_a_csv_table(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from trueodds.importing import labelled_rows

    (tmp_path / "t.csv").write_text("a,b,label\n1,2.5,x\n,4,y\n")
    parquet.write_table(pyarrow.table({"a": [1.0, None], "b": [2.5, 4.0], "label": ["x", "y"]}), tmp_path / "t.parquet")
    one, other = (labelled_rows.read(tmp_path / name) for name in ("t.csv", "t.parquet"))
    assert not isinstance(one.x, tuple) and not isinstance(other.x, tuple)
    assert np.array_equal(one.x, other.x, equal_nan=True) and one.y.tolist() == other.y.tolist() == ["x", "y"]
    assert one.features == other.features == ("a", "b")


def test_without_pyarrow_a_parquet_table_names_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    assert command(Linear().write(tmp_path / "m.onnx"), "--labelled", tmp_path / "t.parquet") == 1
    message = capsys.readouterr().err
    assert "needs the package pyarrow, which is not installed here" in message and "'trueodds[table]'" in message


def test_what_is_missing_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path / "no.onnx", "--labelled", "val.npz") == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'no.onnx'} does not exist; give the path of an ONNX")
    (tmp_path / "saved_model.pb").touch()
    assert command(tmp_path, "--labelled", "val.npz") == 1
    assert capsys.readouterr().err.startswith(
        f"error: {tmp_path} is a folder; give the path of an ONNX file; convert a S"
    )


def test_ordered_classes_are_in_the_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Levels are stated once: the card holds them, and calibrators that keep the order are candidates."""
    model, x = Linear("NHWC", 3, type="uint8"), images(400, 3)
    np.savez(tmp_path / "val.npz", x=x, y=labels_of(model.logits(x), 0.3) + 1)
    path = model.write(tmp_path / "stars.onnx")
    words = [path, "--labelled", tmp_path / "val.npz", "--out", tmp_path / "out", "--ordered"]
    assert command(*words, "--classes", "1,2,3") == 0, capsys.readouterr().err
    assert "ordered_temperature" in capsys.readouterr().out
    card = json.loads((tmp_path / "out/stars/bundle/card.json").read_text())
    assert (card["classes"], card["ordered"]) == (["1", "2", "3"], True)
    assert "The classes are levels" in (tmp_path / "out/stars/bundle/MODEL_CARD.md").read_text()
    assert Model.load(tmp_path / "out/stars/bundle", threads=1).version.ordered
    assert command(*words, "--classes", "1,3,2") != 0
    assert "numbers that do not ascend" in capsys.readouterr().err


def test_conformal_sets_are_in_the_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half of the calibration rows gives the thresholds, and the calibrator is fitted on the other half."""
    model, x = Linear("NHWC", 3, type="uint8"), images(400, 3)
    np.savez(tmp_path / "val.npz", x=x, y=labels_of(model.logits(x), 0.3))
    path = model.write(tmp_path / "three.onnx")
    words = [path, "--labelled", tmp_path / "val.npz", "--out", tmp_path / "out", "--classes", "a,b,c"]
    assert command(*words, "--conformal", "aps", "--levels", ".9,.99") == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "three: 3 classes" in printed and "100 calibration rows, 200 test rows" in printed
    bundle = Bundle.load(tmp_path / "out/three/bundle")
    assert bundle.conformal is not None and bundle.card.sets is not None
    assert [rule.level for rule in bundle.card.sets.rules] == [0.9, 0.99] and bundle.conformal.rows == 100
    measured = bundle.card.sets.test[0]
    assert f"aps sets of level 0.9, from 100 rows: {measured.coverage:.4f} of the test rows are covered" in printed
    for wrong, message in (
        (["--levels", ".9"], "--levels .9 needs a method: --conformal lac"),
        (["--conformal", "lac", "--levels", ".9,x"], "--levels is '.9,x'; allowed are numbers in"),
        (["--conformal", "lac", "--levels", "1"], "levels = 1.0"),
        (["--set-confidence", ".95"], "--set-confidence 0.95 needs a method: --conformal lac"),
        (["--conformal", "lac", "--set-confidence", "1"], "--set-confidence is 1; allowed are numbers in (0, 1)"),
    ):
        assert command(*words, *wrong) == 1
        assert message in capsys.readouterr().err


def test_sets_may_cover_their_level_in_most_calibrations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    logits_NC = rng.normal(0, 2, (1200, 3))
    labels_N = (softmax(logits_NC).cumsum(axis=1) > rng.random((1200, 1))).argmax(axis=1)
    val, test = slice(800), slice(800, None)
    np.savez(
        tmp_path / "logits.npz",
        val_logits=logits_NC[val],
        test_logits=logits_NC[test],
        val_labels=labels_N[val],
        test_labels=labels_N[test],
    )
    words = ["calibrate", str(tmp_path / "logits.npz"), "--conformal", "lac", "--candidates", "temperature"]
    for name, more in (("plain", []), ("sure", ["--set-confidence", "0.95"])):
        assert cli.main("trueodds", cli.COMMANDS, [*words, *more, "--out", str(tmp_path / name)]) == 0
    plain, sure = ((tmp_path / name / "conformal.json").read_text() for name in ("plain", "sure"))
    assert plain == sure, "the scores are the same; their rank differs"
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("lac sets")]
    floors = [float(line.rpartition("cover at least ")[2].split()[0]) for line in printed]
    assert floors[0] < 0.9 <= floors[1] and len(floors) == 2


def test_two_classes_have_no_ranked_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, x = Linear(columns=("age", "income"), features=2, head="probability"), vectors(200, 2)
    np.savez(tmp_path / "val.npz", x=x, y=labels_of(model.logits(x)))
    words = [model.write(tmp_path / "two.onnx"), "--labelled", tmp_path / "val.npz", "--out", tmp_path / "out"]
    assert command(*words, "--conformal", "raps") == 1
    assert "raps needs three classes or more, and there are two; use lac or class" in capsys.readouterr().err
