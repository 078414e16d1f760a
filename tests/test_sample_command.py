"""`trueodds sample`: a file with propensities, and the report that weights by them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.test_table_report import table
from trueodds import cli
from trueodds.reports.table.label_sample import sample_of
from trueodds.reports.table.reading import Form, read
from trueodds.reports.table.table_report import report_of_answers

RNG = np.random.default_rng(11)
N = 4_000
C = (1 - 0.5 * RNG.random(N) ** 3).round(5)
RIGHT = RNG.random(N) < C - 0.1 * (C < 0.9)
TAGS = RNG.choice(["day", "night"], N, p=[0.95, 0.05])


def run(*words: object) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["sample", *map(str, words)])


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def columns(**more: Any) -> dict[str, Any]:
    return {"id": [f"a{i}" for i in range(N)], "confidence": C, "predicted": ["cat"] * N, "tag": TAGS, **more}


def test_neither_the_answers_nor_labels_that_people_filled_in_are_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = table(tmp_path / "answers.csv", columns()), tmp_path / "to_label.csv"
    monkeypatch.chdir(tmp_path)
    before = path.read_bytes()
    (link := tmp_path / "link.csv").symlink_to(path)
    for name in (path, link):
        assert run("answers.csv", "--budget", 9, "--out", name) == 1 and path.read_bytes() == before
        assert "is a file that this command reads; give another name" in capsys.readouterr().err
    assert run(path, "--budget", 9, "--out", out) == run(path, "--budget", 8, "--out", out) == 0
    table(out, {name: [row[name] or "cat" for row in rows_of(out)] for name in rows_of(out)[0]})
    before = out.read_bytes()
    assert run(path, "--budget", 9, "--out", out) == 1 and out.read_bytes() == before
    assert "to_label.csv exists, and 8 rows of it have a label; give --out another name" in capsys.readouterr().err
    words = [
        "label",
        "export",
        "--url",
        "http://127.0.0.1:9",
        "--who",
        "ann",
        "--out",
        str(out),
    ]  # before it takes any answers
    assert cli.main("trueodds", cli.COMMANDS, words) == 1 and "have a label" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_whole_way(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = table(tmp_path / f"answers.{form}", columns()), tmp_path / "to_label.csv"
    assert run(path, "--budget", 600, "--out", out, "--seed", 4) == 0
    said = capsys.readouterr().out
    assert "600 of 4,000 answers without a label, drawn for the goal ece with propensities from 0." in said
    rows = rows_of(out)
    assert list(rows[0]) == ["id", "confidence", "predicted", "tag", "label", "propensity"] and len(rows) == 600
    place = {f"a{i}": i for i in range(N)}
    for row in rows:
        i = place[row["id"]]
        assert float(row["confidence"]) == C[i] and row["tag"] == TAGS[i] and row["label"] == ""
        row["label"] = "cat" if RIGHT[i] else "dog"
    sample = sample_of(read(path, Form(needs_labels=False)), 600, seed=4)
    assert [place[row["id"]] for row in rows] == sample.row_I.tolist()
    assert [float(row["propensity"]) for row in rows] == sample.propensity_I.tolist()
    table(out, {name: [row[name] for row in rows] for name in rows[0]})
    report = report_of_answers(read(out))
    weighted = report.labelling.weighted[-1]
    assert weighted.how == "propensity" and abs(weighted.accuracy - RIGHT.mean()) < 0.04
    assert report.accuracy is not None and report.accuracy < weighted.accuracy - 0.02  # doubtful answers came first
    assert "drawn with different propensities" in report.labelling.uneven
    assert report.labelling.uneven in report.cautions
    assert f"{weighted.accuracy:.1%} of them are right" in report.labelling.uneven


def test_few_labels_are_not_weighted_and_the_report_says_so(tmp_path: Path) -> None:
    path = table(tmp_path / "few.csv", {"confidence": C[:60], "correct": RIGHT[:60], "propensity": [0.1, 0.2] * 30})
    report = report_of_answers(read(path))
    assert report.labelling.weighted == []
    assert "Weighted figures need 100 labels with a propensity; there are 60." in report.cautions[-1]


def test_equal_propensities_need_no_caution(tmp_path: Path) -> None:
    path = table(tmp_path / "even.csv", {"confidence": C, "correct": RIGHT, "propensity": [0.1] * N})
    report = report_of_answers(read(path))
    assert report.labelling.uneven == "" and report.labelling.weighted[-1].accuracy == pytest.approx(RIGHT.mean())


@pytest.mark.parametrize("form", ["npz", "npy", "classes"])
def test_other_forms(form: str, tmp_path: Path) -> None:
    p_NC = np.stack([C, 1 - C], axis=1)
    path = tmp_path / f"answers.{form}"
    if form == "npz":
        np.savez(path, probabilities=p_NC, class_names=["cat", "dog"])
    elif form == "npy":
        np.save(path, p_NC)
    else:
        path = table(tmp_path / "answers.csv", {"cat": C, "dog": (1 - C).round(5)})
    out = tmp_path / "to_label.csv"
    assert run(path, "--budget", 150, "--out", out) == 0
    rows = rows_of(out)
    if form == "classes":
        assert list(rows[0]) == ["cat", "dog", "label", "propensity"]
    else:
        assert list(rows[0]) == ["row", "confidence", "predicted", "label", "propensity"]
        assert all(float(row["confidence"]) == C[int(row["row"])] for row in rows)
    name = "0" if form == "npy" else "cat"
    for row in rows:
        row["label"] = name
    table(out, {name: [row[name] for row in rows] for name in rows[0]})
    report = report_of_answers(read(out))
    assert report.labelled == 150 and report.labelling.weighted[-1].accuracy == pytest.approx(1)


def test_answers_with_a_label_are_left_out(tmp_path: Path) -> None:
    known = ["true" if i % 2 else "" for i in range(N)]
    path, out = table(tmp_path / "half.csv", {"confidence": C, "correct": known}), tmp_path / "out.csv"
    assert run(path, "--budget", 100, "--out", out) == 0
    rows = rows_of(out)
    assert len(rows) == 100 and all(row["correct"] == "" for row in rows)


def test_goals(tmp_path: Path) -> None:
    path, out = table(tmp_path / "answers.csv", columns()), tmp_path / "out.csv"
    assert run(path, "--budget", 200, "--goal", "group", "--out", out) == 0
    rare = np.mean([row["tag"] == "night" for row in rows_of(out)])
    assert 0.2 < rare < 0.4  # half of the budget is the floor, the other half goes to both tags equally
    assert run(path, "--budget", 200, "--goal", "group", "--tag", "night", "--floor", 0.01, "--out", out) == 0
    assert np.mean([row["tag"] == "night" for row in rows_of(out)]) > 0.9
    assert run(path, "--budget", 200, "--goal", "threshold", "--threshold", 0.99, "--floor", 0.1, "--out", out) == 0
    assert np.mean([float(row["confidence"]) >= 0.9 for row in rows_of(out)]) > 0.8
    assert run(path, "--budget", 200, "--method", "poisson", "--seed", 1, "--out", out) == 0
    assert abs(len(rows_of(out)) - 200) < 60


def test_labels_so_far_steer_the_draw_to_the_worst_tag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a hundred labels, those of the rare tag are wrong."""
    cells, out = columns(), tmp_path / "out.csv"
    known = [("false" if tag == "night" else "true") if k % 20 == 0 else "" for k, tag in enumerate(cells["tag"])]
    path = table(tmp_path / "answers.csv", {**cells, "correct": known})
    assert run(path, "--budget", 200, "--goal", "group", "--out", out) == 0
    said = capsys.readouterr().out
    assert "By the labels so far, the worst tag is most likely night (" in said, said
    assert np.mean([row["tag"] == "night" for row in rows_of(out)]) > 0.4  # 0.3 without these labels


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--budget", 9_999), "budget is 9999; allowed is a whole number from 1 to the number of answers, 4,000"),
        (("--budget", 5, "--goal", "threshold"), "needs a threshold, such as 0.93"),
        (("--budget", 5, "--tag", "day"), "the goal 'ece' takes no group; leave 'day' out"),
        (("--budget", 5, "--goal", "group", "--tag", "dya"), "unknown group 'dya'; allowed: day, night. Did you mean"),
    ],
)
def test_refusals(words: tuple[Any, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = table(tmp_path / "answers.csv", columns()), tmp_path / "out.csv"
    assert run(path, *words, "--out", out) == 1
    assert said in capsys.readouterr().err and not out.exists()


def test_tables_that_cannot_be_drawn_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.csv"
    tables = {
        "has a column propensity, so its answers were drawn before": columns(propensity=[0.1] * N),
        "has a label for each of its 4,000 answers; none is left": columns(label=["cat"] * N),
        "has no column tag, which the goal 'group' needs": {"confidence": C},
    }
    for said, content in tables.items():
        path = table(tmp_path / "answers.csv", content)
        assert run(path, "--budget", 5, "--out", out, *(["--goal", "group"] if "tag" in said else [])) == 1
        assert said in capsys.readouterr().err
    path = table(tmp_path / "answers.csv", {"confidence": C, "correct": RIGHT, "propensity": ["often"] * N})
    with pytest.raises(ValueError, match="propensity holds 'often'; allowed is a probability"):
        report_of_answers(read(path))
