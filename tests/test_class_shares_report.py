"""Class shares under prior shift in the report of a table: numbers, condition, refusal, and withdrawal by labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, softmax

from trueodds import cli
from trueodds.metrics import CalibrationSums, prior_shift
from trueodds.reports.before_labels.class_shares import CONDITION, contradiction
from trueodds.sums.positive import PositiveClass


def run(*words: object) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["report", *map(str, words)])


def rows(n: int, positives: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y_N = (rng.random(n) < positives).astype(int)
    return np.round(expit(2 * rng.normal(2 * y_N - 1, 1)), 6), y_N


def table(path: Path, p_N: np.ndarray, y_N: np.ndarray, labels: int) -> Path:
    lines = [
        f"{1 - p:.6f},{p:.6f},{('ok', 'fraud')[y] if n < labels else ''}"
        for n, (p, y) in enumerate(zip(p_N, y_N, strict=True))
    ]
    path.write_text("\n".join(["ok,fraud,label", *lines]) + "\n", encoding="utf-8")
    return path


def both(p_N: np.ndarray) -> np.ndarray:
    return np.stack([1 - p_N, p_N], axis=1)


def test_text_page_and_json_have_the_numbers_of_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, new = rows(800, 0.5, 0), rows(1500, 0.15, 1)
    path, reference = table(tmp_path / "a.csv", *new, 0), table(tmp_path / "r.csv", *known, 800)
    page, numbers = tmp_path / "a.html", tmp_path / "a.json"
    for words in (["--positive", "fraud"], []):
        assert run(path, "--reference", reference, *words, "--html", page, "--json", numbers) == 0
        part = json.loads(numbers.read_text())["class_shares"]
        shift = prior_shift(both(new[0]), both(known[0]), known[1])
        assert shift.test is not None and part["p_value"] == pytest.approx(shift.test.p_value)
        one, own = part["classes"][1], shift.em[1]
        assert (one["name"], one["reference"]) == ("fraud", pytest.approx(known[1].mean()))
        assert own.lower is not None and own.lower < new[1].mean() < own.upper
        for name, share in (("em", own), ("bbse", shift.bbse[1])):
            assert one[name] == pytest.approx(vars(share))
        text, shown = capsys.readouterr().out, page.read_text()
        for screen in (text, shown):
            assert (
                CONDITION in screen and "No test without labels can confirm it. No label has tested it yet." in screen
            )
            assert f"{own.value:.1%}" in screen and "do not hold on these answers" in screen


def test_one_column_of_p_positive_without_labels(tmp_path: Path) -> None:
    """Only the labels of the reference name the other class."""
    known, new = rows(800, 0.5, 0), rows(1500, 0.15, 1)
    for name, (p_N, y_N), labels in (("r", known, 800), ("a", new, 0)):
        pairs = enumerate(zip(p_N, y_N, strict=True))
        lines = [f"{p:.6f},{('ok', 'fraud')[y] if n < labels else ''}" for n, (p, y) in pairs]
        (tmp_path / f"{name}.csv").write_text("\n".join(["score,label", *lines]) + "\n", encoding="utf-8")
    numbers, words = tmp_path / "a.json", ("--classes", "score", "--positive", "fraud")
    assert run(tmp_path / "a.csv", *words, "--reference", tmp_path / "r.csv", "--json", numbers) == 0
    classes = {one["name"]: one for one in json.loads(numbers.read_text())["class_shares"]["classes"]}
    own = prior_shift(both(new[0]), both(known[0]), known[1]).em[1]
    assert set(classes) == {"ok", "fraud"} and classes["fraud"]["em"]["value"] == pytest.approx(own.value)


def test_no_shift_is_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, new = rows(800, 0.5, 12), rows(800, 0.5, 13)
    path, reference = table(tmp_path / "a.csv", *new, 0), table(tmp_path / "r.csv", *known, 800)
    assert run(path, "--reference", reference) == 0
    assert "No change of the class shares is shown." in capsys.readouterr().out


@pytest.mark.parametrize("agree", [True, False])
def test_labels_take_them_away(tmp_path: Path, capsys: pytest.CaptureFixture[str], agree: bool) -> None:
    """A concept shift leaves the scores as they are: the shares are wrong until labels come."""
    known, (p_N, y_N) = rows(800, 0.5, 4), rows(2000, 0.15 if agree else 0.5, 5)
    if not agree:
        y_N = (np.random.default_rng(6).random(2000) < p_N**2).astype(int)
    reference, numbers = table(tmp_path / "r.csv", *known, 800), tmp_path / "a.json"
    for labels in (0, 500):
        assert run(table(tmp_path / "a.csv", p_N, y_N, labels), "--reference", reference, "--json", numbers) == 0
        part, text = json.loads(numbers.read_text())["class_shares"], capsys.readouterr().out
        gone = bool(labels) and not agree
        assert (part["withdrawn"] is not None) == (part["classes"] == []) == gone
        assert ("Withdrawn: there are no class shares, because labels contradict them. Of 500 answers" in text) == gone
        assert ("can confirm it. 500 labels so far do not contradict it." in text) == (labels > 0 and agree)


def test_three_classes_in_another_order_of_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(9)
    shares = np.array([0.1, 0.2, 0.7])
    y_R, y_N = rng.integers(0, 3, 600), rng.choice(3, 900, p=shares)
    (p_RC, p_NC) = (
        np.round(softmax(2 * (2 * np.eye(3)[y] + rng.normal(size=(len(y), 3))), axis=1), 6) for y in (y_R, y_N)
    )
    names = np.array(["cat", "dog", "owl"])
    answers = "\n".join(["cat,dog,owl,label", *(f"{a:.6f},{b:.6f},{c:.6f}," for a, b, c in p_NC.tolist())])
    lines = [f"{a[2]:.6f},{a[0]:.6f},{a[1]:.6f},{names[y]}" for a, y in zip(p_RC, y_R, strict=True)]
    (tmp_path / "a.csv").write_text(answers)
    (tmp_path / "r.csv").write_text("\n".join(["owl,cat,dog,label", *lines]))
    numbers = tmp_path / "a.json"
    assert run(tmp_path / "a.csv", "--reference", tmp_path / "r.csv", "--json", numbers) == 0
    found = json.loads(numbers.read_text())["class_shares"]["classes"]
    assert [one["name"] for one in found] == ["cat", "dog", "owl"]
    for one, truth in zip(found, np.bincount(y_N) / 900, strict=True):
        assert one["em"]["lower"] <= truth <= one["em"]["upper"]
    assert "are owl by EM" in capsys.readouterr().out  # the largest change


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = rows(200, 0.5, 8)
    path, whole = table(tmp_path / "a.csv", *known, 0), table(tmp_path / "whole.csv", *known, 200)
    confidences = tmp_path / "c.csv"
    confidences.write_text("confidence,correct\n0.9,1\n0.8,0\n")
    np.save(tmp_path / "p.npy", both(known[0]))
    other = tmp_path / "o.csv"
    other.write_text("\n".join(["yes,no,label", *["0.3,0.7,no"] * 3]))
    for reference, words in (
        (path, "has no labels; reference rows need"),
        (confidences, "does not have the probabilities of all classes"),
        (other, "has the classes yes, no"),
        (tmp_path / "none.csv", "none.csv"),
        (tmp_path / "p.npy", "give an .npz with probabilities"),
    ):
        assert run(path, "--reference", reference) != 0
        assert words in capsys.readouterr().err
    lines = whole.read_text().splitlines()
    for name, chances in (("equal", [0.5] * 200), ("chosen", [0.5, 0.1] * 100)):
        rows_of = [f"{line},{chance}" for line, chance in zip(lines, ["propensity", *chances], strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(rows_of) + "\n")
    assert run(path, "--reference", tmp_path / "equal.csv") == 0 and "% are" in capsys.readouterr().out
    assert run(path, "--reference", tmp_path / "chosen.csv") == 1
    assert "give reference rows that are a random sample" in capsys.readouterr().err
    few = table(tmp_path / "few.csv", known[0][:40], known[1][:40], 40)
    assert run(path, "--reference", few) == 0
    text = capsys.readouterr().out
    assert "The class shares of 200 answers are not estimated: class " in text and "reference rows; each class" in text
    numbers = tmp_path / "n.json"
    assert run(whole, "--reference", whole, "--json", numbers) == 0
    assert json.loads(numbers.read_text())["class_shares"] is None
    assert "Every answer has a label, so whole.csv adds no class shares." in capsys.readouterr().out


def test_too_many_classes_are_refused_with_the_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"c{k}" for k in range(101)]
    line = ",".join(["1", *["0"] * 100])
    for name, label in (("a", ""), ("r", "c0")):
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join([*names, "label"]), *[f"{line},{label}"] * 60]))
    assert run(tmp_path / "a.csv", "--reference", tmp_path / "r.csv") == 1
    assert "has 101 classes; class shares are for at most 100: leave out --reference" in capsys.readouterr().err


def looks(seed: int) -> list[str | None]:
    """The contradictions that 150, 300, 450 and 600 labels of a sound stream show."""
    known, (p_N, y_N) = rows(400, 0.5, 100 + seed), rows(600, 0.2, 200 + seed)
    shift = prior_shift(both(p_N), both(known[0]), known[1])
    found: list[str | None] = []
    for n in range(150, 601, 150) if shift.refusal is None else ():

        def sums(label: int, share: float, n: int = n) -> CalibrationSums:
            corrected_NC = shift.correct(both(p_N[:n]), label=label, share=share)
            return PositiveClass.sums_of(corrected_NC[:, label], y_N[:n] == label)

        found.append(contradiction(shift, ("ok", "fraud"), sums))
    return found


def test_sound_shares_are_seldom_withdrawn() -> None:
    assert sum(any(looks(seed)) for seed in range(15)) <= 1
