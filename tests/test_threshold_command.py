"""`trueodds threshold`: the library's threshold for a table in each form, its words, its file and its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trueodds
from tests.test_table_report import table
from trueodds import cli
from trueodds.reports.table.acting_threshold import at_least, sample_evenly
from trueodds.reports.table.reading import read
from trueodds.reports.table.table_report import report_of_answers

RNG = np.random.default_rng(4)
N = 1_500
C = (1 - 0.5 * RNG.random(N) ** 4).round(4)
RIGHT = RNG.random(N) < C
LABELLED = RNG.random(N) < 0.7
PREDICTED = RNG.choice(["ham", "spam"], N)
LABELS = np.where(RIGHT, PREDICTED, np.where(PREDICTED == "ham", "spam", "ham"))
TAGS = RNG.choice(["day", "night"], N)


def columns(**more: Any) -> dict[str, Any]:
    labels = [label if known else None for label, known in zip(LABELS.tolist(), LABELLED, strict=True)]
    return {"confidence": C, "predicted": PREDICTED, "label": labels, **more}


def run(*words: object) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["threshold", *map(str, words)])


def known(**options: Any) -> Any:
    return trueodds.threshold(C, np.where(LABELLED, RIGHT, np.nan), **options)


@pytest.mark.parametrize("form", ["csv", "parquet", "npz"])
def test_it_is_that_of_the_library_and_its_file_says_so(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"answers.{form}"
    if form == "npz":
        np.savez(path, confidence=C, correct=np.where(LABELLED, RIGHT, np.nan))
    else:
        table(path, columns())
    assert run(path, "--out", tmp_path / "act.json") == 0
    found, document = known(), json.loads((tmp_path / "act.json").read_text())
    said = capsys.readouterr().out
    assert said.startswith(f"May act alone from {at_least(found.threshold)} on: {found.share:.1%} (")
    assert f"{found.wrong:,} of {found.acted:,} such labels are wrong; with 95% confidence at most 5%" in said
    kept = ("threshold", "risk", "confidence", "labels", "acted", "wrong", "share", "share_lower", "share_upper")
    assert {name: document[name] for name in kept} == {name: getattr(found, name) for name in kept}
    assert document["made_from"] == path.name and document["made_at"].endswith("Z") and document["by"] is None


@pytest.mark.parametrize("by", ["tag", "question", "class"])
def test_each_group_gets_a_threshold(by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "answers.csv", columns() if by == "class" else columns(**{by: TAGS}))
    assert run(path, "--by", by, "--risk", 0.08, "--out", tmp_path / "act.json") == 0
    found = known(risk=0.08, groups_N=PREDICTED if by == "class" else TAGS)
    document = json.loads((tmp_path / "act.json").read_text())
    assert document["threshold"] is None and document["by"] == by
    rows = [(one.group, one.threshold) for one in found.groups]
    assert [(row["group"], row["threshold"]) for row in document["groups"]] == rows and rows[0][1] is not None
    said = capsys.readouterr().out
    assert f"By {by}, 2 groups at 97.5% each: all bounds hold with 95%." in said
    assert f"- {rows[0][0]}: may act alone from " in said and f"Together {found.share:.1%}" in said


def test_costs_bound_the_mean_cost_and_are_no_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "answers.csv", columns())
    costs = ("--positive", "spam", "--costs", "miss=10,alarm=1", "--risk", 0.4)
    assert run(path, *costs, "--out", tmp_path / "act.json") == 0
    found = known(risk=0.4, cost_N=np.where(PREDICTED == "spam", 1.0, 10.0))
    document = json.loads((tmp_path / "act.json").read_text())
    assert document["threshold"] == found.threshold and document["mean_cost"] == 0.4 and "risk" not in document
    assert "an answer that acts costs at most 0.4 on average" in capsys.readouterr().out


def test_without_a_threshold_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = {name: np.asarray(column, object)[:40] for name, column in columns().items()}
    path = table(tmp_path / "few.csv", few)
    assert run(path) == 0
    assert "Too few labels (" in capsys.readouterr().out
    assert run(path, "--out", tmp_path / "act.json") == 1
    assert "is not written: no threshold can be certified" in capsys.readouterr().err
    assert not (tmp_path / "act.json").exists()
    often = columns(label=np.where(RNG.random(N) < 0.6, LABELS, np.where(LABELS == "ham", "spam", "ham")))
    assert run(table(tmp_path / "often.csv", often)) == 0
    assert (
        "No threshold can be certified: even the 5% most confident answers are wrong too often"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--risk", "1.5"), "--risk is 1.5; allowed is (0, 1), such as 0.05"),
        (("--confidence", "2"), "--confidence is 2.0; allowed is (0, 1), such as 0.95"),
        (("--by", "tag"), "has no column tag, which --by tag needs"),
        (("--costs", "miss=10,alarm=1"), "without --positive"),
        (("--positive", "eggs", "--costs", "miss=10,alarm=1"), "eggs"),
    ],
)
def test_bad_options_are_named(
    words: tuple[str, ...], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "answers.csv", columns())
    assert run(path, *words) == 1
    assert problem in capsys.readouterr().err


def test_a_table_without_labels_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "answers.csv", columns(label=[None] * N))
    assert run(path) == 1
    assert "holds no labels" in capsys.readouterr().err


def test_the_report_of_a_table_says_it_too(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    from trueodds.reports.page import render

    path = table(tmp_path / "answers.csv", columns())
    report = report_of_answers(read(path))
    assert report.may_act is not None and report.may_act.threshold == known()
    assert report.may_act.reading in render(report)
    assert report_of_answers(read(table(tmp_path / "none.csv", columns(label=[None] * N)))).may_act is None


def test_a_threshold_is_written_rounded_up() -> None:
    assert [at_least(t) for t in (0.93120001, 0.9999912, 0.5, 1.0)] == ["0.9313", "0.9999912", "0.5000", "1.0000"]
    assert all(float(at_least(t)) >= t for t in RNG.random(200))


def test_labels_of_unlike_chances_become_one_random_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a service with an audit exports them: complaints, and all labels of escalated answers, would mislead."""
    rng = np.random.default_rng(4)
    count = 20_000
    confidence_N = rng.uniform(0.5, 1, count)
    right_N, acts_N = rng.random(count) < confidence_N, confidence_N >= 0.9
    propensity_N, drawn_N = np.where(acts_N, 0.25, 1.0), rng.random(count) < 0.25
    labelled_N = ~acts_N | drawn_N | ~right_N  # all wrong answers are complained about
    names = [str(value).lower() if acts else "" for acts, value in zip(acts_N, drawn_N, strict=True)]
    correct = [str(int(right)) if known else "" for right, known in zip(right_N, labelled_N, strict=True)]
    path = tmp_path / "exported.csv"
    table(path, {"confidence": confidence_N, "correct": correct, "propensity": propensity_N, "audit": names})
    sample, words = sample_evenly(read(path))
    np.testing.assert_array_equal(sample.labelled_N[acts_N], drawn_N[acts_N])  # a list's difference takes minutes
    assert abs(sample.labelled_N[~acts_N].mean() - 0.25) < 4 * (0.25 * 0.75 / (~acts_N).sum()) ** 0.5
    found = trueodds.threshold(confidence_N, np.where(sample.labelled_N, right_N, np.nan))
    assert run(path) == 0
    said = capsys.readouterr().out
    assert f"May act alone from {at_least(found.threshold or 0)} on" in said and words in said
    complaints = int((acts_N & ~drawn_N & ~right_N).sum())
    assert f"{complaints:,} labels are left out because the audit had not asked for them" in said
    assert "different chances of a label (column propensity: 0.25 to 1, or none)" in said
    may_act = report_of_answers(read(path)).may_act
    assert may_act is not None and words in may_act.reading


def test_like_chances_leave_the_labels_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(tmp_path / "even.csv", columns(propensity=[0.3] * N))
    answers = read(tmp_path / "even.csv")
    assert sample_evenly(answers) == (answers, "")
    table(tmp_path / "bad.csv", columns(propensity=["often"] * N))
    assert run(tmp_path / "bad.csv") == 1
    assert "propensity holds 'often'; allowed is a probability in (0, 1]" in capsys.readouterr().err
