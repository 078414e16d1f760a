"""Ordered classes in the reports of tables and arrays: their figures, their doors, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trueodds
from tests.metrics.test_ordered import rows
from trueodds import cli, metrics
from trueodds.errors import ConfigError
from trueodds.metrics import OrderedSums
from trueodds.reports import ReportOptions
from trueodds.reports.figures import positive_figures
from trueodds.reports.ordered_figures import NAMES, ordered_figures
from trueodds.reports.page import render
from trueodds.reports.table import reading
from trueodds.reports.table.reading import Form
from trueodds.reports.table.table_report import report_of_answers
from trueodds.sums.answers import AnswerSums
from trueodds.sums.ordered import LevelSums
from trueodds.sums.positive import PositiveClass, PositiveSums

STARS = ["1", "2", "3", "4", "5"]


def run(*words: object) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["report", *map(str, words)])


def saved(folder: Path, *, unlabelled: int = 0) -> tuple[Path, np.ndarray, np.ndarray]:
    """A table of stars as CSV, the first rows without a label."""
    p_NC, labels_N = rows(600, 5, temperature=2.0)
    lines = [",".join([*STARS, "label"])]
    for n, (p_C, label) in enumerate(zip(p_NC.tolist(), labels_N.tolist(), strict=True)):
        lines.append(",".join([*map(repr, p_C), "" if n < unlabelled else STARS[label]]))
    path = folder / "stars.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, p_NC[unlabelled:], labels_N[unlabelled:]


def test_the_report_of_arrays_has_the_figures_of_the_metrics() -> None:
    p_NC, labels_N = rows(600, 5, temperature=2.0)
    report = trueodds.report(p_NC, labels_N, ordered=True)
    of = report.ordered
    assert of is not None and of.levels == ["0", "1", "2", "3", "4"]
    score, bias = metrics.rps_interval(p_NC, labels_N), metrics.level_bias(p_NC, labels_N)
    assert (of.rps, of.rps_lower, of.rps_upper) == (score.value, score.lower, score.upper)
    assert (of.level_bias, of.level_bias_lower, of.level_bias_upper) == (bias.bias, bias.lower, bias.upper)
    for one, other in zip(of.at_least, metrics.at_least(p_NC, labels_N, binning="mass"), strict=True):
        assert (one.share, one.mean_probability) == (other.share, other.mean_probability)
        assert one.ece == pytest.approx(other.ece, abs=0.01)  # whole cells of the sums
        assert (one.p_value, one.more_than_chance) == (other.p_value, other.more_than_chance)
    assert f"RPS, levels        {of.rps:.4f}" in str(report) and "at least" in str(report)
    assert report.to_dict()["ordered"]["at_least"][0]["name"] == "1"
    assert of.reading in report.reading and "at least" in report._repr_html_()
    assert trueodds.report(p_NC, labels_N).ordered is None


@pytest.mark.parametrize("one_look", [True, False])
def test_two_levels_have_the_figures_of_the_positive_class(one_look: bool) -> None:
    p_NC, labels_N = rows(400, 2, temperature=2.0)
    options = ReportOptions(one_look=one_look)
    of = ordered_figures(LevelSums(("low", "high"), OrderedSums.from_probabilities(p_NC, labels_N)), options)
    sums = PositiveClass("high", 1).sums(p_NC, labels_N)
    positive = positive_figures(PositiveSums("high", AnswerSums(sums.cells[0].astype(np.int64), sums)), options)
    (one,) = of.at_least
    for name, value in one.model_dump(exclude={"name", "p_value", "more_than_chance"}).items():
        assert value == getattr(positive, NAMES.get(name, name)), name
    assert one.p_value == positive.calibration_p_value
    assert (of.rps_lower, of.rps_upper) == (positive.brier_lower, positive.brier_upper)
    assert of.rps == pytest.approx(positive.brier)
    assert positive.signed_gap is not None and of.level_bias == -positive.signed_gap
    assert positive.signed_gap_upper is not None and of.level_bias_lower == pytest.approx(-positive.signed_gap_upper)


def test_without_labels_there_are_only_the_levels() -> None:
    of = ordered_figures(LevelSums(("a", "b", "c"), OrderedSums.zero(3)), ReportOptions())
    assert (of.levels, of.rps, of.at_least, of.reading) == (["a", "b", "c"], None, [], "")


def test_the_command_prints_and_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, p_NC, labels_N = saved(tmp_path, unlabelled=50)
    files = tmp_path / "report.json", tmp_path / "report.html"
    assert run(path, "--ordered", "--json", files[0], "--html", files[1]) == 0
    printed = capsys.readouterr().out
    tree = json.loads(files[0].read_text())
    assert tree["ordered"]["rps"] == pytest.approx(metrics.rps(p_NC, labels_N))
    assert [one["name"] for one in tree["ordered"]["at_least"]] == STARS[1:]
    assert "Levels, 1 to 5; intervals at 95%" in printed and tree["ordered"]["reading"] in printed
    page = files[1].read_text()
    assert 'id="at-least-table"' in page and "Ranked probability score" in page
    assert page.count('<tr><th scope="row">') >= 4 and "ordered.rps" in tree["estimands"]
    assert run(path) == 0
    assert "RPS" not in capsys.readouterr().out


def test_an_unlabelled_table_has_no_section(tmp_path: Path) -> None:
    path, _, _ = saved(tmp_path, unlabelled=600)
    report = report_of_answers(reading.read(path, Form()), ordered=True)
    assert report.ordered is not None and report.ordered.rps is None
    assert "at-least-table" not in render(report)


def test_a_level_that_is_off_is_named() -> None:
    p_NC, labels_N = rows(3000, 3)
    of = trueodds.report(p_NC, np.maximum(labels_N, 1), ordered=True).ordered
    assert of is not None
    assert of.reading.startswith("Levels are predicted") and "too low on average" in of.reading
    assert '"At least" is off by more than chance for 1 (+' in of.reading


def test_numbers_that_do_not_ascend_are_refused() -> None:
    p_NC, labels_N = rows(50, 4)
    message = r"ordered classes are '1', '10', '2', '3', numbers that do not ascend; .* in their order: 1,2,3,10"
    with pytest.raises(ConfigError, match=message):
        trueodds.report(p_NC, [["1", "10", "2", "3"][k] for k in labels_N], classes=["1", "10", "2", "3"], ordered=True)
    with pytest.raises(ConfigError, match="do not ascend"):
        trueodds.report(p_NC, [4 - k for k in labels_N], classes=[4, 3, 2, 1], ordered=True)


def test_a_table_without_all_probabilities_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "top.csv"
    path.write_text("confidence,predicted,label\n0.9,1,1\n0.8,2,1\n")
    assert run(path, "--ordered") != 0
    assert "top.csv has no probabilities of all classes, which ordered classes need" in capsys.readouterr().err
