"""The report that a client reads is drawn and saved as `trueodds.report` is: by the same code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import trueodds
from trueodds.errors import ConfigError, MissingExtraError
from trueodds.reports import Report, report_of
from trueodds.reports.display.live import LiveReport
from trueodds.reports.display.report_files import DisplayedReport
from trueodds.reports.page import render
from trueodds.reports.table.evaluation import CalibrationReport
from trueodds.sums.answers import AnswerSums
from trueodds.sums.positive import PositiveClass, PositiveSums
from trueodds.sums.sums import CalibrationSums

RNG = np.random.default_rng(5)
P = RNG.random(600) ** 2
Y = (RNG.random(600) < P**1.3).astype(int)
BOTH = np.stack([1 - P, P], axis=1)


def answer_sums(sums: CalibrationSums) -> AnswerSums:
    return AnswerSums(sums.cells[0].astype(np.int64), sums)


def received(positive: bool = False) -> LiveReport:
    """As a client receives it, over JSON."""
    top = answer_sums(CalibrationSums.from_probabilities(BOTH, Y))
    of_p = PositiveSums("spam <b>", answer_sums(PositiveClass("spam <b>", 1).sums(BOTH, Y))) if positive else None
    return LiveReport.model_validate_json(report_of("mail", "7", top, positive=of_p).model_dump_json())


def test_it_is_the_answer_of_the_service_and_has_the_methods_of_a_report() -> None:
    report, local = received(), trueodds.report(BOTH, Y)
    assert isinstance(report, Report) and isinstance(local, CalibrationReport)
    for name in ("save", "plot", "svg", "_repr_html_"):
        assert getattr(LiveReport, name) is getattr(CalibrationReport, name) is getattr(DisplayedReport, name)
    tree = report.to_dict()
    assert json.loads(json.dumps(tree)) == tree == json.loads(report.model_dump_json())
    assert tree["ece"] == pytest.approx(local.to_dict()["ece"]) and tree["reading"] == report.reading
    assert str(report).startswith("mail 7: 600 answers, 600 with their labels\n")


@pytest.mark.parametrize("positive", [False, True])
def test_the_picture_shows_the_same_diagram_as_that_of_the_rows(positive: bool) -> None:
    report, local = received(positive), trueodds.report(P if positive else BOTH, Y)
    ours, theirs = report.plot(Figure().add_subplot()), local.plot(Figure().add_subplot())
    assert ours.get_title(loc="left").splitlines()[1] == "mail 7: 600 answers, 600 with their labels"
    assert f"ECE{' of p' * positive} {(report.positive or report).ece:.4f}" in ours.get_title(loc="left")
    if positive:  # a live report has bins of equal count here
        assert ours.get_xlabel() == "probability from the model: p(spam <b>)"
        assert "Reliability diagram of p(spam &lt;b&gt;)" in report.svg()
    else:
        heights = [[bar.get_height() for bar in ax.patches if isinstance(bar, Rectangle)] for ax in (ours, theirs)]
        assert heights[0] == pytest.approx(heights[1]) and len(heights[0]) > 10


def test_it_is_saved_by_the_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = received(positive=True)
    for suffix in ("svg", "html", "json", "png"):
        report.save(tmp_path / f"report.{suffix}")
    assert (tmp_path / "report.svg").read_text() == report.svg()
    assert json.loads((tmp_path / "report.json").read_text()) == report.to_dict()
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!") and escape(report.headline) in page and len(page) == len(render(report))
    notebook = report._repr_html_()
    assert "mail 7: 600 answers" in notebook and "spam &lt;b&gt;" in notebook and "<script" not in notebook
    with pytest.raises(ConfigError, match=r"suffix '.pdf'; allowed are \.svg, \.html, \.json, \.png"):
        report.save(tmp_path / "report.pdf")
    monkeypatch.delitem(sys.modules, "trueodds.reports.page", raising=False)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setitem(sys.modules, "trueodds.reports.page.rendering", None)
    with pytest.raises(MissingExtraError, match=r"a live report in an \.html file needs .*trueodds\[report\]"):
        report.save(tmp_path / "report.html")


@pytest.mark.parametrize("positive", [False, True])
def test_without_labels_it_has_no_numbers_and_says_so(tmp_path: Path, positive: bool) -> None:
    nothing = AnswerSums(answer_sums(CalibrationSums.from_probabilities(BOTH, Y)).answers_C, CalibrationSums.zero())
    of_p = PositiveSums("spam", nothing) if positive else None
    answer = report_of("mail", "7", nothing, positive=of_p)
    report = LiveReport.model_validate_json(answer.model_dump_json())
    assert report.verdict == "no_labels" and report.ece is None
    title = report.plot(Figure().add_subplot()).get_title(loc="left")
    assert title.splitlines()[1:] == ["mail 7: 600 answers, 0 with their labels"]
    for suffix in ("svg", "html", "json", "png"):
        report.save(tmp_path / f"report.{suffix}")
    assert "ECE" not in report.svg() and report.reading[:20] in report._repr_html_()
    assert json.loads((tmp_path / "report.json").read_text())["ece"] is None
