"""Expected precision and recall in reports: from tables and sums, with their condition, until labels contradict it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trueodds import cli
from trueodds.bundle import Reference
from trueodds.metrics import CELLS, CalibrationRows, CalibrationSums, cell_of, expected_decisions
from trueodds.reports import ReportOptions
from trueodds.reports.before_labels.expected_results import (
    CONDITION,
    LabelEvidence,
    expected_of_acting,
    expected_of_positive,
)
from trueodds.sums.answers import AnswerSums
from trueodds.sums.positive import PositiveClass, PositiveSums


def run(*words: object) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["report", *map(str, words)])


def table(path: Path, p_N: Any, labels: list[str]) -> Path:
    lines = [f"{1 - p:.6f},{p:.6f},{label}" for p, label in zip(p_N, labels, strict=True)]
    path.write_text("\n".join(["ok,fraud,label", *lines]) + "\n", encoding="utf-8")
    return path


def drawn(n: int, power: float = 1.0, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """p(fraud), and labels that follow p to the power: 1 is calibrated, 2 makes p too high."""
    rng = np.random.default_rng(seed)
    p_N = np.round(rng.beta(0.5, 3, n), 6)
    return p_N, ["fraud" if y else "ok" for y in rng.random(n) < p_N**power]


def test_a_table_without_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text, JSON and page show the numbers of the library, with the condition beside them."""
    p_N, _ = drawn(2000)
    path, fit = table(tmp_path / "a.csv", p_N, [""] * 2000), table(tmp_path / "fit.csv", *drawn(300, seed=1))
    page, numbers = tmp_path / "a.html", tmp_path / "a.json"
    options = ["--positive", "fraud", "--fit-rows", fit, "--alert-threshold", "0.4", "--html", page, "--json", numbers]
    assert run(path, *options) == 0
    (part,) = json.loads(numbers.read_text())["expected"]
    assert (part["about"], part["threshold"], part["answers"], part["fit_rows"]) == ("positive", 0.4, 2000, 300)
    (one,) = (row for row in part["decisions"] if row["threshold"] == 0.4)
    rows = CalibrationRows.of(drawn(300, seed=1)[0])
    (own,) = expected_decisions(p_N, at=[0.4], calibration=rows)
    assert one["precision"]["value"] == pytest.approx(own.precision.value)
    assert (one["precision"]["lower"], one["precision"]["upper"]) == pytest.approx(
        (own.precision.lower, own.precision.upper), abs=0.02
    )
    text, shown = capsys.readouterr().out, page.read_text()
    for screen in (text, shown):
        assert CONDITION.replace("'", "&#39;") in screen or CONDITION in screen
        assert "No label has tested it yet." in screen and "a fit on 300 rows" in screen
        assert f"{own.precision.value:.1%}" in screen
    assert 'id="expected-positive-table"' in shown and part["withdrawn"] is None


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_the_rows_of_the_fit_need_no_labels(tmp_path: Path, kind: str) -> None:
    p_N, _ = drawn(300)
    path, fit, numbers = table(tmp_path / "a.csv", p_N, [""] * 300), tmp_path / f"fit.{kind}", tmp_path / "a.json"
    if kind == "csv":
        fit.write_text("\n".join(["ok,fraud", *(f"{1 - p:.6f},{p:.6f}" for p in p_N)]), encoding="utf-8")
        words: list[object] = []
    else:
        np.save(fit, np.stack([1 - p_N, p_N], axis=1))
        words = ["--classes", "ok,fraud"]
    assert run(path, "--positive", "fraud", "--fit-rows", fit, "--json", numbers, *words) == 0
    (part,) = json.loads(numbers.read_text())["expected"]
    assert part["fit_rows"] == 300


def test_rows_of_a_fit_that_nothing_uses_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("confidence,correct\n0.9,1\n0.8,\n", encoding="utf-8")
    assert run(path, "--fit-rows", path) == 1
    assert "a.csv is for expected precision and recall, which need a positive class" in capsys.readouterr().err


