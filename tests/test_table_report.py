"""`trueodds report`: a table of answers in each of its forms, the same numbers as `trueodds.report`, and refusals."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import trueodds
from trueodds import cli, metrics
from trueodds.files import FileError
from trueodds.inputs import columns
from trueodds.inputs.columns import Texts, times_of
from trueodds.reports import Report
from trueodds.reports.table import matching, reading
from trueodds.reports.table.reading import Form
from trueodds.reports.table.table_report import report_of_answers, sums_by, sums_by_period, sums_of
from trueodds.reports.warehouse.parquet_source import open_source
from trueodds.reports.warehouse.planning import plan_of

RNG = np.random.default_rng(0)
N, NAMES = 900, ("cat", "dog", "hare")
Z = RNG.normal(0, 3, (N, 3))
P = metrics.softmax(Z)
Y = (metrics.softmax(Z / 2).cumsum(axis=1) < RNG.random((N, 1))).sum(axis=1)
LABELLED = RNG.random(N) < 0.8
TAGS = RNG.choice(["day", "night", ""], N)
TIMES = np.datetime64("2026-03-01T22:00", "m") + 15 * np.arange(N)


def table(path: Path, data: dict[str, Any]) -> Path:
    """A CSV or Parquet file; None is an empty cell."""
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table(data), path)
        return path
    rows = zip(*(np.asarray(column, object).tolist() for column in data.values()), strict=True)
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    path.write_text("\n".join([",".join(data), *lines]) + "\n", encoding="utf-8")
    return path


def by_class() -> dict[str, Any]:
    return {name: P[:, k] for k, name in enumerate(NAMES)}


def named() -> list[str | None]:
    return [NAMES[y] if known else None for y, known in zip(Y, LABELLED, strict=True)]


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def written(form: str, folder: Path) -> tuple[Path, Form]:
    """The same answers in one of the forms that a table has."""
    masked = np.where(LABELLED, Y, np.nan)
    match form:
        case "probabilities":
            return npz(folder / "a.npz", probabilities=P, labels=masked), Form()
        case "logits":
            return npz(folder / "a.npz", logits=Z, labels=masked), Form()
        case "both":
            return npz(folder / "a.npz", logits=Z * 2, probabilities=P, labels=masked), Form(scale="probabilities")
        case "names":
            names = np.array([name or "" for name in named()])
            return npz(folder / "a.npz", probabilities=P, labels=names, class_names=NAMES), Form()
        case "npy":
            np.save(folder / "p.npy", P)
            np.save(folder / "y.npy", masked)
            return folder / "p.npy", Form(labels=folder / "y.npy")
        case "csv" | "parquet":
            return table(folder / f"a.{form}", {"id": np.arange(N), **by_class(), "label": named()}), Form()
        case "some columns":
            data = {"age": np.arange(N), **by_class(), "truth": named()}
            return table(folder / "a.csv", data), Form(label="truth", classes=NAMES)
        case _:
            data = {f"z_{name}": Z[:, k] for k, name in enumerate(NAMES)}
            return table(folder / "a.parquet", {**data, "label": masked}), Form(scale="logits")


FORMS = ["probabilities", "logits", "both", "names", "npy", "csv", "parquet", "some columns", "logits by column"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_shows_the_numbers_of_trueodds_report(form: str, tmp_path: Path) -> None:
    report = report_of_answers(reading.read(*written(form, tmp_path)))
    assert (report.answers, report.labelled) == (N, LABELLED.sum()) and report.alarm is None
    rows = trueodds.report(P[LABELLED], Y[LABELLED])
    shared = (report.model_fields_set & set(vars(rows))) - {"classes"}
    assert {"ece", "nll_upper", "signed_gap_lower", "calibration_p_value", "verdict", "bins"} < shared
    assert {name: getattr(report, name) for name in shared} == {name: getattr(rows, name) for name in shared}
    assert rows.reading in report.headline


CONFIDENCE, TOP = P.max(axis=1), P.argmax(axis=1)


HEAD = ["neg", "pos", "label"]
DIALECTS = {
    "semicolons": ";".join(HEAD) + "\n0.2;0.8;pos\n0.7;0.3;neg\n",
    "pipes": "|".join(HEAD) + "\n0.2|0.8|pos\n0.7|0.3|neg\n",
    "quoted": '"neg", "pos" ,label\n".2"," 0.8","pos"\n0.7,0.3,neg\n'.replace('" ,', '",'),
    "blanks, a BOM and CR": "\ufeff neg , pos,label \r0.2,0.8, pos \r\r 0.7,0.3,neg",
    "another separator in a cell": 'neg,pos,label,"x;y;z|w"\n0.2,0.8,pos,0\n0.7,0.3,neg,0\n',
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_csv_as_other_programs_write_it(tmp_path: Path, dialect: str) -> None:
    (tmp_path / "a.csv").write_bytes(DIALECTS[dialect].encode())
    answers = reading.read(tmp_path / "a.csv", Form(classes=("neg", "pos")))
    assert answers.probabilities_NC is not None and answers.probabilities_NC.tolist() == [[0.2, 0.8], [0.7, 0.3]]
    assert answers.correct_N.all()


def test_csv_in_another_encoding_is_refused_by_name(tmp_path: Path) -> None:
    for encoding, words in (
        ("utf-16", "is UTF-16; save it"),
        ("utf-16-le", "is UTF-16"),
        ("latin-1", "line 3 is not UTF-8"),
    ):
        (tmp_path / "a.csv").write_bytes("a,b,label\n0.5,0.5,a\n0.5,0.5,é\n".encode(encoding))
        with pytest.raises(FileError, match=words):
            reading.read(tmp_path / "a.csv")


def test_correct_with_gaps(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("confidence,correct\n0.9,1.0\n0.8,\n0.7,0.0\n")
    answers = reading.read(tmp_path / "a.csv")
    assert answers.labelled_N.tolist() == [True, False, True] and answers.correct_N.tolist() == [True, False, False]


@pytest.mark.parametrize("form", ["correct.npz", "predicted.npz", "predicted.csv", "correct.parquet"])
def test_confidence_alone_makes_up_no_score(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = np.where(LABELLED, TOP == Y, np.nan)
    answers = {"confidence": CONFIDENCE, "predicted": np.array(NAMES)[TOP]}
    label = "labels" if form.endswith(".npz") else "label"
    truth = {"correct": right} if form.startswith("correct") else {label: np.array([n or "" for n in named()])}
    path = npz(tmp_path / form, **answers, **truth) if label == "labels" else table(tmp_path / form, answers | truth)
    report = report_of_answers(reading.read(path), by="class")
    rows = trueodds.report(P[LABELLED], Y[LABELLED])
    assert (report.ece, report.accuracy, report.labelled) == (rows.ece, rows.accuracy, rows.n)
    assert report.nll is None and report.brier is None
    assert {row.name: row.answers for row in report.classes or []} == {
        name: (k == TOP).sum() for k, name in enumerate(NAMES)
    }
    assert run(path) == 0
    assert "NLL, nats             –" in capsys.readouterr().out


def test_p_of_the_positive_class_alone_is_both_classes(tmp_path: Path) -> None:
    p, y = P[:, 1] / P[:, :2].sum(axis=1), (Y == 1).astype(int)
    expected = trueodds.report(p, y)
    for path in (
        npz(tmp_path / "a.npz", probabilities=p, labels=y),
        table(tmp_path / "a.csv", {"p": p, "label": y == 1}),
    ):
        report = report_of_answers(reading.read(path, Form(positive=None if path.suffix == ".npz" else "True")))
        assert (report.ece, report.nll) == (expected.ece, expected.nll)


def test_groups_and_periods_are_those_of_their_rows_alone(tmp_path: Path) -> None:
    labels = np.where(LABELLED, Y, np.nan)
    answers = reading.read(npz(tmp_path / "a.npz", probabilities=P, labels=labels, tags=TAGS, times=TIMES))
    assert answers.groups.tags and answers.predicted

    def of(rows: np.ndarray) -> metrics.CalibrationSums:
        known = rows & LABELLED
        return metrics.CalibrationSums.from_top(CONFIDENCE[known], (TOP == Y)[known])

    for names, values in ((answers.groups.tags, TAGS), (answers.predicted, np.array([str(k) for k in TOP]))):
        for name, sums in sums_by(answers, names).items():
            assert sums.answers == (values == name).sum() and sums.labelled == of(values == name)
    minutes = len(np.unique(TIMES.astype("datetime64[m]")))
    units = (("minute", "m", minutes), ("hour", "h", 225), ("day", "D", 11), ("month", "M", 1), ("auto", "D", 11))
    for unit, code, count in units:
        chosen, periods = sums_by_period(answers, unit)  # type: ignore[arg-type]
        assert len(periods) == count and chosen == ("day" if unit == "auto" else unit)
        for start_ms, sums in periods:
            rows = TIMES.astype(f"datetime64[{code}]") == np.datetime64(start_ms, "ms")
            assert sums.answers == rows.sum() and sums.labelled == of(rows)
    short = replace(answers, groups=replace(answers.groups, time_ms_N=np.arange(len(Y)) * 1000))
    assert len(Y) < 180 * 60 and sums_by_period(short, "auto")[0] == "minute"
    whole = sums_of(answers)
    assert sum(sums.labelled.n for _, sums in sums_by_period(answers, "hour")[1]) == whole.labelled.n


def run(*words: object) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["report", *map(str, words)])


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = {**by_class(), "label": named(), "tag": TAGS, "time": TIMES.astype("datetime64[ms]"), "version": ["7"] * N}
    path = table(tmp_path / "a.parquet", data)
    page, tree = tmp_path / "a.html", tmp_path / "a.json"
    assert run(path, "--by", "tag", "--trend", "day", "--html", page, "--json", tree) == 0
    shown = capsys.readouterr().out
    report = Report.model_validate_json(tree.read_text())
    assert shown.startswith(f"a.parquet, version 7: {report.headline}\n")
    assert report.verdict == "over_confident" and [check.about for check in report.checks] == ["time", "tag", "class"]
    assert re.search(rf"^ECE +{report.ece:.4f} ", shown, re.MULTILINE)
    assert re.search(r"^accuracy +\d+\.\d%  \d+\.\d% – \d+\.\d%$", shown, re.MULTILINE), "percents have one digit"
    assert re.search(r"^night +\d+ +\d+ ", shown, re.MULTILINE)
    assert re.search(r"^1 Mar 2026 +8 +\d+ ", shown, re.MULTILINE)
    html = page.read_text()
    assert report.headline in html and "a.parquet" in html and "more than chance" in shown
    for hollow in ("POST /", "Keep sending", "live calibration", "labels that are still to come", "e-value", "Shadow"):
        assert hollow not in html, hollow
    assert not re.findall(r'(?:href|src|action)="(?![#d])', html)


def test_verdicts_at_one_look(tmp_path: Path) -> None:
    def report(confidence: float, share: float, n: int, tolerance: float = 0.02) -> Report:
        correct = np.arange(n) < round(share * n)
        answers = reading.read(npz(tmp_path / "a.npz", confidence=np.full(n, confidence), correct=correct))
        return report_of_answers(answers, tolerance=tolerance)

    assert report(0.8, 0.8, 100).verdict == "cannot_tell"
    assert report(0.8, 0.8, 20_000).verdict == "within_tolerance"
    assert report(0.8, 0.7, 100).verdict == "leans_over_confident"
    sure = report(0.8, 0.7, 10_000)
    assert sure.verdict == "over_confident" and report(0.8, 0.9, 10_000).verdict == "under_confident"
    assert report(0.8, 0.7, 10_000, tolerance=0.2).verdict == "within_tolerance"
    assert "alarm" not in sure.reading and "look" not in sure.reading


def test_without_a_label_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(npz(tmp_path / "a.npz", probabilities=P, labels=np.full(N, np.nan)), "--html", tmp_path / "a.html") == 0
    shown = capsys.readouterr().out
    expected = reading.read(tmp_path / "a.npz")
    assert "900 answers, none with a label yet" in shown
    assert (report_of_answers(expected).labelling.expected_accuracy or pytest.fail()).reading in shown
    assert "No labels yet" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".csv"])
def test_labels_from_1_on_are_refused_until_it_is_said(tmp_path: Path, suffix: str) -> None:
    """Issue: 1..4 of five classes were read as indices, because the fifth happens to be absent."""
    p_NC, labels_N = np.eye(5)[[0, 1, 2, 3]] * 0.5 + 0.1, np.array([1, 2, 3, 4])
    path, labels, names = tmp_path / f"a{suffix}", None, ["a", "b", "c", "d", "e"]
    if suffix == ".npz":
        npz(path, probabilities=p_NC, labels=labels_N)
    elif suffix == ".npy":
        np.save(path, p_NC)
        np.save(labels := tmp_path / "labels.npy", labels_N)
    else:
        table(path, {**dict(zip(names, p_NC.T, strict=True)), "label": labels_N})
    with pytest.raises(FileError, match="and none is 0; give the number of the first class: --first-label 0 or"):
        reading.read(path, Form(labels=labels))
    named = Form(labels=labels, classes=tuple(names))
    for first, right in ((1, 4), (0, 0)):
        assert reading.read(path, replace(named, first_label=first)).correct_N.sum() == right
    if suffix != ".csv":
        assert reading.read(path, Form(labels=labels, first_label=1)).label_N == pytest.approx([0, 1, 2, 3])
        assert reading.read(path, Form(labels=labels, classes=("1", "2", "3", "4", "5"))).correct_N.all()


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_rounded_probabilities_are_taken_and_said(tmp_path: Path, suffix: str) -> None:
    """Issue: 1 - p leaves -1e-9, and three classes rounded to two decimals sum to .99 or 1.01."""
    p_NC = np.array([[0.33, 0.33, 0.33], [0.34, 0.34, 0.33], [1.000000001, -1e-9, 0], [0.2, 0.3, 0.5]])
    data = {**dict(zip(NAMES, p_NC.T, strict=True)), "label": [NAMES[k] for k in (0, 1, 0, 2)]}
    path = tmp_path / f"a{suffix}"
    if suffix == ".npz":
        npz(path, probabilities=p_NC, labels=np.array([0, 1, 0, 2]))
    else:
        table(path, data)
    answers = reading.read(path)
    assert answers.probabilities_NC is not None and answers.probabilities_NC.min() == 0
    said = "Probabilities are read as rounded to steps of 0.01, as row sums other than 1 show: 0 means below 0.005."
    assert answers.read_as.startswith(said)
    with pytest.warns(UserWarning, match="1 of 4 rows gave the true class a probability of 0"):
        assert np.isfinite(metrics.nll(p_NC, [0, 1, 1, 2], resolution="exact"))
    assert metrics.nll(p_NC, [0, 1, 1, 2]) < 3
    assert trueodds.report(p_NC, [0, 1, 0, 2]).n == 4


def test_columns_with_blanks_and_underscores_are_one_where_nothing_else_is_meant(tmp_path: Path) -> None:
    columns = {"p yes": [0.2, 0.7], "p no": [0.8, 0.3], "True Class": ["p no", "p yes"]}
    form = Form(label="true_class", classes=("p_yes", "p_no"))
    answers = reading.read(table(tmp_path / "a.csv", columns), form)
    assert answers.correct_N.all() and "The column 'p yes' is read as 'p_yes'." in answers.notes
    path = table(tmp_path / "b.csv", {**columns, "p-yes": [0, 0]})
    with pytest.raises(FileError, match="has no column 'p_yes'"):
        reading.read(path, form)


def test_times_in_each_form() -> None:
    expected = [1_767_225_600_000, 1_767_229_200_500]
    texts = np.array(["2026-01-01T00:00:00Z", "2026-01-01T02:00:00.5+01:00"])
    for values in (
        texts,
        np.array([1_767_225_600, 1_767_229_200.5]),
        np.array(["1767225600", "1767229200.5"]),
        np.array(["2026-01-01", "2026-01-01T01:00:00.500"], "datetime64[ns]"),
    ):
        assert times_of(values, "times").ms_N.tolist() == expected


@pytest.mark.parametrize("unit", ["milliseconds", "microseconds", "nanoseconds"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_unix_time_in_another_unit_is_recognised_and_said(tmp_path: Path, unit: str, suffix: str) -> None:
    """Issue: milliseconds were seconds, and the year 57971."""
    factor = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}[unit]
    moments = [1_767_225_600 * factor, 1_767_229_200 * factor]
    if suffix == ".npz":
        path = npz(tmp_path / "a.npz", probabilities=P[:2], labels=np.array([0, 1]), times=np.array(moments))
    else:
        path = table(
            tmp_path / f"a{suffix}", {"neg": [0.2, 0.7], "pos": [0.8, 0.3], "label": ["pos", "neg"], "time": moments}
        )
    answers = reading.read(path)
    assert answers.groups.time_ms_N is not None
    assert answers.groups.time_ms_N.tolist() == [1_767_225_600_000, 1_767_229_200_000]
    assert any(f"is read as Unix {unit}." in note for note in answers.notes)


def test_columns_beside_a_confidence_in_another_spelling_are_named(tmp_path: Path) -> None:
    """Issue: with Time and Tag a report had no trend and no tags, and did not say why."""
    columns = {
        "confidence": [0.8, 0.7],
        "correct": [1, 0],
        "Time": ["2026-01-01"] * 2,
        "TAG": ["a", "b"],
        "note": ["x"] * 2,
    }
    path = table(tmp_path / "a.parquet", columns)
    notes = reading.read(path).notes
    assert notes == (
        "The column 'TAG' is not read: rename it to 'tag' if it has that meaning. The column 'Time' is not read: rename"
        " it to 'time' if it has that meaning.",
    )
    assert plan_of(open_source(str(path), "duckdb"), Form()).notes == notes


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
@pytest.mark.parametrize(("times", "is_noted"), [([45_000.5, 45_001], True), ([45_000, 1_767_225_600], False)])
def test_days_that_are_read_as_seconds_are_said(
    tmp_path: Path, times: list[float], is_noted: bool, suffix: str
) -> None:
    """Issue: days since 1900, as spreadsheets write them, were a trend over some hours of 1970."""
    if suffix == ".npz":
        path = npz(tmp_path / "a.npz", probabilities=P[:2], labels=np.array([0, 1]), times=np.array(times))
    else:
        path = table(tmp_path / f"a{suffix}", {"confidence": [0.8, 0.7], "correct": [1, 0], "time": times})
    notes = reading.read(path).notes
    assert any("all are between 1960 and 1980" in note for note in notes) == is_noted


@pytest.mark.parametrize(
    ("moments", "words"),
    [
        (["20231114"], "20231114.*, a date or Unix seconds; write a date with dashes"),
        ([20231114], "20231114, a date or Unix seconds"),
        (["202311142213"], "allowed is ISO 8601"),
        ([20231114221300], "allowed is ISO 8601"),
        (["1_700_000_000"], "allowed is ISO 8601"),
        (["١٧٠٠٠٠٠٠٠٠"], "allowed is ISO 8601"),
        ([5_000_000_000], "seconds until 2100"),
        ([float("nan")], "nan; allowed"),
        ([1_700_000_000, 1_700_000_000_000], "holds 1700000000 and 1700000000000, Unix seconds and Unix milliseconds"),
        (["1700000000", "2023-11-14"], "Unix seconds and ISO 8601; write all in one form"),
        (["9999-12-31"], "allowed are the years 1 to 9998, in every row"),
        ([np.datetime64("2023-11-14"), np.datetime64(2**63 - 1, "us")], "outside of the years 1 to 9998, in 1 row"),
        *(([np.datetime64(2**63 - 1, unit)], "infinite times, .* in 1 row") for unit in ("m", "s", "ms", "ns")),
        *(([np.datetime64(-(2**63 - 1), unit)], "infinite times, .* in 1 row") for unit in ("D", "s", "us", "ns")),
        ([np.datetime64("9999-01-01", "s"), np.datetime64("0001-01-01", "s")], "in 1 row"),
    ],
)
def test_times_that_could_be_another(moments: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        times_of(np.array(moments), "time")


def test_numbers_are_as_in_every_csv(tmp_path: Path) -> None:
    """Issue: Python reads 1_0 and digits of other scripts."""
    for cell in ("0_1", "٠.٥"):
        (tmp_path / "a.csv").write_text(f"a,b,label\n{cell},0.5,a\n")
        with pytest.raises(FileError, match="allowed are numbers"):
            reading.read(tmp_path / "a.csv")


def test_texts_are_coded_by_what_they_say() -> None:
    texts = Texts.of_array(np.array([2.0, np.nan, 2.0, 1.5]))
    assert texts.as_list() == ["2", "", "2", "1.5"] and texts.is_known_N.tolist() == [True, False, True, True]
    mixed = Texts.of_array(np.array([" a", "a", None, ""], object))
    assert mixed.values == ("a", "") and mixed.code_N.tolist() == [0, 0, 1, 1]


GOOD = {"probabilities": P, "labels": Y}


@pytest.mark.parametrize(
    ("arrays", "words", "message"),
    [
        ({"x": P}, [], "has no 'probabilities'; it holds x. Expected an .npz with probabilities"),
        ({"probabilities": P}, [], "has no 'labels'; it holds probabilities"),
        ({"confidence": CONFIDENCE}, [], "has no 'correct'; it holds confidence"),
        (
            {"confidence": CONFIDENCE, "prediction": Y, "label": Y},
            ["--label", "label"],
            "has no 'predicted'; it holds confidence, prediction, label. Did you mean 'prediction'? Rename it.",
        ),
        (
            {"confidence": CONFIDENCE, "predicted": Y, "label": Y},
            [],
            "has no 'labels'; it holds confidence, predicted, label. Did you mean 'label'? Rename it.",
        ),
        (GOOD, ["--logits"], "has no 'logits'; it holds probabilities, labels"),
        (GOOD | {"logits": Z}, [], "choose one: --probabilities or --logits"),
        (GOOD | {"probabilities": Z}, [], "give --logits if these are logits"),
        (GOOD | {"probabilities": P / 2}, [], "sums to 0.5; every row must sum to 1 (within 1e-3, or as far"),
        ({"logits": P, "labels": Y}, [], "logits holds probabilities: every row lies in [0, 1] and sums to 1; give"),
        (GOOD | {"probabilities": np.where(P > 0.9, np.nan, P)}, [], "is nan; every value must be finite"),
        (GOOD | {"labels": Y + 1}, [], "none is 0; give the number of the first class: --first-label 0 or"),
        (GOOD | {"labels": Y[1:]}, [], "labels has 899 rows for 900 answers"),
        (GOOD | {"labels": P}, [], "labels has shape (900, 3); expected (rows,)"),
        (GOOD | {"labels": Y.astype(object)}, [], "write it with np.savez, text as array.astype(str)"),
        (GOOD | {"class_names": ["a", "b"]}, [], "2 names of classes for 3 columns"),
        (GOOD | {"predicted": Y}, [], "and its highest probability is that of"),
        (GOOD | {"tags": TAGS[1:]}, [], "tags has 899 rows for 900 answers"),
        (GOOD | {"times": np.full(N, "noon")}, [], "times holds 'noon'; allowed is ISO 8601"),
        (GOOD, ["--trend", "day"], "has no column time, which --trend needs"),
        ({"probabilities": P[:0], "labels": Y[:0]}, [], "probabilities has shape (0, 3)"),
        ({"confidence": CONFIDENCE + 1, "correct": TOP == Y}, [], "allowed is [0, 1]"),
        ({"confidence": CONFIDENCE, "correct": Y}, [], "correct holds '2'; allowed are 0, 1, true, false"),
        ({"confidence": CONFIDENCE, "correct": TOP == Y}, ["--by", "class"], "names no predicted classes"),
        (GOOD, ["--by", "tag"], "has no column tag, which --by tag needs"),
        (GOOD, ["--labels", "y.npy"], "holds the labels itself; remove --labels"),
        (GOOD, ["--bins", "7"], "--bins is 7; allowed are the divisors of 3000"),
        (GOOD, ["--level", "95"], "--level is 95.0; allowed is (0, 1)"),
        (GOOD, ["--tolerance", "2"], "--tolerance is 2.0; allowed is (0, 1)"),
    ],
)
def test_arrays_that_cannot_be_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arrays: dict[str, Any], words: list[str], message: str
) -> None:
    assert run(npz(tmp_path / "a.npz", **arrays), *words) == 1
    assert message in capsys.readouterr().err


def test_a_folder_is_not_said_to_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Spark writes a table as a folder with this suffix."""
    (folder := tmp_path / "answers.parquet").mkdir()
    cure = f'is a folder; name one of its files (`trueodds report --engine duckdb "{folder}/*'
    for words in (["report"], ["report", "--multi-label"], ["threshold"], ["calibrate"]):
        assert cli.main("trueodds", cli.COMMANDS, [*words, str(folder)]) == 1
        assert cure in capsys.readouterr().err


