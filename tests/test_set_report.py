"""`trueodds report --set-level`: coverage of a table's conformal sets, as counted by hand, and what is refused."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import scipy
from pyarrow import parquet

from tests.test_table_report import npz
from trueodds import cli
from trueodds.calibrators.conformal import SetRule, coverage_floor, rank_of
from trueodds.files import FileError
from trueodds.metrics import binomial_interval
from trueodds.reports.page.rendering import render
from trueodds.reports.schemas.sets import LevelCoverage, SetGroup
from trueodds.reports.table.reading import Form, read
from trueodds.reports.table.table_report import report_of_answers
from trueodds.reports.table.text import text_of

RNG = np.random.default_rng(46)
N, NAMES = 400, ("cat", "dog", "hare")
P = RNG.dirichlet([0.5, 0.5, 0.5], N)
Y = (P.cumsum(axis=1) < RNG.random((N, 1))).sum(axis=1)
KNOWN = RNG.random(N) < 0.7
INSIDE = P > 0.3
SETS = [[name for name, inside in zip(NAMES, row, strict=True) if inside] for row in INSIDE]
TAGS = RNG.choice(["day", "night"], N).tolist()
LABELS = [NAMES[y] if known else None for y, known in zip(Y, KNOWN, strict=True)]
RULE = SetRule.of_level(0.9, 200)


def columns(**more: Any) -> dict[str, Any]:
    by_class = {name: P[:, k].tolist() for k, name in enumerate(NAMES)}
    return {**by_class, "label": LABELS, "tag": TAGS, "set": SETS, **more}


def confident(**more: Any) -> dict[str, Any]:
    predicted = [NAMES[k] for k in P.argmax(axis=1)]
    rest = {name: column for name, column in columns().items() if name not in NAMES}
    return {"confidence": P.max(axis=1).tolist(), "predicted": predicted, **rest, **more}


def table(path: Path, data: dict[str, Any]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table(data), path)
        return path
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(data)
        for row in zip(*data.values(), strict=True):
            rows.writerow([json.dumps(cell) if isinstance(cell, list) else cell for cell in row])
    return path


def covered(path: Path, rule: SetRule | None = RULE, **form: Any) -> LevelCoverage:
    report = report_of_answers(read(path, Form(sets=rule, **form)))
    assert report.sets is not None
    (found,) = report.sets.levels
    return found


def counted(keys: list[str]) -> dict[str, tuple[int, int]]:
    """Labels and hits by key, one answer after the other."""
    counts: dict[str, tuple[int, int]] = {}
    for key, label, members in zip(keys, LABELS, SETS, strict=True):
        if label is not None:
            labels, hits = counts.get(key, (0, 0))
            counts[key] = labels + 1, hits + (label in members)
    return counts


def counts_of(groups: list[SetGroup]) -> dict[str, tuple[int, int]]:
    return {one.name: (one.labels, one.hits) for one in groups}


@pytest.mark.parametrize("form", ["csv", "parquet", "confidence", "npz", "numbers"])
def test_every_form_of_a_table(form: str, tmp_path: Path) -> None:
    match form:
        case "npz":
            labels = np.where(KNOWN, Y, np.nan)
            path = npz(tmp_path / "a.npz", probabilities=P, labels=labels, class_names=NAMES, sets=INSIDE, tags=TAGS)
        case "confidence":
            path = table(tmp_path / "a.csv", confident())
        case "numbers":  # of labels and in sets
            sets = [np.flatnonzero(row).tolist() for row in INSIDE]
            numbers = [int(y) if known else None for y, known in zip(Y, KNOWN, strict=True)]
            path = table(tmp_path / "a.csv", columns(label=numbers, set=sets))
        case _:
            path = table(tmp_path / f"a.{form}", columns())
    found = covered(path)
    hits = sum(label in members for label, members in zip(LABELS, SETS, strict=True) if label is not None)
    assert (found.labels, found.hits, found.coverage) == (KNOWN.sum(), hits, hits / KNOWN.sum())
    assert counts_of(found.tags) == counted(TAGS)
    assert counts_of(found.sizes) == counted([str(len(members)) for members in SETS])
    assert counts_of(found.classes) == counted([label or "" for label in LABELS])
    assert found.mean_size == pytest.approx(INSIDE[KNOWN].sum(axis=1).mean())
    limits = [float(end) for end in binomial_interval(hits, KNOWN.sum(), level=0.95)]
    assert [found.lower, found.upper] == pytest.approx(limits)
    assert found.floor == pytest.approx(coverage_floor(rank_of(200, 0.9), 200, 0.9)) and found.alarm is None
    assert found.p_value == pytest.approx(scipy.stats.binom.cdf(hits, KNOWN.sum(), found.floor))


def test_what_the_report_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The text, the page and the JSON file; the test is of the floor, and with unknown rows of the level."""
    path = table(tmp_path / "a.parquet", columns())
    files = [f"--{kind}={tmp_path / kind}" for kind in ("json", "html")]
    words = ["report", str(path), "--set-level", "0.9", "--set-rows", "200", "--level", "0.9", *files]
    assert cli.main("trueodds", cli.COMMANDS, words) == 0
    told = capsys.readouterr().out
    stored = json.loads((tmp_path / "json").read_text())["sets"]["levels"][0]
    found = covered(path)
    assert stored["p_value"] == found.p_value and found.p_value is not None and found.p_value < 0.05
    page = (tmp_path / "html").read_text()
    for part in ("with 90% confidence between", "for one look.", "at one look). Do not rely on the sets."):
        assert part in told and part in stored["reading"] and part in page
    assert re.search(r"^dog +\d+ +[\d.]+%  +[\d.]+% . [\d.]+%$", told, re.M) and "90% interval" in page
    unknown = covered(path, SetRule.of_level(0.9))
    assert unknown.floor == 0.9 and "so the test is of the level itself" in unknown.reading
    sound = covered(table(tmp_path / "b.parquet", columns(set=[list(NAMES)] * N)))
    assert (sound.coverage, sound.upper, sound.p_value) == (1, 1, 1) and "Do not rely" not in sound.reading
    nothing = report_of_answers(read(table(tmp_path / "c.csv", columns(label=[None] * N)), Form(sets=RULE)))
    assert nothing.sets is not None and "No labels yet" in text_of(nothing)
    assert "No labels yet" in render(nothing)


