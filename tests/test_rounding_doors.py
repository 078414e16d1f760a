"""Rounded tables at every door: report, compare, threshold, calibrate, and what each says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import trueodds
from tests.test_rounding import population
from trueodds import cli, metrics
from trueodds.errors import ConfigError
from trueodds.importing.calibrate import compare, read_logits
from trueodds.metrics import softmax
from trueodds.reports.page import render
from trueodds.reports.schemas import Report

Array = npt.NDArray[np.float64]


def main(words: list[str]) -> int:
    return cli.main("trueodds", cli.COMMANDS, words)


@pytest.fixture(scope="module")
def rows() -> tuple[Array, npt.NDArray[np.intp]]:
    """Over-confident probabilities of 6 classes, some of whose true classes are rounded to 0."""
    return population(np.random.default_rng(0), 1_200, 6, 4.0, temperature=1.6)


@pytest.fixture
def table(tmp_path: Path, rows: tuple[Array, npt.NDArray[np.intp]]) -> Path:
    """A table of these probabilities in steps of .01."""
    path = tmp_path / "rounded.npz"
    np.savez(path, probabilities=rows[0].round(2), labels=rows[1])
    return path


def test_a_report_reads_rounded_rows(rows: tuple[Array, npt.NDArray[np.intp]]) -> None:
    p_NC, labels_N = rows
    exact, rounded = trueodds.report(p_NC, labels_N), trueodds.report(p_NC.round(2), labels_N)
    assert exact.nll is not None and rounded.nll is not None and rounded.nll_lower is not None
    assert rounded.nll == pytest.approx(exact.nll, abs=0.05)
    assert rounded.rounding.nll_at_least is not None and exact.rounding.step is None
    assert rounded.nll_lower < rounded.rounding.nll_at_least < exact.nll
    assert rounded.nll_upper is None and exact.nll_upper is not None
    zeros = int((p_NC.round(2)[np.arange(len(labels_N)), labels_N] == 0).sum())
    assert rounded.rounding.zeros == zeros > 0 and rounded.rounding.ruled_out == 0
    assert f"{zeros} zeros that came true read as" in str(rounded) and "or more" in str(rounded)
    assert "0 means below 0.005" in rounded.reading and "no upper limit" in rounded.reading
    assert rounded.to_dict()["rounding"]["step"] == 0.01
    assert rounded.ece == pytest.approx(exact.ece, abs=0.005)


def test_exact_reports_are_as_before(rows: tuple[Array, npt.NDArray[np.intp]]) -> None:
    p_NC, labels_N = rows
    inferred, given = trueodds.report(p_NC, labels_N), trueodds.report(p_NC, labels_N, resolution="exact")
    same = {name for name, value in inferred.to_dict().items() if value != given.to_dict()[name]}
    assert same == {"rounding"}  # its source: given or inferred
    assert inferred.reading == given.reading and "round" not in inferred.reading


def test_what_a_sure_wrong_answer_ruled_out_is_counted(rows: tuple[Array, npt.NDArray[np.intp]]) -> None:
    p_NC, labels_N = rows[0].copy(), rows[1]
    p_NC[:3] = 0.0
    p_NC[np.arange(3), (labels_N[:3] + 1) % 6] = 1.0
    report = trueodds.report(p_NC, labels_N)
    assert report.rounding.ruled_out == 3 and report.rounding.possible_step is None
    row = next(line for line in str(report).splitlines() if line.startswith("ruled out what happened"))
    assert row.split()[4] == "3"
    assert "The model ruled out what happened: 3 answers of 1,200" in report.reading


def test_votes_are_exact_and_both_readings_are_given(rows: tuple[Array, npt.NDArray[np.intp]]) -> None:
    rng = np.random.default_rng(1)
    votes_NC = np.stack([rng.multinomial(100, p_C / p_C.sum()) for p_C in rows[0][:400]]) / 100
    labels_N = rows[1][:400]
    report = trueodds.report(votes_NC, labels_N)
    assert report.rounding.step is None and report.rounding.possible_step == 0.01
    assert report.rounding.ruled_out > 0 and report.nll is not None and report.nll > 3
    assert "--resolution 0.01 or --resolution exact" in report.reading
    as_rounded = trueodds.report(votes_NC, labels_N, resolution=0.01)
    assert as_rounded.nll == pytest.approx(report.rounding.nll_if_rounded)
    assert as_rounded.rounding.nll_at_least == pytest.approx(report.rounding.nll_if_rounded_at_least)
    said_exact = trueodds.report(votes_NC, labels_N, resolution="exact")
    assert said_exact.nll == report.nll and said_exact.rounding.possible_step is None


def test_coarse_rows_have_no_nll_anywhere(rows: tuple[Array, npt.NDArray[np.intp]]) -> None:
    p_NC, labels_N = rows
    report = trueodds.report(p_NC.round(1), labels_N)
    assert report.nll is None and report.nll_lower is None and report.brier < 2
    assert "steps of 0.1 are too coarse for it" in str(report) and "two decimals or more" in report.reading
    with pytest.raises(ValueError, match="too coarse"):
        metrics.nll(p_NC.round(1), labels_N)
    compared = trueodds.compare({"a": p_NC.round(1), "b": p_NC}, labels_N)
    assert compared.models[0].nll is None
    assert {one.measure for one in compared.differences} == {"error_rate", "brier", "squared_calibration_error"}


def test_the_positive_class_alone() -> None:
    rng = np.random.default_rng(2)
    p_N = rng.beta(0.3, 3, 2_000)
    labels_N = (rng.random(2_000) < p_N).astype(int)
    exact = trueodds.report(p_N, labels_N)
    rounded = trueodds.report(p_N.round(2), labels_N, resolution=0.01)
    as_they_are = trueodds.report(p_N.round(2), labels_N)
    assert exact.nll is not None and rounded.nll is not None and as_they_are.nll is not None
    assert rounded.nll == pytest.approx(exact.nll, abs=0.03) and as_they_are.nll > rounded.nll + 0.2
    assert rounded.positive is not None and rounded.positive.nll == pytest.approx(rounded.nll)
    assert rounded.positive.nll_upper is None
    assert rounded.positive.calibration_p_value is not None and rounded.positive.calibration_p_value > 1e-3
    assert as_they_are.rounding.possible_step == 0.01  # sums of 1 show no step


def test_compare_reads_both_alike(rows: tuple[Array, npt.NDArray[np.intp]]) -> None:
    p_NC, labels_N = rows
    compared = trueodds.compare({"exact": p_NC, "rounded": p_NC.round(2)}, labels_N)
    nll = next(one for one in compared.differences if one.measure == "nll")
    assert abs(nll.value) < 0.05
    assert any("rounded: Probabilities are read as rounded to steps of 0.01" in note for note in compared.notes)
    with pytest.raises(ConfigError, match="reports hold their labels, classes and resolution"):
        trueodds.compare([trueodds.report(*rows)] * 2, resolution=0.01)


def test_the_report_command(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "a.json", tmp_path / "a.html"
    assert main(["report", str(table), "--json", str(out), "--html", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "0 means below 0.005" in printed and "zeros that came true read as" in printed
    report = Report.model_validate_json(out.read_text())
    assert report.rounding is not None and report.rounding.step == 0.01 and report.nll_upper is None
    assert "NLL, at least" in page.read_text() and "or more nats" in page.read_text()
    assert main(["report", str(table), "--resolution", "exact", "--json", str(out), "--html", str(page)]) == 0
    exact = json.loads(out.read_text())
    assert exact["rounding"]["ruled_out"] == report.rounding.zeros and exact["nll"] > 5
    assert "Ruled out what happened" in page.read_text() and "ruled out what happened" in capsys.readouterr().out
    assert main(["report", str(table), "--resolution", "1%"]) != 0
    assert "--resolution is '1%'" in capsys.readouterr().err
    assert main(["report", str(table), "--resolution", "0.1"]) != 0
    assert "not a multiple of the resolution 0.1" in capsys.readouterr().err


def test_a_page_without_nll_says_why(rows: tuple[Array, npt.NDArray[np.intp]], tmp_path: Path) -> None:
    path, out = tmp_path / "coarse.npz", tmp_path / "a.json"
    np.savez(path, probabilities=rows[0].round(1), labels=rows[1])
    assert main(["report", str(path), "--json", str(out)]) == 0
    assert "steps of 0.1 are too coarse for it" in render(Report.model_validate_json(out.read_text()))


@pytest.mark.parametrize("command", ["threshold", "compare"])
def test_other_commands_say_what_they_read(command: str, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = table.with_name("other.npz")
    other.write_bytes(table.read_bytes())
    files = [str(table), str(other)] if command == "compare" else [str(table)]
    assert main([command, *files]) == 0
    assert "read as rounded to steps of 0.01" in capsys.readouterr().out
    assert main([command, *files, "--resolution", "exact"]) == 0
    assert "read as rounded" not in capsys.readouterr().out


def test_a_table_of_confidences_is_rounded_if_the_user_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(3)
    c_N = rng.beta(9, 1, 600)
    path = tmp_path / "a.npz"
    np.savez(path, confidence=c_N.round(2), correct=rng.random(600) < c_N)
    assert main(["report", str(path), "--resolution", "0.01"]) == 0
    np.savez(path, confidence=c_N, correct=rng.random(600) < c_N)
    capsys.readouterr()
    assert main(["report", str(path), "--resolution", "0.01"]) != 0
    assert "not a multiple of the resolution 0.01" in capsys.readouterr().err


def test_logits_have_no_resolution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, logits=np.random.default_rng(4).normal(size=(50, 3)), labels=np.arange(50) % 3)
    for command in ("report", "calibrate"):
        assert main([command, str(path), "--resolution", "0.01"]) != 0
        assert "--resolution 0.01" in capsys.readouterr().err


def test_calibrate(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = ["calibrate", str(table), "--candidates", "identity,temperature", "--out", str(out)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "Probabilities are read as rounded to steps of 0.01" in printed and "* temperature" in printed
    assert "do not limit the exact values" in printed
    calibrator = trueodds.load(out / "calibrator.json")
    assert isinstance(calibrator, trueodds.calibrators.Rounded)
    assert isinstance(calibrator.calibrator, trueodds.calibrators.Temperature)
    assert calibrator.calibrator.temperature == pytest.approx(1.6, rel=0.15)
    assert main([*command, "--resolution", "exact"]) == 0
    printed = capsys.readouterr().out
    assert "read as rounded" not in printed and "exact values" not in printed
    exact = trueodds.load(out / "calibrator.json")
    assert isinstance(exact, trueodds.calibrators.Temperature)


def test_calibrate_reads_both_files_alike(
    table: Path, tmp_path: Path, rows: tuple[Array, npt.NDArray[np.intp]], capsys: pytest.CaptureFixture[str]
) -> None:
    exact = tmp_path / "exact.npz"
    np.savez(exact, probabilities=rows[0], labels=rows[1])
    small = ["--candidates", "temperature", "--out", str(tmp_path / "out")]
    assert main(["calibrate", str(table), "--test", str(exact), *small]) != 0
    assert "not a multiple of the resolution 0.01" in capsys.readouterr().err
    assert main(["calibrate", str(exact), "--test", str(table), *small]) != 0
    assert "give the step with --resolution 0.01" in capsys.readouterr().err
    both = tmp_path / "both.npz"
    p_NC, labels_N = rows[0].round(2), rows[1]
    np.savez(
        both,
        val_probabilities=p_NC[:600],
        val_labels=labels_N[:600],
        test_probabilities=p_NC[600:],
        test_labels=labels_N[600:],
    )
    source = read_logits(both, "label", probabilities=True)
    assert source.resolution.step == 0.01


@pytest.mark.parametrize("with_test", [False, True])
def test_all_lines_of_calibrate_have_one_reading(
    with_test: bool, rows: tuple[Array, npt.NDArray[np.intp]], tmp_path: Path
) -> None:
    p_NC, labels_N = rows
    for decimals in (1, 2):
        path = tmp_path / f"{decimals}.npz"
        np.savez(path, probabilities=p_NC.round(decimals), labels=labels_N)
        source = read_logits(path, "label", probabilities=True)
        test = source.rows if with_test else None
        found = compare(source.rows, test, ("identity", "temperature"), source.resolution)
        lines = [found.before, found.after, *(one.report for one in found.table if one.report)]
        if decimals == 1:
            assert all(line.nll is None and line.nll_lower is None for line in lines)
        else:
            read_NC = softmax(source.rows.logits_NC)
            assert found.before.nll == pytest.approx(-np.log(read_NC[np.arange(len(labels_N)), labels_N]).mean())


def test_calibrated_estimators_round_alike(rows: tuple[Array, npt.NDArray[np.intp]]) -> None:
    """An estimator that answers in steps of .01, as a client of a hosted model does."""
    sklearn = pytest.importorskip("sklearn")
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.frozen import FrozenEstimator

    class Hosted(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def fit(self, X: Array, y: object) -> Hosted:
            self.classes_ = np.arange(6)
            return self

        def predict_proba(self, X: Array) -> Array:
            rounded: Array = np.asarray(X).round(2)
            return rounded

    assert sklearn
    p_NC, labels_N = rows
    model = trueodds.Calibrated(FrozenEstimator(Hosted().fit(p_NC, labels_N)), method="temperature")
    model.fit(p_NC, labels_N)
    assert model.resolution_ is not None and model.resolution_.step == 0.01
    assert isinstance(model.calibrators_[0], trueodds.calibrators.Rounded)
    one_NC = model.predict_proba(p_NC[:1])  # a single row shows no step
    np.testing.assert_allclose(one_NC, model.predict_proba(p_NC)[:1])