@pytest.mark.parametrize(
    ("above", "below"),
    [("sep=,\r\n", ""), ('"sep=,"\n', ""), ("sep=,,,\n", ""), ("\n \n", "\n"), ("", ",,\n, ,\n")],
)
def test_lines_of_spreadsheets_around_a_table(above: str, below: str, tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text(f"{above}{ROW}0.4,0.6,\n{below}", encoding="utf-8")
    assert reading.read(path).labelled_N.tolist() == [True, False]


ROW = "a,b,label\n0.5,0.5,a\n"


@pytest.mark.parametrize(
    ("name", "text", "words", "message"),
    [
        ("none.npz", None, [], "none.npz does not exist; expected an .npz with probabilities"),
        ("t.doc", "", [], "has the suffix '.doc'; expected an .npz"),
        ("T.CSV", ROW, [], "T.CSV has the suffix '.CSV'; rename it to .csv; expected an .npz"),
        ("T.CSV", ROW, ["--multi-label"], "T.CSV has the suffix '.CSV'; rename it to .csv; expected"),
        ("t.tsv", ROW, [], "rename it to .csv if its cells are separated by commas, semicolons, tabs or |; expected"),
        ("t.npz", "no zip", [], "is not a complete .npz file"),
        ("t.parquet", "no", [], "is not a Parquet file"),
        ("t.npy", "no", ["--labels", "t.npy"], "is not a complete .npy file without Python objects"),
        ("t.npy", "no", [], "give the file of its labels: --labels labels.npy"),
        ("t.npy", "no", ["--labels", "y.npy"], "y.npy does not exist; expected an .npy of the labels"),
        (
            "t.csv",
            "a,b,lable\n0.5,0.5,a\n",
            [],
            "has no column 'label'; it has 'a', 'b', 'lable'; name it with",
        ),
        ("t.csv", "a,b,Y_true\n0.5,0.5,a\n", [], "it has 'a', 'b', 'Y_true'; name it with --label Y_true."),
        ("t.csv", ROW, ["--classes", "a,c"], "has no column 'c'; it has 'a', 'b', 'label'; name it with --classes"),
        ("t.csv", "age," + ROW.replace("\n", "\n9,", 1), [], "column 'age' holds 9; allowed is [0, 1]"),
        ("t.csv", ROW + "0.5,0.5,c\n", [], "has the label 'c'; allowed are 'a', 'b', or all as numbers 0..1"),
        ("t.csv", ROW + "0.5,x,a\n", [], "row 3, column 'b' holds 'x'; allowed are numbers"),
        ("t.csv", ROW + "0.5,,a\n", [], "row 3: column 'b' is empty"),
        ("t.csv", ROW + "0.5,0.5\n", [], "row 3 has 2 cells, the header 3; numbers have a point"),
        ("t.csv", "# by me\n" + ROW, [], "the header 1; the first row names the columns: remove the lines above"),
        ("t.csv", ROW + ",,\n" + ROW[-10:], [], "row 3: column 'a' is empty (or NaN)"),
        ("t.csv", "a,a,label\n", [], "has the column 'a' twice"),
        ("t.csv", ",a,label\n", [], "column 1 of the header has no name; name it, or leave it out (pandas"),
        ("t.csv", "a,b,label\n", [], "expected (rows, classes), both at least 1"),
        ("t.csv", "", [], "has no column 'label'"),
        (
            "t.csv",
            "a;b;label\n\n0,5;0,5;a\n",
            [],
            "row 3, column 'a' holds '0,5'; allowed are numbers, and an empty cell for",
        ),
        ("t.csv", "a;b;label\n0,5;0,5;a\n", [], "a decimal comma is written as a point: 0.5\n"),
        (
            "t.csv",
            "a,b,label\n50.5 %,49.5 %,a\n",
            [],
            "; leave out the percent sign: 50.5, or 0.505 for a probability\n",
        ),
        ("t.csv", ROW + '0.5,"0.5,a\n', [], "row 3 is not CSV"),
        ("t.csv", "label,tag\na,b\n", [], "and none for a class; expected"),
        ("t.csv", "confidence,predicted\n0.9,a\n", [], "has no 'labels'; it holds confidence, predicted"),
        ("t.csv", "confidence,predicted,label\n0.9,,a\n", [], "answer 1 has no predicted class"),
        ("t.csv", "confidence,correct\n", [], "holds no answers"),
    ],
)
def test_files_that_cannot_be_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str | None,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path(name).write_text(text)
    assert run(name, *words) == 1
    assert message in capsys.readouterr().err


def test_too_many_groups_are_names_of_single_answers(tmp_path: Path) -> None:
    many = np.arange(1001)
    confidence = npz(tmp_path / "a.npz", confidence=np.full(1001, 0.9), correct=many % 10 > 0, tags=many)
    with pytest.raises(trueodds.UserError, match="has 1,001 different tags; at most 1,000 are compared"):
        report_of_answers(reading.read(confidence), by="tag")


def test_long_files_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path / "a.csv", {"p": P[:, 0], "label": named()})
    whole = columns.read(path, ["p"], ["label"])
    monkeypatch.setattr(columns, "LINES", 7)
    parts = columns.read(path, ["p"], ["label"])
    np.testing.assert_array_equal(parts.numbers["p"], whole.numbers["p"])
    assert parts.texts["label"].as_list() == whole.texts["label"].as_list() == [name or "" for name in named()]


