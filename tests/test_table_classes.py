"""Whose probability a column of a table is, and which class a label names: nothing that turns a verdict is guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.test_table_report import npz, run, table
from trueodds.errors import UserError
from trueodds.reports import Report
from trueodds.reports.table import reading
from trueodds.reports.table.reading import Form
from trueodds.reports.table.table_report import report_of_answers

RNG = np.random.default_rng(11)
N = 200
P = RNG.beta(1, 3, N).round(4)
TRUE = RNG.random(N) < P
"""Calibrated: the class that p speaks of comes in a quarter of the rows."""


def labels(yes: Any, no: Any) -> list[Any]:
    return [yes if true else no for true in TRUE]


def cycle(values: list[int]) -> list[int]:
    return np.resize(values, N).tolist()


def report(path: Path, positive: str | None = None, **form: Any) -> Report:
    return report_of_answers(reading.read(path, Form(positive=positive, **form)), positive=positive)


def says_of(report: Report, positive: str) -> tuple[float, float]:
    """The share of the positive class, and its mean probability."""
    p = report.positive
    assert p is not None and p.label == positive and p.prevalence is not None and p.mean_probability is not None
    return round(p.prevalence, 9), round(p.mean_probability, 9)


SAID = (round(float(TRUE.mean()), 9), round(float(P.mean()), 9))
SHARE = SAID[0]


@pytest.mark.parametrize(
    ("column", "yes", "no"), [("0", 0, 1), ("1", 1, 0), ("1", 1.0, -1.0), ("-1", -1, 1), ("churn", "churn", "stay")]
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_named_as_a_class_is_that_class(column: str, yes: Any, no: Any, suffix: str, tmp_path: Path) -> None:
    path = table(tmp_path / f"a.{suffix}", {column: P, "label": labels(yes, no)})
    assert report(path).accuracy == pytest.approx(((P > 0.5) == TRUE).mean())
    assert says_of(report(path, column), column) == SAID
    other = str(int(no)) if column != "churn" else no
    assert says_of(report(path, other), other)[0] == pytest.approx(1 - SHARE)


@pytest.mark.parametrize(
    ("yes", "no"), [("churn", "stay"), (1, 0), (0, 1), (1, -1), ("True", "False"), ("none", "some")]
)
@pytest.mark.parametrize("column", ["p", "score", "0.9", "yes", "prob", "index"])
def test_a_column_that_is_named_otherwise_is_asked_for(column: str, yes: Any, no: Any, tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", {column: P, "label": labels(yes, no)})
    with pytest.raises(
        UserError, match=rf"the column '{column}' of probabilities beside the labels .* --positive {yes}"
    ):
        report(path)
    read = report(path, str(yes))
    assert says_of(read, str(yes)) == SAID
    assert f"The column '{column}' is read as p({yes}), as --positive says." in read.cautions


def test_one_column_beside_other_labels_than_of_two_classes(tmp_path: Path) -> None:
    three = table(tmp_path / "a.csv", {"p": [0.1, 0.2, 0.3], "label": ["a", "b", "c"]})
    with pytest.raises(UserError, match=r"for 3 classes .*; give a column for each class"):
        report(three, "a")
    none = table(tmp_path / "b.csv", {"p": [0.1, 0.2], "label": ["", ""]})
    with pytest.raises(UserError, match="beside no labels; say whose probability it is: --positive CLASS"):
        report(none)
    assert report(none, "churn").answers == 2
    rare = table(tmp_path / "c.csv", {"p": [0.1, 0.2], "label": ["stay", "stay"]})
    assert says_of(report(rare, "churn"), "churn")[0] == 0
    one = table(tmp_path / "d.csv", {"p": [0.1, 0.2], "label": [1, 1]})
    with pytest.raises(UserError, match="--positive 'churn' is not a class of the labels; allowed are '1'"):
        report(one, "churn")


def test_two_stated_classes_and_one_column(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", {"churn": P, "label": labels(1, 0)})
    with pytest.raises(UserError, match="say whose probability it is: --positive 0 or --positive 1"):
        report(path)
    assert says_of(report(path, "churn", classes=("stay", "churn")), "churn") == SAID
    with pytest.raises(UserError, match="has no column 'dog'"):
        report(
            table(tmp_path / "b.csv", {"cat": P, "dgo": 1 - P, "label": labels("cat", "dgo")}), classes=("cat", "dog")
        )


def test_an_array_of_one_probability_is_of_class_1_or_the_positive_one(tmp_path: Path) -> None:
    for yes, no, array in ((1, 0, P), (1, -1, P), (True, False, P), (1, 0, P[:, None])):
        path = npz(tmp_path / "a.npz", probabilities=array, labels=np.array(labels(yes, no)))
        assert says_of(report(path, str(yes)), str(yes)) == SAID
        assert f"The one column of probabilities is read as p({yes})." in report(path).cautions
    of_0 = npz(tmp_path / "b.npz", probabilities=P, labels=np.array(labels(0, 1)))
    assert says_of(report(of_0, "0"), "0") == SAID
    named = npz(
        tmp_path / "c.npz", probabilities=P, labels=np.array(labels("ham", "spam")), class_names=["ham", "spam"]
    )
    with pytest.raises(UserError, match="--positive ham or --positive spam"):
        report(named)
    assert says_of(report(named, "ham"), "ham") == SAID
    for z in (P, P[:, None]):
        with pytest.raises(UserError, match="the array holds one logit for each answer"):
            report(npz(tmp_path / "d.npz", logits=z, labels=np.array(labels(1, 0))))


@pytest.mark.parametrize("form", ["csv", "parquet", "npz", "npy"])
def test_labels_of_minus_1_and_1_are_two_classes(form: str, tmp_path: Path) -> None:
    """An empty cell, null or NaN is no label."""
    p_NC, signs = np.stack([1 - P, P], axis=1), np.where(TRUE, 1.0, -1.0)
    signs[:40] = np.nan
    options: dict[str, Any] = {}
    match form:
        case "npz":
            path, positive = npz(tmp_path / "a.npz", probabilities=p_NC, labels=signs), "1"
        case "npy":
            path, positive, options = tmp_path / "p.npy", "1", {"labels": tmp_path / "y.npy"}
            np.save(path, p_NC)
            np.save(options["labels"], signs)
        case _:
            cells = [None if np.isnan(sign) else int(sign) for sign in signs]
            path, positive = table(tmp_path / f"a.{form}", {"neg": 1 - P, "pos": P, "label": cells}), "pos"
    read = report(path, positive, **options)
    assert (read.answers, read.labelled) == (N, N - 40)
    assert says_of(read, positive)[0] == TRUE[40:].mean()
    said = "-1 is 'neg', 1 is 'pos'" if positive == "pos" else "The label -1 is a class"
    assert any(said in caution for caution in read.cautions)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"neg": P, "pos": 1 - P, "label": cycle([-1, 0, 1, 1])},
            "the label '-1'; allowed are 'neg', 'pos', or all as",
        ),
        ({"neg": P, "pos": 1 - P, "label": cycle([-1, 0])}, "the label '-1'"),
        ({"a": P, "b": 1 - P, "c": 0 * P, "label": cycle([-1, 0, 1, 1])}, "the label '-1'; allowed are 'a', 'b', 'c'"),
        ({"0": P, "1": 1 - P, "label": cycle([-1, 1])}, "the label '-1'; allowed are 0..1; leave the cell empty"),
        ({"confidence": P, "correct": cycle([-1, 1])}, "correct holds '-1'; allowed are 0, 1, true, false; leave"),
        (
            {"confidence": P, "predicted": cycle([0, 1]), "label": cycle([-1, 1])},
            "the label '-1', which no answer predicts: is it a class, or no label?",
        ),
    ],
)
def test_minus_1_is_a_missing_label_nowhere(data: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        report(table(tmp_path / "a.csv", data))
    assert message in str(error.value)


def test_three_classes_of_signs_are_names_of_columns(tmp_path: Path) -> None:
    third = np.full(N, 0.25)
    data = {"1": third, "0": third, "-1": 2 * third, "label": cycle([-1, 0, 1, -1])}
    assert report(table(tmp_path / "a.csv", data)).accuracy == 0.5


def test_whole_numbers_are_names_where_the_classes_are(tmp_path: Path) -> None:
    """A column of numbers with a gap in it is written as 1.0, 2.0."""
    p_NC = np.full((N, 3), 0.1)
    label = np.arange(N) % 3
    p_NC[np.arange(N), label] = 0.8
    stars = {str(k + 1): p_NC[:, k] for k in range(3)}
    written: list[Any] = [f"{k + 1}.0" for k in label[:150]] + [None] * 50
    assert report(table(tmp_path / "a.csv", {**stars, "label": written})).accuracy == 1
    array = npz(tmp_path / "a.npz", probabilities=p_NC, labels=label + 1, class_names=["1", "2", "3"])
    assert report(array).accuracy == 1
    with pytest.raises(UserError, match="the label '0'; allowed are '1', '2', '3'; leave"):
        report(table(tmp_path / "b.csv", {**stars, "label": [0] * N}))


def test_numbers_of_named_columns_are_said_and_another_order_is_asked_for(tmp_path: Path) -> None:
    columns = {"fraud": P, "ok": 1 - P}
    wrong = table(tmp_path / "a.csv", {**columns, "label": labels(1, 0)})
    with pytest.raises(
        UserError, match=r"answers are right if the classes are 'fraud', 'ok', \d+ if they are 'ok', 'fr"
    ):
        report(wrong)
    stated = report(wrong, "fraud", classes=("ok", "fraud"))
    assert says_of(stated, "fraud") == SAID
    right = report(table(tmp_path / "b.csv", {**columns, "label": labels(0, 1)}), "fraud")
    assert says_of(right, "fraud") == SAID
    assert "The labels are numbers, in the order of the classes: 0 is 'fraud', 1 is 'ok'." in right.cautions


@pytest.mark.parametrize("columns", [("p_ham", "p_spam"), ("p(ham)", "p(spam)"), ("ham score", "spam score")])
def test_a_class_is_named_within_the_name_of_its_column(columns: tuple[str, str], tmp_path: Path) -> None:
    data = {columns[1]: P, columns[0]: 1 - P, "label": labels("spam", "ham")}
    assert says_of(report(table(tmp_path / "a.csv", data), "spam"), "spam") == SAID
    numbers = {f"p{k}": column for k, column in ((1, P), (0, 1 - P))}
    assert says_of(report(table(tmp_path / "b.csv", {**numbers, "label": labels(1, 0)}), "1"), "1") == SAID


AB = {"a": P, "b": 1 - P}
LABEL = {"label": labels("a", "b")}


@pytest.mark.parametrize(
    ("data", "words", "message"),
    [
        ({"index": np.arange(N), **AB, **LABEL}, [], "row 4: column 'index' holds 2; allowed is [0, 1] in every row"),
        ({"age": P + 30, **AB, **LABEL}, [], "If 'age' is not a class, name the columns of the classes: --classes a,b"),
        (
            {"score": P / 2, **AB, **LABEL},
            [],
            "without 'score' every row sums to 1. If 'score' is not a class, name the",
        ),
        (
            {**AB, "c": 1 - P, **LABEL},
            [],
            "the columns 'a', 'b', 'c' are read as probabilities of the classes, and sum to",
        ),
        ({"a": -P, "b": 1 + P, **LABEL}, [], "column 'a' holds -"),
        ({"a": P, "b": P * np.inf, **LABEL}, ["--logits"], "column 'b' holds inf; allowed is finite numbers"),
        ({"a": [None] * N, "b": P, **LABEL}, ["--logits"], "row 2: column 'a' is empty (or NaN); allowed is finite"),
        ({"p": P + 1, **LABEL}, ["--positive", "a"], "column 'p' holds 1"),
        ({"p": P * 100, **LABEL}, ["--positive", "a"], "allowed is [0, 1] in every row: divide percentages by 100."),
        ({"confidence": P * 100, "correct": [1] * N}, [], "; allowed is [0, 1]: divide percentages by 100"),
        (
            {"p": P, **LABEL},
            ["--logits"],
            "the column 'p' holds one logit for each answer; expected one for each class",
        ),
        (
            {"0.9": P, "b": P},
            [],
            "has no column 'label'; it has '0.9', 'b'; name it with --label. If its first row is an",
        ),
        (
            {"discount": ["12 %"] * N, **AB, **LABEL},
            [],
            "0.12 for a probability. If 'discount' is not a class, name the columns of the classes: --classes a,b",
        ),
        ({"Confidence": P, "Correct": [1] * N}, [], "rename 'Confidence' to 'confidence', 'Correct' to 'correct'"),
        ({"CONFIDENCE": P, "predicted": ["a"] * N, **LABEL}, [], "; rename 'CONFIDENCE' to 'confidence'"),
    ],
)
def test_a_column_at_fault_is_named(
    data: dict[str, Any], words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(table(tmp_path / "a.csv", data), *words) == 1
    assert message in capsys.readouterr().err


def test_a_column_of_logits_that_no_label_names_is_said(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", {"age": P - 9, "a": np.log(P + 0.01), "b": np.log(1 - P), **LABEL})
    said = "No label is 'age': if that is not a class, name the columns that are classes: --classes a,b."
    assert said in report(path, scale="logits").cautions
    assert said not in report(path, scale="logits", classes=("a", "b")).cautions


def test_a_column_of_logits_that_no_label_names_and_that_is_highest_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", {"age": P + 40, "a": np.log(P + 0.01), "b": np.log(1 - P), **LABEL})
    with pytest.raises(UserError, match=r"no label is 'age', .* in 200 of 200 labelled rows; .* --classes a,b; other"):
        report(path, scale="logits")
    assert report(path, scale="logits", classes=("age", "a", "b")).accuracy == 0
    few = table(tmp_path / "few.csv", {"age": P + 40, "a": P, "b": P, "label": ["a", "b"] * 5 + [""] * (N - 10)})
    assert "No label is 'age'" in report(few, scale="logits").cautions[-1]


@pytest.mark.parametrize(("name", "index"), [("a.parquet", "__index_level_0__"), ("a.csv", "Unnamed: 0")])
def test_row_numbers_of_pandas_are_no_class(name: str, index: str, tmp_path: Path) -> None:
    logits = {"a": np.log(P + 0.01), "b": np.log(1 - P), **LABEL}
    alone = report(table(tmp_path / f"alone-{name}", logits), scale="logits")
    numbered = report(table(tmp_path / name, {index: RNG.permutation(N), **logits}), scale="logits")
    assert (numbered.nll, numbered.cautions) == (alone.nll, alone.cautions)


def by_confidence(folder: Path, predicted: list[Any], label: list[Any]) -> Path:
    return table(folder / "a.csv", {"confidence": [0.9] * len(label), "predicted": predicted, "label": label})


def test_classes_and_labels_beside_a_confidence_are_the_same_names(tmp_path: Path) -> None:
    whole = by_confidence(tmp_path, [1, 2, 3, 3], ["1.0", "2.0", "3.0", ""])
    assert (report(whole).accuracy, report(whole).labelled) == (1, 3)
    none = by_confidence(tmp_path, ["none", "scratch"], ["none", "none"])
    assert (report(none).accuracy, report(none).labelled) == (0.5, 2)


@pytest.mark.parametrize(
    ("predicted", "label", "message"),
    [
        (["scratch", "dent"], ["None", "dent"], "has the label 'None', which no answer predicts: is it a class, or no"),
        ([1, 0], ["True", "False"], "the labels 'True', 'False' and predicts '1', '0': are they the same classes?"),
        (["ham", "spam"], [0, 1], "the labels '0', '1' and predicts 'ham', 'spam'"),
        (["Ham", "spam"], ["ham", "spam"], "the label 'ham' and predicts 'Ham': are they one class?"),
    ],
)
def test_labels_beside_a_confidence_that_may_be_other_names(
    predicted: list[Any], label: list[Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        report(by_confidence(tmp_path, predicted, label))
    assert message in str(error.value)


def test_stated_classes_tell_what_a_confidence_is_of(tmp_path: Path) -> None:
    path = by_confidence(tmp_path, ["ham", "spam", "spam"], [0, 1, 0])
    assert report(path, classes=("ham", "spam")).accuracy == pytest.approx(2 / 3)
    sentiment = by_confidence(tmp_path, [0, 1], [-1, 1])
    assert report(sentiment, classes=("-1", "0", "1")).accuracy == 0.5
    with pytest.raises(UserError, match="the label '2'; allowed are"):
        report(by_confidence(tmp_path, ["ham"], [2]), classes=("ham", "spam"))


def test_a_confidence_that_is_always_of_one_class_is_said(tmp_path: Path) -> None:
    yes = np.where(P > 0.5, "yes", "no")
    data = {"predicted": yes, "label": labels("yes", "no")}
    of_yes = table(tmp_path / "a.csv", {"confidence": P, **data})
    said = [
        caution for caution in report(of_yes).cautions if "of two classes have a confidence below one half" in caution
    ]
    assert len(said) == 1 and "give --classes confidence and --positive CLASS" in said[0]
    assert says_of(report(of_yes, "yes", classes=("confidence",)), "yes") == SAID
    of_predicted = report(table(tmp_path / "b.csv", {"confidence": np.maximum(P, 1 - P), **data}))
    assert not any("have a confidence below" in caution for caution in of_predicted.cautions)


def test_a_positive_class_of_a_confidence_is_one_of_two(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown positive class 'fraut'; allowed: ok, fraud"):
        report(by_confidence(tmp_path, ["ok", "ok"], ["ok", "fraud"]), "fraut")
    with pytest.raises(UserError, match="there are 3 classes"):
        report(by_confidence(tmp_path, ["a", "b"], ["a", "c"]), "b")


CODES = [("churn", "stay"), (1, 0), (0, 1), (1, -1), (-1, 1), ("1.0", "0.0"), ("True", "False"), (2, 1), ("b", "a")]
"""Labels of the class that p speaks of, and of the other."""
PAIRS = [("{yes}", "{no}"), ("p_{yes}", "p_{no}"), ("p({yes})", "p({no})"), ("x", "y"), ("y", "x"), ("churn", "stay")]
"""Names of the columns of p and 1 - p."""


@pytest.mark.parametrize(("yes", "no"), CODES)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_table_is_read_right_or_refused(yes: Any, no: Any, swapped: bool, tmp_path: Path) -> None:
    """Whatever its columns are named and in whatever order they stand: a right answer never becomes a wrong one."""
    read, refused, right = 0, 0, (P > 0.5) == TRUE
    for p_name, q_name in [*PAIRS, ("{yes}", ""), ("", "{no}"), ("p", ""), ("", "p"), ("churn", ""), ("", "stay")]:
        columns = {p_name.format(yes=yes, no=no): P, q_name.format(yes=yes, no=no): 1 - P}
        columns.pop("", None)
        order = sorted(columns, reverse=swapped)
        path = table(tmp_path / "a.csv", {**{name: columns[name] for name in order}, "label": labels(yes, no)})
        try:
            answers = reading.read(path)
        except UserError:
            refused += 1
            continue
        read += 1
        assert (answers.correct_N == right).all() and answers.labelled_N.all(), order
    assert read >= 4 and refused >= 2


def test_a_label_in_another_writing_is_the_class_that_alone_is_meant(tmp_path: Path) -> None:
    answers = {"New_York": [0.7, 0.2, 0.7], "rome": [0.3, 0.8, 0.3], "predicted": ["new york", "Rome", "New_York"]}
    read = reading.read(table(tmp_path / "a.csv", answers | {"label": ["New York", "ROME", "new-york"]}))
    assert read.label_N is not None and read.label_N.tolist() == [0, 1, 0]
    with pytest.raises(UserError, match=r"the label 'York'; .*Did you mean 'New_York'"):
        reading.read(table(tmp_path / "b.csv", answers | {"label": ["York", "rome", "rome"]}))
    with pytest.raises(UserError, match="are they one class"):
        of_top = {"confidence": [0.7, 0.8], "predicted": ["New_York", "rome"], "label": ["New York", "rome"]}
        reading.read(table(tmp_path / "c.csv", of_top))


def test_names_of_an_npz_and_of_the_option_in_two_orders_are_refused(tmp_path: Path) -> None:
    """The option would name the first column 'no', which the file names 'yes'."""
    path = tmp_path / "named.npz"
    np.savez(path, probabilities=np.stack([P, 1 - P], axis=1), labels=labels(0, 1), class_names=["yes", "no"])
    assert says_of(report(path, "yes"), "yes") == says_of(report(path, "yes", classes=("yes", "no")), "yes")
    with pytest.raises(UserError, match=r"--classes has the order 'no', 'yes', and class_names of .*named.npz has"):
        report(path, "yes", classes=("no", "yes"))
    assert says_of(report(path, "oui", classes=("oui", "non")), "oui") == says_of(report(path, "yes"), "yes")