def test_labels_with_propensities(tmp_path: Path) -> None:
    """All weighted, or no figure of all answers at all."""
    chance = np.where(np.array(TAGS) == "day", 0.9, 0.3)
    found = covered(table(tmp_path / "a.csv", columns(propensity=chance.tolist())))
    weight = dict(zip(range(N), 1 / chance, strict=True))
    labelled = [n for n in range(N) if LABELS[n] is not None]
    hit = sum(weight[n] for n in labelled if LABELS[n] in SETS[n])
    assert (found.how, found.p_value) == ("propensity", None)
    assert found.coverage == pytest.approx(hit / sum(weight[n] for n in labelled))
    some = [None if n % 2 else 0.5 for n in range(N)]
    mixed = covered(table(tmp_path / "b.csv", columns(propensity=some)))
    assert (mixed.how, mixed.coverage, mixed.p_value) == ("refused", None, None)
    assert "different, unknown chances" in mixed.reading


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"set": [["cat"], ["dgo"], *SETS[2:]]},
            "row 3: set holds 'dgo'; the classes are 'cat', 'dog', 'hare'. Did you",
        ),
        (
            {"set": ["cat", *map(json.dumps, SETS[1:])]},
            "row 2: set is 'cat'; expected a JSON list of different classes",
        ),
        ({"set": [["cat", "cat"], *SETS[1:]]}, "row 2: set is"),
        ({"set": ["[true]", *map(json.dumps, SETS[1:])]}, "row 2: set is '[true]'"),
        ({"set": [None] * N}, "has no set, as 280 labelled answers of 280; every labelled answer needs one"),
    ],
)
def test_a_cell_that_is_no_set(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    words = words.replace("280", str(KNOWN.sum()))
    for suffix in ("csv", "parquet"):
        with pytest.raises(FileError, match=re.escape(words)):
            covered(table(tmp_path / f"a.{suffix}", columns(**change)))


def test_classes_spelt_alike_are_refused(tmp_path: Path) -> None:
    """A table of confidences has no list of its classes; sets may name classes that nothing else names."""
    sets: list[list[str]] = [["Cat"], *SETS[1:]]
    with pytest.raises(FileError, match="are they one class"):
        covered(table(tmp_path / "a.csv", confident(set=sets)))
    rare = covered(table(tmp_path / "b.csv", confident(set=[[*members, "newt"] for members in SETS])))
    assert rare.hits == sum(label in members for label, members in zip(LABELS, SETS, strict=True))


def test_what_lacks_for_coverage(tmp_path: Path) -> None:
    right = [1 if n % 3 else 0 for n in range(N)]
    only = {name: column for name, column in confident(correct=right).items() if name not in ("label", "predicted")}
    with pytest.raises(FileError, match="coverage needs the true class"):
        covered(table(tmp_path / "a.csv", only))
    plain = table(tmp_path / "b.csv", {name: column for name, column in columns().items() if name != "set"})
    with pytest.raises(FileError, match="has no column 'set', which --set-level needs"):
        covered(plain)
    with pytest.raises(FileError, match=r"sets has shape \(400, 2\) and type bool; expected bool of shape \(400, 3\)"):
        covered(npz(tmp_path / "c.npz", probabilities=P, labels=Y, sets=INSIDE[:, :2]))
    assert covered(npz(tmp_path / "d.npz", probabilities=P, labels=Y, sets=INSIDE)).labels == N
    unread = read(table(tmp_path / "e.csv", columns()))
    assert unread.sets is None and "The column set is not read" in unread.notes[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set-level", "90"], "--set-level is 90.0; allowed is (0, 1)"),
        (["--set-rows", "50"], "--set-rows 50 without --set-level"),
        (["--set-level", "0.9", "--set-rows", "0"], "--set-rows is 0; allowed are whole numbers from 1"),
        (["--set-level", "0.9", "--set-rows", "9" * 400], "allowed are whole numbers from 1 to 2^53 - 1"),
        (["--set-level", "0.9", "--engine", "duckdb"], "--set-level needs the rows"),
        (["--set-level", "0.9", "--multi-label"], "leave out --multi-label"),
    ],
)
def test_options_that_cannot_be_used(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "a.parquet", columns())
    assert cli.main("trueodds", cli.COMMANDS, ["report", str(path), *options]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("labels", "floor"), [(20, 0.5), (200, 0.847), (3000, 0.99), (7, 0.9)])
def test_sound_sets_seldom_fail_the_test(labels: int, floor: float) -> None:
    """Exactly: the probability of p < .05 over all counts of hits, at the least coverage of the null hypothesis."""
    hits = np.arange(labels + 1)
    p = scipy.special.bdtr(hits, labels, floor)
    assert scipy.stats.binom.pmf(hits, labels, floor)[p < 0.05].sum() <= 0.05
