"""The report of labelled rows: its numbers, in a terminal, in a notebook, in a file."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import trueodds
from trueodds import metrics
from trueodds.errors import ConfigError
from trueodds.reports.table.evaluation import CalibrationReport
from trueodds.sums.positive import PositiveClass

RNG = np.random.default_rng(0)
P = metrics.softmax(RNG.normal(0, 3, (800, 3)))
Y = np.array([RNG.choice(3, p=row) for row in metrics.softmax(np.log(P) / 2)])


@pytest.fixture(scope="module")
def report() -> CalibrationReport:
    """Twice too sure."""
    return trueodds.report(P, Y)


def test_its_numbers_are_those_of_the_metrics(report: CalibrationReport) -> None:
    sums = metrics.CalibrationSums.from_probabilities(P, Y)
    for name, value in metrics.summary(sums).items():
        assert getattr(report, name) == value, name
    nll = metrics.score_interval(sums, score="nll")
    assert (report.nll_lower, report.nll_upper) == (nll.lower, nll.upper)
    assert report.classwise_ece == metrics.classwise_ece(P, Y)
    assert report.calibration_p_value == metrics.calibration_test(sums).p_value
    assert sum(b.count for b in report.bins) == report.n == 800 and report.classes == 3


def test_it_prints_every_number_with_its_interval(report: CalibrationReport) -> None:
    lines = str(report).splitlines()
    assert lines[0] == "800 rows, 3 classes; intervals at 95%"
    assert re.match(
        rf"  estimate +{report.ece_estimate:.4f}  {report.ece_lower:.4f} – {report.ece_upper:.4f}", lines[5]
    )
    assert f"up to {report.floor_p95:.4f} by chance" in lines[6]
    assert lines[-1].startswith("The gaps are more than chance (p = 0.0005). The model is over-confident")
    assert max(map(len, lines[:-1])) <= 100


def test_what_chance_explains_reads_so() -> None:
    y = np.array([RNG.choice(3, p=row) for row in P[:400]])
    assert re.match(
        r"The gaps are no larger than chance alone makes them \(p = 0\.\d+\), but an ECE of up to 0\.0\d+ would fit"
        r" these rows as well\. Fewer than 500 rows",
        trueodds.report(P[:400], y).reading,
    )


def test_a_notebook_shows_numbers_and_picture(report: CalibrationReport) -> None:
    root = ElementTree.fromstring(report._repr_html_())
    shown = ["".join(cell.itertext()) for cell in root.iter("td")]
    assert {value for _, value, _, _ in report.table()} <= set(shown)
    svg = "{http://www.w3.org/2000/svg}"
    assert len(list(root.iter(f"{svg}svg"))) == 1 and next(root.iter(f"{svg}title")).text == "Reliability diagram"
    style = next(root.iter("style")).text or ""
    colours = set(re.findall(r"(--[\w-]+):", style))
    assert set(re.findall(r"var\((--[\w-]+)\)", style)) <= colours
    assert all(rule.startswith((".trueodds", "@media", "[data-jp-theme")) for rule in _outermost(style))


def _outermost(style: str) -> list[str]:
    """The selectors of rules that are in no other."""
    rules, depth, start = [], 0, 0
    for k, letter in enumerate(style):
        if letter == "{":
            rules += [style[start:k]] * (depth == 0)
            depth += 1
        elif letter == "}":
            depth -= 1
            start = k + 1
    return rules


def test_a_picture_for_a_file_needs_no_variables(report: CalibrationReport) -> None:
    svg = report.svg()
    root = ElementTree.fromstring(svg)
    assert root.get("width") == "500" and "var(" not in svg and "#8fadcd" in svg
    bars = next(path for path in root.iter() if path.get("class") == "accuracy").get("d") or ""
    assert bars.count("M") == sum(b.count > 0 for b in report.bins)


def test_one_column_and_names_of_classes() -> None:
    p, y = P[:, 1] / P[:, :2].sum(axis=1), (Y == 1).astype(int)
    both, alone = trueodds.report(np.stack([1 - p, p], axis=1), y), trueodds.report(p, y)
    assert both.positive is None and alone.top_label_verdict == both.verdict
    assert replace(alone, positive=None, verdict=both.verdict, top_label_verdict=None) == both
    named = trueodds.report(p, np.array(["no", "yes"])[y], classes=["no", "yes"])
    assert named.positive is not None and named.positive.model_copy(update={"label": "positive"}) == alone.positive
    sums = PositiveClass("yes", 1).sums_of(p, y == 1)
    assert (
        named.positive.ece == pytest.approx(metrics.ece_interval(sums, binning="mass").ece)
        and named.positive.prevalence == y.mean()
    )
    lines = str(named).splitlines()
    assert lines.index("p(yes), over all of 0% to 100%") < lines.index("The more probable class")
    assert "p(yes)" in named.svg() and "p(yes)" in named._repr_html_()
    with pytest.raises(ConfigError, match=r"unknown label 'yess'; allowed: no, yes\. Did you mean 'yes'"):
        trueodds.report([0.5], ["yess"], classes=["no", "yes"])


@pytest.mark.parametrize(
    ("probabilities", "labels", "options", "message"),
    [
        ([[2.0, -1.0]], [0], {}, r"probabilities holds -1; allowed is \[0, 1\]. If these are logits, apply"),
        ([[0.4, 0.4]], [0], {}, "sums to 0.8; every row must sum to 1"),
        ([[0.5, 0.5]], [2], {}, "labels holds 2; allowed are the class indices 0..1"),
        ([[0.5, 0.5]], [0], {"level": 95}, "level is 95; allowed is"),
        ([[0.5, 0.5]], [0], {"bins": 7}, "bins is 7"),
    ],
)
def test_bad_input(probabilities: object, labels: object, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trueodds.report(probabilities, labels, **options)  # type: ignore[arg-type]


def test_an_error_that_the_nlls_limits_do_not_allow_for_is_said() -> None:
    confidence = np.append(np.full(200, 0.8), np.full(40, 1 - 1e-9))
    labels = np.append(np.arange(200) >= 40, np.ones(40, bool)).astype(int)
    report = trueodds.report(np.stack([1 - confidence, confidence], axis=1), labels)
    assert report.nll_unseen is not None
    assert "not included: a wrong answer at the highest confidence, not seen so far, would cost 20.7 nats" in str(
        report
    )
    assert "not allowed for" not in str(trueodds.report([[0.3, 0.7], [0.6, 0.4]] * 200, [1, 0, 1, 1] * 100))
