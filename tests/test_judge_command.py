"""`trueodds report --judge`: estimates from human labels and a judge's, its error rates, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.test_table_report import npz, table
from trueodds import cli, metrics
from trueodds.files import FileError
from trueodds.reports.page.rendering import render
from trueodds.reports.schemas.judge import JudgeFigures
from trueodds.reports.table.reading import Form, read
from trueodds.reports.table.table_report import report_of_answers
from trueodds.reports.table.text import text_of

RNG = np.random.default_rng(45)
N, LABELS = 3_000, 300
OTHER = {"cat": "dog", "dog": "cat"}
C = (1 - 0.5 * RNG.random(N) ** 2).round(4)
PREDICTED = RNG.choice(["cat", "dog"], N, p=[0.7, 0.3])
RIGHT = RNG.random(N) < C - 0.05
TRUTH = np.array([p if right else OTHER[p] for p, right in zip(PREDICTED, RIGHT, strict=True)])
JUDGE = np.array([t if good else OTHER[t] for t, good in zip(TRUTH, RNG.random(N) < 0.95, strict=True)])
KNOWN = RNG.random(N) < LABELS / N
JUDGE_RIGHT = JUDGE == PREDICTED


def columns(**more: Any) -> dict[str, Any]:
    human = [label if known else None for label, known in zip(TRUTH, KNOWN, strict=True)]
    return {"id": np.arange(N), "confidence": C, "predicted": PREDICTED, "label": human, "judge": JUDGE, **more}


def judged(path: Path, **form: Any) -> JudgeFigures:
    form = {"judge": "judge", **form}
    report = report_of_answers(read(path, Form(**form)), positive=form.get("positive"), judge=form["judge"])
    assert report.judge is not None
    return report.judge


@pytest.mark.parametrize("form", ["csv", "parquet", "classes", "correct", "npz", "npz correct"])
def test_every_form_of_a_table(form: str, tmp_path: Path) -> None:
    human_N = np.where(KNOWN, RIGHT, np.nan)
    p_cat = np.where(PREDICTED == "cat", C, 1 - C)
    if form in ("csv", "parquet"):
        path = table(tmp_path / f"a.{form}", columns())
    elif form == "classes":
        data = {"p_cat": p_cat, "p_dog": 1 - p_cat, **{name: columns()[name] for name in ("label", "judge")}}
        path = table(tmp_path / "a.csv", data)
    elif form == "correct":
        human = [int(right) if known else None for right, known in zip(RIGHT, KNOWN, strict=True)]
        path = table(tmp_path / "a.csv", {"confidence": C, "correct": human, "judge": JUDGE_RIGHT.astype(int)})
    elif form == "npz":
        labels = np.where(KNOWN, (TRUTH == "dog").astype(float), np.nan)
        path = npz(
            tmp_path / "a.npz",
            probabilities=np.stack([p_cat, 1 - p_cat], 1),
            labels=labels,
            judge=(JUDGE == "dog").astype(int),
        )
    else:
        path = npz(tmp_path / "a.npz", confidence=C, correct=human_N, judge=JUDGE_RIGHT)
    found, mean = judged(path), metrics.powered_mean(human_N, JUDGE_RIGHT.astype(float))
    assert found.accuracy is not None and found.accuracy.lower == pytest.approx(mean.lower)
    assert found.accuracy.human_upper == pytest.approx(mean.human_upper)
    assert found.answers == found.judge_labels == N and found.labels == KNOWN.sum() and not found.warning
    limits = metrics.binomial_interval((JUDGE_RIGHT == RIGHT)[KNOWN].sum(), KNOWN.sum())
    assert (found.agreement_lower, found.agreement_upper) == pytest.approx(tuple(map(float, limits)))
    assert len(found.classes) == (0 if "correct" in form else 2)
    gap = metrics.powered_gap(C, human_N, JUDGE_RIGHT.astype(float))
    assert found.signed_gap is not None and found.signed_gap.value == pytest.approx(gap.value)
    assert sum(part.answers for part in found.bins) == N and sum(part.labels for part in found.bins) == KNOWN.sum()
    assert all((part.gap is None) == (part.labels < 10) for part in found.bins)


def test_a_column_correct_beside_labels(tmp_path: Path) -> None:
    """`correct` counts. Classes have error rates only if every human label names one; both must agree."""
    human = [int(right) if known else None for right, known in zip(RIGHT, KNOWN, strict=True)]
    plain = judged(table(tmp_path / "a.csv", {"confidence": C, "correct": human, "judge": JUDGE_RIGHT.astype(int)}))
    some = [label if i % 2 else None for i, label in enumerate(columns()["label"])]
    for label in (some, [None] * N):
        found = judged(table(tmp_path / "b.csv", columns(correct=human, label=label)))
        assert found.classes == [] and (found.accuracy, found.agreement) == (plain.accuracy, plain.agreement)
    assert len(judged(table(tmp_path / "c.csv", columns(correct=human))).classes) == 2
    with pytest.raises(FileError, match=r"has correct [01], the label '(cat|dog)' and predicted"):
        judged(table(tmp_path / "d.csv", columns(correct=[None if h is None else 1 - h for h in human])))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("form", ["csv", "npz"])
def test_numbers_of_classes_from_the_first_label(form: str, first: int, tmp_path: Path) -> None:
    p_cat = np.where(PREDICTED == "cat", C, 1 - C)
    human_N, judge_N = (first + (of == "dog").astype(float) for of in (TRUTH, JUDGE))
    human_N[~KNOWN] = np.nan
    if form == "csv":
        data = {"p_cat": p_cat, "p_dog": 1 - p_cat, "label": [None if np.isnan(h) else int(h) for h in human_N]}
        path = table(tmp_path / "a.csv", {**data, "judge": judge_N.astype(int)})
    else:
        path = npz(tmp_path / "a.npz", probabilities=np.stack([p_cat, 1 - p_cat], 1), labels=human_N, judge=judge_N)
    named, found = judged(table(tmp_path / "b.csv", columns())), judged(path, first_label=first)
    assert found.accuracy == named.accuracy and found.agreement == named.agreement


def test_labels_that_number_the_given_classes(tmp_path: Path) -> None:
    human = [int(label == "dog") if known else None for label, known in zip(TRUTH, KNOWN, strict=True)]
    named = judged(table(tmp_path / "a.csv", columns()))
    for judge in (JUDGE, (JUDGE == "dog").astype(int), np.char.upper(JUDGE)):
        path = table(tmp_path / "b.csv", columns(label=human, judge=judge))
        found = judged(path, classes=("cat", "dog"))
        assert found.accuracy == named.accuracy and found.agreement == named.agreement
    with pytest.raises(FileError, match=r"has the label \(column judge\) 'hare'; allowed are"):
        judged(table(tmp_path / "c.csv", columns(judge=["hare"] * N)), classes=("cat", "dog"))


def test_prevalence_and_error_rates(tmp_path: Path) -> None:
    found = judged(table(tmp_path / "a.csv", columns()), positive="dog")
    share = metrics.powered_mean(np.where(KNOWN, TRUTH == "dog", np.nan), (JUDGE == "dog").astype(float))
    assert found.label == "dog" and found.prevalence is not None
    assert (found.prevalence.lower, found.prevalence.upper) == pytest.approx((share.lower, share.upper))
    dog = next(one for one in found.classes if one.name == "dog")
    of = KNOWN & (TRUTH == "dog")
    assert dog.labels == of.sum() and dog.sensitivity == pytest.approx((JUDGE == "dog")[of].mean())
    assert dog.judge_labels == (KNOWN & (JUDGE == "dog")).sum()
    wrong = KNOWN & (TRUTH == "cat") & (JUDGE == "dog")
    assert wrong.any()
    assert [one.answers for one in found.confusions if one.judge == "dog"] == [wrong.sum()]


def test_judges_labels_never_count_as_human_ones(tmp_path: Path) -> None:
    """Every other number of the report is the same as without the judge."""
    path = table(tmp_path / "a.csv", columns())
    plain = report_of_answers(read(path))
    with_judge = report_of_answers(read(path, Form(judge="judge")), judge="judge")
    assert plain.judge is None
    assert with_judge.model_copy(update={"judge": None}) == plain
    assert with_judge.labelled == KNOWN.sum()


def test_propensities_weight_the_human_labels(tmp_path: Path) -> None:
    propensity = np.where(C < 0.9, 0.3, 0.06)
    known = np.random.default_rng(1).random(N) < propensity
    human = [label if k else None for label, k in zip(TRUTH, known, strict=True)]
    given = [p if k else None for p, k in zip(propensity, known, strict=True)]
    found = judged(table(tmp_path / "a.csv", columns(label=human, propensity=given)))
    mean = metrics.powered_mean(
        np.where(known, RIGHT, np.nan), JUDGE_RIGHT.astype(float), propensity_N=np.where(known, propensity, np.nan)
    )
    assert found.accuracy is not None and found.accuracy.value == pytest.approx(mean.value)
    assert found.accuracy.lower < RIGHT.mean() < found.accuracy.upper
    assert found.effective_n is not None and found.effective_n < found.labels and not found.warning


def test_propensities_of_arrays_count_without_a_judge(tmp_path: Path) -> None:
    propensity = np.where(C < 0.9, 0.3, 0.06)
    human_N = np.where(np.random.default_rng(1).random(N) < propensity, RIGHT, np.nan)
    arrays = {"confidence": C, "correct": human_N, "judge": JUDGE_RIGHT, "propensity": propensity}
    path = npz(tmp_path / "a.npz", **arrays)
    plain = report_of_answers(read(path))
    assert plain.labelling.weighted[-1].how == "propensity"
    with_judge = report_of_answers(read(path, Form(judge="judge")), judge="judge")
    assert with_judge.model_copy(update={"judge": None}) == plain
    with pytest.raises(FileError, match=r"b.npz: propensity has 9 rows for 3,000 answers"):
        read(npz(tmp_path / "b.npz", **{**arrays, "propensity": propensity[:9]}))


def test_human_labels_without_a_propensity_are_counted(tmp_path: Path) -> None:
    without = [LABELS / N if known and i % 2 else None for i, known in enumerate(KNOWN)]
    found = judged(table(tmp_path / "a.csv", columns(propensity=without)))
    left_out = KNOWN.sum() - found.labels
    assert left_out > 100 and f"{left_out} human labels have no propensity" in found.reading
    none = judged(table(tmp_path / "b.csv", columns(propensity=[None] * N)))
    assert none.labels == 0 and f"{KNOWN.sum()} human labels have no propensity" in none.reading
    assert "no propensity" not in judged(table(tmp_path / "c.csv", columns())).reading


def test_command_page_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page, tree = table(tmp_path / "a.csv", columns()), tmp_path / "a.html", tmp_path / "a.json"
    words = ["report", str(path), "--judge", "judge", "--positive", "dog", "--html", str(page), "--json", str(tree)]
    assert cli.main("trueodds", cli.COMMANDS, words) == 0
    said = capsys.readouterr().out
    found = JudgeFigures.model_validate(json.loads(tree.read_text(encoding="utf-8"))["judge"])
    assert found.reading in said and "Error rates of the judge" in said
    assert found.accuracy is not None and f"worth {found.accuracy.saving:.2f} times as many human labels" in said
    assert "share of dog" in said
    html = page.read_text(encoding="utf-8")
    assert 'id="judge"' in html and 'id="judge-errors-table"' in html and "Share of dog" in html
    assert "Confused classes" in said and 'id="judge-confusions-table"' in html
    for one in found.confusions:
        assert re.search(rf"{one.human} +{one.judge} +{one.answers}\n", said)
        assert f"{one.human}</th><td>{one.judge}</td><td>{one.answers}</td>" in html
    assert 'id="judge"' not in render(report_of_answers(read(path)))


def test_few_human_labels_show_error_rates_only(tmp_path: Path) -> None:
    human = [label if i < 29 else None for i, label in enumerate(TRUTH)]
    report = report_of_answers(
        read(table(tmp_path / "a.csv", columns(label=human)), Form(judge="judge")), judge="judge"
    )
    found = report.judge
    assert found is not None and found.accuracy is None and found.bins == [] and found.classes
    assert found.reading.startswith("Estimates need 30 human labels; there are 29. The judge agrees with")
    assert found.reading in text_of(report) and found.reading in render(report)


def test_a_judge_without_human_labels(tmp_path: Path) -> None:
    found = judged(table(tmp_path / "a.csv", columns(label=[None] * N)))
    assert found.agreement is None and found.classes == [] and found.labels == 0
    assert found.reading == "Estimates need 30 human labels; there are 0."


def test_chosen_labels_give_a_warning(tmp_path: Path) -> None:
    """People labelled what the judge calls wrong: they say nothing of it, and the report notices."""
    known = np.random.default_rng(2).random(N) < np.where(JUDGE_RIGHT, 0.05, 0.4)
    human = [label if k else None for label, k in zip(TRUTH, known, strict=True)]
    found = judged(table(tmp_path / "a.csv", columns(label=human)))
    assert found.warning and "no random sample" in found.reading


def test_answers_without_a_judges_label_are_counted(tmp_path: Path) -> None:
    judge = [None if i % 10 == 0 else label for i, label in enumerate(JUDGE)]
    found = judged(table(tmp_path / "a.csv", columns(judge=judge)))
    assert found.judge_labels == 2_700 and "300 answers have no label of the judge." in found.reading


def test_a_class_that_only_the_judge_names(tmp_path: Path) -> None:
    judge = ["hare" if i % 50 == 0 else label for i, label in enumerate(JUDGE)]
    found = judged(table(tmp_path / "a.csv", columns(judge=judge)))
    hare = next(one for one in found.classes if one.name == "hare")
    assert hare.labels == 0 and hare.sensitivity is None and hare.judge_labels > 0


def test_the_column_may_be_spelled_a_little_differently(tmp_path: Path) -> None:
    data = columns()
    data["LLM judge"] = data.pop("judge")
    assert judged(table(tmp_path / "a.csv", data), judge="llm_judge").judge_labels == N


def sampled(tmp_path: Path, **changed: Any) -> tuple[Path, Path]:
    """All answers, and the drawn ones with labels, in another order."""
    data = {name: column for name, column in columns().items() if name != "label"}
    propensity = np.full(N, LABELS / N)
    human = {"id": np.arange(N), "label": TRUTH, "propensity": propensity, **changed}
    order = np.random.default_rng(3).permutation(np.flatnonzero(KNOWN))
    return (
        table(tmp_path / "all.csv", data),
        table(tmp_path / "drawn.csv", {name: np.asarray(column)[order] for name, column in human.items()}),
    )


def test_human_labels_are_joined_by_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers, drawn = sampled(tmp_path)
    propensity = [LABELS / N if known else None for known in KNOWN]
    whole = judged(table(tmp_path / "whole.csv", columns(propensity=propensity)))
    assert judged(answers, human=drawn) == whole and whole.labels == KNOWN.sum()
    without_judge = report_of_answers(read(answers, Form(human=drawn)))
    assert (without_judge.answers, without_judge.labelled) == (N, KNOWN.sum()) and without_judge.judge is None
    assert without_judge.labelling.weighted[-1].how == "propensity"
    words = ["report", str(answers), "--human-labels", str(drawn), "--judge", "judge"]
    assert cli.main("trueodds", cli.COMMANDS, words) == 0 and whole.reading in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"id": np.arange(N) + 10**6}, r"drawn.csv has the id '1\d{6}', which .*all.csv does not have"),
        ({"id": np.zeros(N, int)}, "drawn.csv has the id '0' twice"),
    ],
)
def test_refused_ids_of_human_labels(changed: dict[str, Any], words: str, tmp_path: Path) -> None:
    answers, drawn = sampled(tmp_path, **changed)
    with pytest.raises(FileError, match=words):
        judged(answers, human=drawn)


@pytest.mark.parametrize(
    ("answers", "drawn", "words"),
    [
        ("id,confidence,predicted,label\n1,.5,a,a", "id,label\n1,a", "has the column 'label' itself"),
        ("confidence,predicted\n.5,a", "id,label\n1,a", "answers.csv has no column id"),
        (
            "id,confidence\n1,.5",
            "id,label\n1,a",
            "answers.csv has no column 'predicted', with which the labels of .*drawn",
        ),
        ("id,a,b\n1,.5,.5", "id,label,correct\n1,,1", "drawn.csv says by its column correct .*fill in the true class"),
        ("id,confidence,predicted\n1,.5,a", "label\na", "drawn.csv has no column id"),
        ("id,confidence,predicted\n1,.5,a", "id,lable\n1,a", "drawn.csv has no column 'label'"),
    ],
)
def test_refused_human_labels(answers: str, drawn: str, words: str, tmp_path: Path) -> None:
    paths = tmp_path / "answers.csv", tmp_path / "drawn.csv"
    for path, text in zip(paths, (answers, drawn), strict=True):
        path.write_text(text + "\n", encoding="utf-8")
    with pytest.raises(FileError, match=words):
        read(paths[0], Form(human=paths[1]))
    with pytest.raises(FileNotFoundError, match=r"--human-labels .*none.csv does not exist; give the table"):
        read(paths[0], Form(human=tmp_path / "none.csv"))
    with pytest.raises(FileError, match="has no ids"):
        read(npz(tmp_path / "a.npz", confidence=C, correct=RIGHT), Form(human=paths[1]))


@pytest.mark.parametrize(
    ("changed", "form", "words"),
    [
        ({}, {"judge": "jugde"}, "no column 'jugde'.*name it with --judge.*judge"),
        ({}, {"judge": "label"}, "--judge names the column 'label', which has another meaning"),
        ({}, {"judge": "predicted"}, "--judge names the column 'predicted'"),
        ({"judge": [None] * N}, {}, "the column judge holds no label of a judge"),
        ({"judge": ["Cat"] * N}, {}, "'Cat'"),
        (
            {"judge": [None if known else label for known, label in zip(KNOWN, JUDGE, strict=True)]},
            {},
            "the judge labelled only answers without a human label",
        ),
        (
            {"judge": [label if known else None for known, label in zip(KNOWN, JUDGE, strict=True)]},
            {},
            "the judge labelled only answers with a human label",
        ),
    ],
)
def test_refusals(changed: dict[str, Any], form: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=words):
        judged(table(tmp_path / "a.csv", columns(**changed)), **form)


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        (
            "predicted",
            "--judge names the array 'predicted', which has another meaning; give the judge's labels an array",
        ),
        ("labels", "--judge names the array 'labels'"),
        ("jugde", "has no array 'jugde'; it has 'confidence', 'predicted', 'labels', 'judge'; name it with --judge"),
    ],
)
def test_refused_arrays_of_a_judge(judge: str, words: str, tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", confidence=C, predicted=PREDICTED, labels=TRUTH, judge=JUDGE)
    with pytest.raises(FileError, match=words):
        judged(path, judge=judge)
    for name, array in (("p.npy", np.stack([C, 1 - C], 1)), ("labels.npy", (JUDGE == "dog").astype(int))):
        np.save(tmp_path / name, array)
    with pytest.raises(FileError, match=r"give an \.npz that also has the judge's labels"):
        judged(tmp_path / "p.npy", judge=judge, labels=tmp_path / "labels.npy")


def test_refused_labels_of_a_judge_of_right_answers(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", {"confidence": C, "correct": [1, 0] * (N // 2), "judge": ["cat"] * N})
    with pytest.raises(FileError, match="judge holds 'cat'; allowed are 0, 1, true, false"):
        judged(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--judge", "judge", "--engine", "duckdb"], "--judge needs the rows"),
        (["--human-labels", "drawn.csv", "--engine", "duckdb"], "--human-labels needs the rows"),
        (["--alert-threshold", "0.3"], "--alert-threshold 0.3 without --positive"),
        (["--alert-threshold", "1.5", "--positive", "dog"], "--alert-threshold is 1.5; allowed is [0, 1]"),
    ],
)
def test_refused_options(options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "a.csv", columns())
    assert cli.main("trueodds", cli.COMMANDS, ["report", str(path), *options]) != 0
    assert words in capsys.readouterr().err