def test_labels_that_contradict_take_it_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p_N, labels = drawn(3000, 2.0)
    for known, withdrawn in ((0, False), (600, True)):
        path = table(tmp_path / f"{known}.csv", p_N, [*labels[:known], *[""] * (3000 - known)])
        page, numbers = tmp_path / "b.html", tmp_path / "b.json"
        assert run(path, "--positive", "fraud", "--html", page, "--json", numbers) == 0
        (part,) = json.loads(numbers.read_text())["expected"]
        assert (part["withdrawn"] is not None) == (part["decisions"] == []) == withdrawn
        assert part["condition"].endswith("Labels contradict it.") == withdrawn
        for screen in (capsys.readouterr().out, page.read_text()):
            assert ("Withdrawn: there is no expected precision or recall" in screen) == withdrawn
            assert ("Expected precision" in screen) == (not withdrawn)
            assert "The limits do not allow for the rows that fitted the calibrator" in screen or withdrawn


def test_labels_that_agree_leave_it_there_for_the_others(tmp_path: Path) -> None:
    p_N, labels = drawn(3000, seed=4)
    numbers = tmp_path / "c.json"
    assert (
        run(table(tmp_path / "c.csv", p_N, [*labels[:500], *[""] * 2500]), "--positive", "fraud", "--json", numbers)
        == 0
    )
    (part,) = json.loads(numbers.read_text())["expected"]
    assert part["answers"] == 2500 and "500 labels so far do not contradict it" in part["reading"]
    (one,) = (row for row in part["decisions"] if row["threshold"] == 0.5)
    assert one["alerts"] == (p_N[500:] > 0.5).sum()
    assert run(table(tmp_path / "d.csv", p_N, labels), "--positive", "fraud", "--json", numbers) == 0
    assert json.loads(numbers.read_text())["expected"] == []


def test_each_class_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(2)
    p_NC = np.round(rng.dirichlet([1, 2, 0.5], 400), 6)
    lines = [f"{a},{b},{c}," for a, b, c in p_NC.tolist()]
    path = tmp_path / "three.csv"
    path.write_text("\n".join(["cat,dog,owl,label", *lines]) + "\n")
    numbers = tmp_path / "three.json"
    assert run(path, "--json", numbers, "--html", tmp_path / "three.html") == 0
    (part,) = json.loads(numbers.read_text())["expected"]
    assert [one["name"] for one in part["classes"]] == ["cat", "dog", "owl"] and part["about"] == "classes"
    top_N = p_NC.argmax(axis=1)
    recall = part["classes"][1]["decision"]["recall"]["value"]
    assert recall == pytest.approx(p_NC[top_N == 1, 1].sum() / p_NC[:, 1].sum(), rel=1e-4)
    assert "expected-classes-table" in (tmp_path / "three.html").read_text()
    assert "Of 400 answers, by class." in capsys.readouterr().out
    two = table(tmp_path / "two.csv", *drawn(50))
    assert run(path, "--fit-rows", two) == 1
    assert "does not have the probabilities of the classes cat, dog, owl" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["1.5", "-0.1", "nan"])
def test_a_threshold_outside_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str) -> None:
    assert run(table(tmp_path / "a.csv", *drawn(20)), "--alert-threshold", value) != 0
    assert "allowed is [0, 1]" in capsys.readouterr().err


def sums_of(p_N: np.ndarray, positive_N: np.ndarray, labelled: int) -> AnswerSums:
    labels = PositiveClass.sums_of(p_N[:labelled], positive_N[:labelled]) if labelled else CalibrationSums.zero()
    return AnswerSums(np.bincount(cell_of(p_N), minlength=CELLS), labels)


