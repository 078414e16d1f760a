"""Tables with a rare positive class: the verdict is of p(positive), by expected / observed as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trueodds
from tests.service.page_sentences import Sentences
from trueodds import cli
from trueodds.reports.page import render
from trueodds.reports.table.reading import Form, read
from trueodds.reports.table.table_report import report_of_answers
from trueodds.reports.verdict.positive_ratio import figure, round_up
from trueodds.reports.verdict.rules import beside
from trueodds.reports.words import digits_of_rare, shares

GREEN = "within_tolerance"


def run(words: list[str]) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["report", *words])


def rows(count: int, factor: float, seed: int = 0, mean: float = 0.0056) -> tuple[Any, Any]:
    """p(fraud) and whether each is fraud: of so many a share of `mean`, of which p says `factor` times as many."""
    rng = np.random.default_rng(seed)
    p_N = np.minimum(rng.gamma(0.5, 2 * mean * factor, count), 0.99)
    return p_N, (rng.random(count) < p_N / factor).astype(int)


def table(path: Path, p_N: Any, positive_N: Any) -> Path:
    lines = [f"{p:.6f},{1 - p:.6f},{'fraud' if y else 'ok'}" for p, y in zip(p_N, positive_N, strict=True)]
    path.write_text("\n".join(["fraud,ok,label", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("binning", [None, "width"])
def test_a_p_that_is_three_times_too_high_is_not_within(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], binning: str | None
) -> None:
    """p(fraud) 2% on average, truth .56%: an ECE of .014 is within .02, and was green."""
    path, page = table(tmp_path / "fraud.csv", *rows(20_000, 3.6)), tmp_path / "page.html"
    given = ["--binning", binning] if binning else []
    assert run([str(path), "--positive", "fraud", "--html", str(page), *given]) == 0
    text = capsys.readouterr().out
    first = text.splitlines()[0]
    assert "On them p(fraud) is 2.0% on average, and 0.5" in first and "expected / observed is " in first
    assert "p(fraud) is too high: fewer answers are fraud than it says." in first and "Where p(fraud) is " in first
    assert ("15 bins of equal count" in text) == (binning is None)
    blocks = Sentences(page.read_text(encoding="utf-8"), "now").blocks
    assert blocks[0] == "p(fraud) is too high" and "Nothing has to be done" not in " ".join(blocks)


def test_few_positives_are_not_yet_known_and_many_are_green(tmp_path: Path) -> None:
    """How many more: a calibrated p(fraud), few labels and many; and a ratio that is put up with or not."""
    few = trueodds.report(*rows(20_000, 1.0), classes=None)
    assert few.verdict == "cannot_tell" and few.positive is not None and few.positive.ratio is not None
    assert few.positive.observed is not None and few.positive.positives_to_come == 324 - few.positive.observed
    assert "it is not known yet whether" in few.reading and "more positive, about" in few.reading
    many = trueodds.report(*rows(200_000, 1.0))
    assert many.verdict == GREEN and "and expected / observed between 0.83 and 1.2." in many.reading
    path = table(tmp_path / "fraud.csv", *rows(60_000, 1.15, seed=1, mean=0.02))
    answers = read(path, Form(positive="fraud"))
    for most, verdict in ((1.2, False), (1.5, True)):
        report = report_of_answers(answers, positive="fraud", ratio_tolerance=most)
        assert (report.verdict == GREEN) == verdict and report.ratio_tolerance == most
        assert (f"and a factor of {most:g}" in render(report)) == verdict


def test_without_any_positive(tmp_path: Path) -> None:
    p_N = np.full(300, 0.01)
    report = report_of_answers(read(table(tmp_path / "a.csv", p_N, p_N > 1), Form(positive="fraud")), positive="fraud")
    assert report.verdict == "cannot_tell" and report.positive is not None and report.positive.ratio is None
    assert "none is fraud where 3.0 were expected (expected / observed is 0.82 or more)" in report.headline
    assert "this needs about 330 more fraud, about 33,000 labels" in report.headline
    assert "Infinity" not in report.model_dump_json() and "∞" in str(trueodds.report(p_N, (p_N > 1).astype(int)))


@pytest.mark.full
def test_one_look_is_one_test() -> None:
    """Of calibrated tables at most 1 in 20 is told that p(positive), or the more probable class, is off."""
    rng, off, alone = np.random.default_rng(0), 0, 0
    for seed in range(150):
        p_N = rng.uniform(0, 1, 200) if seed % 2 else np.minimum(rng.gamma(0.5, 0.1, 400), 1)
        report = trueodds.report(p_N, (rng.random(len(p_N)) < p_N).astype(int))
        off += not {report.verdict, report.top_label_verdict} <= {GREEN, "cannot_tell"}
        assert report.positive is not None and report.top_label_verdict is not None
        assert beside(report.positive, report.top_label_verdict) == report.top_label_verdict
        both = min(report.calibration_p_value, report.positive.calibration_p_value or 1.0)
        alone += both < 0.05
    assert off <= 13, "5% of 150 are 7.5; more than 13 have a chance of 2%"
    assert alone > off, "two tests at 5% reject more often"


def test_a_ratio_tolerance_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(table(tmp_path / "fraud.csv", *rows(50, 1.0)))
    for given, words in (
        (["--positive", "fraud", "--ratio-tolerance", "0.9"], "--ratio-tolerance is 0.9; allowed is more than 1"),
        (["--ratio-tolerance", "1.5"], "--ratio-tolerance 1.5 without --positive: name the positive class"),
    ):
        assert run([path, *given]) != 0
        assert words in capsys.readouterr().err


def test_words() -> None:
    assert shares(0.02, 0.0056) == ["2.0%", "0.56%"] and shares(0.2, 0.1) == ["20%", "10%"]
    assert shares(0.201, 0.204) == ["20.1%", "20.4%"] and shares(0.9999, 1.0) == ["99.99%", "100.00%"]
    assert [round_up(n) for n in (7, 21, 323, 47_123)] == [7, 21, 330, 48_000]
    assert [figure(x) for x in (0.8333, 2.0, 12.3, 1234.5)] == ["0.83", "2.0", "12", "1,234"]
    assert [figure(x) for x in (1.23, 0.998, 1.005)] == ["1.23", "1.00", "1.00"], "1.2 would be within 1.2"
    assert [digits_of_rare(*x) for x in ((0.2, 0.1), (0.0056, 0.02), (0.0, 5e-4), (1e-9,), (None,))] == [1, 2, 3, 4, 1]


def test_a_share_of_one_in_a_thousand_shows_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0.1% beside 0.1%, with a gap of 0.0, said nothing of a p(fraud) that is twice too high."""
    path, page = table(tmp_path / "fraud.csv", *rows(60_000, 2.0, mean=0.001)), tmp_path / "page.html"
    assert run([str(path), "--positive", "fraud", "--html", str(page)]) == 0
    text, html = capsys.readouterr().out, page.read_text(encoding="utf-8")
    report = report_of_answers(read(path, Form(positive="fraud")), positive="fraud")
    p = report.positive
    assert p is not None and p.prevalence and p.mean_probability and p.signed_gap
    digits = digits_of_rare(p.prevalence, p.mean_probability)
    share, mean = (f"{100 * one:.{digits}f}%" for one in (p.prevalence, p.mean_probability))
    gap, gap_of_last = (f"−{-100 * one:.{n}f}" for one, n in ((p.signed_gap, digits), (p.bins[-1].gap or 0.0, 3)))
    assert share != mean and digits > 1
    for shown in (share, mean, gap):
        assert shown in text and shown in html
    (last,) = (line for line in text.splitlines() if line.strip().endswith(gap_of_last))
    assert "100.000%" in last
    example = report.headline.split("Where p(fraud) is ")[1]
    said, came = (x.split("%")[0] for x in (example.split("100.0%, ")[1], example.split("on average, ")[1]))
    assert 1.5 < float(said) / float(came) < 2.5


def test_tables_by_class_are_of_the_more_probable_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "fraud.csv", *rows(2_000, 1.0, mean=0.1))
    assert run([str(path), "--positive", "fraud", "--by", "class"]) == 0
    assert "\n\nFor the more probable class\npredicted class  answers" in capsys.readouterr().out


def test_nothing_expected_and_nothing_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "none.csv", np.zeros(500), np.zeros(500, int))
    assert run([str(path), "--positive", "fraud"]) == 0
    text = capsys.readouterr().out
    assert "0% are fraud: no fraud was expected, and none was observed." in text and "∞, " not in text
    assert "over observed        –" in text and "1 bin of equal count" in text
    assert "500 rows, 93% to 100%" in text, "the worst range holds answers"