def test_the_json_is_the_report(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", **GOOD)
    assert run(path, "--json", tmp_path / "a.json", "--bins", "10", "--binning", "mass", "--level", "0.9") == 0
    tree = json.loads((tmp_path / "a.json").read_text())
    rows = trueodds.report(P, Y, bins=10, binning="mass", level=0.9)
    assert (tree["ece"], tree["nll_lower"], tree["one_look"]) == (rows.ece, rows.nll_lower, True)


def binary(path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """Scores of ham and spam, three in four of them labelled; p(spam) and the labels."""
    rng = np.random.default_rng(4)
    z_N = rng.normal(-1, 2, 800)
    p_N, spam_N = np.round(1 / (1 + np.exp(-z_N)), 6), rng.random(800) < 1 / (1 + np.exp(-z_N / 1.7))
    label_N = np.where(np.arange(800) % 4 > 0, np.where(spam_N, "spam", "ham"), "")
    return table(path, {"ham": 1 - p_N, "spam": p_N, "label": label_N}), p_N, label_N


def test_a_positive_class_leads_and_costs_say_what_alerts_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, p_N, label_N = binary(tmp_path / "scores.csv")
    page, tree = tmp_path / "r.html", tmp_path / "r.json"
    assert run(path, "--positive", "spam", "--costs", "miss=10,alarm=1", "--html", page, "--json", tree) == 0
    printed, report = capsys.readouterr().out, Report.model_validate_json(tree.read_text())
    known_N = label_N != ""
    rows = p_N[known_N], (label_N[known_N] == "spam").astype(int)
    expected = metrics.decision_cost(*rows, metrics.Costs(10, 1))
    assert report.decisions is not None and report.decisions.cost == expected
    assert report.decisions.reading in printed and "Alerts by p(spam)" in printed
    assert [t for t in report.decisions.thresholds if t != expected.at] == metrics.thresholds(*rows)
    assert report.positive is not None and report.positive.prevalence == rows[1].mean()
    assert printed.index("p(spam), over all") < printed.index("\nThe more probable class\n")
    assert "What does an alert threshold do?" in page.read_text() and "(the costs')" in page.read_text()

    spam_N = p_N > 0.5
    top = {"confidence": np.where(spam_N, p_N, 1 - p_N), "predicted": np.where(spam_N, "spam", "ham"), "label": label_N}
    by_top = report_of_answers(reading.read(table(tmp_path / "top.csv", top)), positive="spam")
    assert by_top.positive is not None and by_top.positive.ece == pytest.approx(report.positive.ece, abs=1e-9)
    assert by_top.decisions is not None and by_top.decisions.thresholds == metrics.thresholds(*rows)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--costs", "miss=1,alarm=1"], "without --positive"),
        (["--positive", "spa"], "unknown positive class 'spa'; allowed: ham, spam. Did you mean 'spam'?"),
        (
            ["--positive", "spam", "--costs", "miss=1"],
            "expected what a missed positive and a false alarm cost",
        ),
        (["--positive", "spam", "--costs", "miss=1,alarm=-1"], "the cost alarm is -1.0; allowed are positive numbers"),
    ],
)
def test_costs_and_positive_classes_that_cannot_be_used(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _, _ = binary(tmp_path / "scores.csv")
    assert run(path, *words) != 0
    assert message in capsys.readouterr().err


def test_an_empty_label_beside_predicted_classes_is_no_label_in_any_form(tmp_path: Path) -> None:
    data = {"confidence": [0.9, 0.8, 0.7], "predicted": ["cat", "dog", "cat"], "label": ["cat", None, "dog"]}
    for form in ("csv", "parquet"):
        answers = reading.read(table(tmp_path / f"a.{form}", data))
        assert answers.labelled_N.tolist() == [True, False, True], form
        assert answers.correct_N.tolist() == [True, False, False], form


REPEATED = "2 rows have the id of an earlier row."


@pytest.mark.parametrize(
    ("header", "cells", "is_told"),
    [
        ("id,confidence,correct", ("a,.9,1", "b,.8,0", "a,.9,1", "b,.8,0"), True),
        ("id,spam,ham,label", ("1,.9,.1,spam", "2,.2,.8,ham", "1,.9,.1,spam", "2,.2,.8,ham"), True),
        ("id,confidence,correct", ("a,.9,1", "b,.8,0", ",.9,1", ",.8,0"), False),
        ("id,confidence,correct,version", ("a,.9,1,v1", "b,.8,0,v1", "a,.9,1,v2", "b,.8,0,v2"), False),
        ("id,confidence,predicted,label,question", ("a,.9,x,x,q", "b,.8,x,x,q", "a,.9,x,x,r", "b,.8,x,x,r"), False),
    ],
)
def test_rows_with_the_id_of_an_earlier_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, cells: tuple[str, ...], is_told: bool
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join([header, *cells]) + "\n")
    assert any(REPEATED in note for note in reading.read(path).notes) is is_told
    monkeypatch.setattr(matching, "MOST_BYTES", 10)
    assert not any(REPEATED in note for note in reading.read(path).notes)


def test_an_array_of_ids_and_the_commands_tell_repeated_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "a.npz", confidence=[0.9, 0.8] * 2, correct=[1, 0] * 2, ids=["a", "b"] * 2)
    assert any(REPEATED in note for note in reading.read(tmp_path / "a.npz").notes)
    path, out = tmp_path / "a.csv", str(tmp_path / "out.csv")
    path.write_text("id,spam,ham,label\n" + "1,3,1,spam\n2,1,2,ham\n" * 2)
    words = ["calibrate", str(path), "--candidates", "temperature", "--out", str(tmp_path / "out")]
    assert cli.main("trueodds", cli.COMMANDS, words) == 0 and REPEATED in capsys.readouterr().out
    path.write_text("id,confidence\n" + "1,.9\n2,.8\n" * 2)
    assert cli.main("trueodds", cli.COMMANDS, ["sample", str(path), "--budget", "1", "--out", out]) == 0
    assert REPEATED in capsys.readouterr().out