def test_sums_agree_with_rows_within_their_cells() -> None:
    p_N = np.random.default_rng(3).beta(0.5, 3, 5000)
    by_p = PositiveSums("fraud", sums_of(p_N, p_N > 2, 0))
    evidence = LabelEvidence(CalibrationSums.zero())
    of_sums = expected_of_positive(by_p, ReportOptions(), evidence)
    of_rows = expected_of_positive(by_p, ReportOptions(), evidence, p_N=p_N)
    assert of_sums is not None and of_rows is not None
    for one, other in zip(of_sums.decisions, of_rows.decisions, strict=True):
        assert (one.threshold, one.alerts) == (other.threshold, other.alerts)
        assert one.precision.value == pytest.approx(other.precision.value, abs=2e-4)
        assert one.recall.value == pytest.approx(other.recall.value, abs=2e-3)
        assert one.recall.lower <= other.recall.lower + 0.005  # type: ignore[operator]


def test_answers_that_act_alone() -> None:
    rng = np.random.default_rng(5)
    c_N = rng.uniform(0.5, 1, 4000)
    sums = AnswerSums(np.bincount(cell_of(c_N), minlength=CELLS), CalibrationSums.zero())
    part = expected_of_acting(sums, 0.9, ReportOptions(), LabelEvidence(sums.labelled))
    assert part is not None and part.about == "acting" and part.decisions[0].alert_share == pytest.approx(0.2, abs=0.02)
    assert part.decisions[0].precision.value == pytest.approx(0.95, abs=0.005)
    assert "act alone, 95" in part.reading and CONDITION in part.reading


@pytest.mark.parametrize("where", ["above", "up to"])
def test_the_labels_of_each_side_are_tested(where: str) -> None:
    """The errors of both sides may cancel in the whole; a sound version keeps its number at every look."""
    rng = np.random.default_rng(6)
    p_N = rng.beta(0.5, 2, 3000)
    is_off_N = (p_N > 0.5) if where == "above" else (p_N <= 0.5)
    truth_N = np.where(is_off_N, 0.5 * p_N, p_N)
    positive_N = rng.random(3000) < truth_N
    reason = LabelEvidence(PositiveClass.sums_of(p_N, positive_N)).contradiction(0.5)
    assert reason is not None and f"with a label {where} 50.0%" in reason
    sound_N = rng.random(3000) < p_N
    looks = range(10, 3000, 100)
    assert not any(LabelEvidence(PositiveClass.sums_of(p_N[:n], sound_N[:n])).contradiction(0.5) for n in looks)


def test_an_alarm_and_a_test_at_one_look_take_it_away_too() -> None:
    none = CalibrationSums.zero()
    assert "the ECE is within .02" in (LabelEvidence(none, "the ECE is within .02.").contradiction(0.5) or "")
    assert "p = 0.001" in (LabelEvidence(none, p_value=0.001).contradiction(0.5) or "")
    assert LabelEvidence(none, p_value=0.04).contradiction(0.5) is None


def test_the_card_keeps_the_information_of_the_rows() -> None:
    p_N = np.random.default_rng(7).beta(1, 3, 200)
    p_NC = np.stack([1 - p_N, p_N], axis=1)
    reference = Reference.of_probabilities(p_NC, PositiveClass("fraud", 1))
    assert reference.calibration_rows(positive=True) == CalibrationRows.of(p_N)
    assert reference.calibration_rows(positive=False) == CalibrationRows.of(p_NC.max(axis=1))
    again = Reference.model_validate_json(reference.model_dump_json())
    assert again == reference
    before = Reference.of(p_NC.max(axis=1))  # a card of an earlier release
    assert before.calibration_rows(positive=True) is None and "information" not in before.model_dump_json()


@pytest.mark.parametrize("information", [(-1e3, 0.0, 1.0), (1.0, 2.0, 1.0), (float("nan"), 0.0, 1.0)])
def test_information_that_no_rows_have_is_refused(information: tuple[float, float, float]) -> None:
    """Its covariance would not exist."""
    with pytest.raises(ValueError, match="no rows have it"):
        Reference(rows=1, counts=[1, *[0] * 59], mean=0.0, information=information)
