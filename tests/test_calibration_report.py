"""The report of labelled rows: its numbers, in a terminal, in a notebook, in a file."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import trueodds
from trueodds import metrics
from trueodds.errors import ConfigError, MissingExtraError
from trueodds.reports.table.evaluation import CalibrationReport
from trueodds.sums.positive import PositiveClass

RNG = np.random.default_rng(0)
P = metrics.softmax(RNG.normal(0, 3, (800, 3)))
Y = np.array([RNG.choice(3, p=row) for row in metrics.softmax(np.log(P) / 2)])
KEPT = {"rows"}
"""Fields that are no numbers."""


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


SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_for_a_file_has_title_legend_and_ece_with_its_interval(report: CalibrationReport) -> None:
    svg = report.svg()
    root = ElementTree.fromstring(svg)
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert "var(" not in svg and "url(#hatch)" in svg and "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    assert texts[:2] == ["Reliability diagram", "800 rows, 3 classes"]
    assert f"estimate of the ECE {report.ece_estimate:.4f}, 95% interval {report.ece_lower:.4f} – " in texts[3]
    assert texts[-5:] == [
        *("share of right answers", "over-confident by", "under-confident by"),
        *("right as often as it says", "95% interval"),
    ]
    bars = next(path for path in root.iter() if path.get("class") == "accuracy").get("d") or ""
    assert bars.count("M") == sum(b.count > 0 for b in report.bins)


def test_a_picture_is_readable_without_its_style_sheet(report: CalibrationReport) -> None:
    """Every element has its colours as attributes: those that the style sheet gives in light."""
    root = ElementTree.fromstring(report.svg())
    marks = {one.get("class"): one for one in root.iter() if one.tag in (f"{SVG}path", f"{SVG}rect")}
    assert marks["ground"].get("fill") == "#fffefb"
    assert marks["accuracy"].get("fill") == "#8fadcd" and marks["grid"].get("fill") == "none"
    assert marks["over"].attrib.items() >= {"fill": "url(#hatch)", "stroke": "#b4512a"}.items()
    assert marks["diagonal"].get("stroke-dasharray") == "2 4"
    for text in root.iter(f"{SVG}text"):
        assert text.get("fill") in ("#22252a", "#595d65") and text.get("font-size")
    assert {text.get("text-anchor") for text in root.iter(f"{SVG}text")} == {None, "end", "middle"}


def test_to_dict_holds_every_number_for_json(report: CalibrationReport) -> None:
    p, y = P[:, 1] / P[:, :2].sum(axis=1), (Y == 1).astype(int)
    for one in (report, trueodds.report(p, y)):
        tree = one.to_dict()
        assert json.loads(json.dumps(tree, allow_nan=False)) == tree
        names = {field.name for field in fields(one)} - KEPT
        assert tree.keys() == names | {"reading"} and tree["reading"] == one.reading
        assert all(tree[name] == getattr(one, name) for name in ("n", "ece", "verdict", "nll_upper"))
        assert tree["bins"] == [b.model_dump() for b in one.bins] and tree["mce_bin"]["count"] == one.mce_bin.count
    assert tree["positive"]["ece"] == one.positive.ece  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["a.svg", "b.html", "c.JSON", "d.png"])
def test_it_is_saved_by_the_suffix(report: CalibrationReport, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    report.save(str(path))
    content = path.read_bytes()
    if name == "a.svg":
        assert content.decode() == report.svg()
    elif name == "b.html":
        page = content.decode()
        assert page.startswith("<!doctype html>") and report.reading in page and "right as often as it says" in page
        assert "<script" not in page and not re.search(r"(src|href)=", page)
    elif name == "c.JSON":
        assert json.loads(content) == report.to_dict()
    else:
        assert content.startswith(b"\x89PNG") and len(content) > 20_000
        report.save(path)
        assert path.read_bytes() == content, "equal bytes from an equal report"
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_another_suffix_is_refused(report: CalibrationReport, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"suffix '.pdf'; allowed are \.svg, \.html, \.json, \.png\. Give the file"):
        report.save(tmp_path / "report.pdf")
    with pytest.raises(FileNotFoundError, match="none"):
        report.save(tmp_path / "none" / "report.svg")
    assert list(tmp_path.iterdir()) == []


def test_it_draws_on_matplotlib_axes(report: CalibrationReport) -> None:
    ax = Figure().add_subplot()
    assert report.plot(ax) is ax
    title = ax.get_title(loc="left")
    assert title.startswith("Reliability diagram\n800 rows, 3 classes\nECE ")
    assert f"95% interval {report.ece_lower:.4f} – {report.ece_upper:.4f}" in title
    legend = ax.get_legend()
    assert legend is not None and "over-confident by" in [text.get_text() for text in legend.get_texts()]
    heights = [b.accuracy for b in report.bins if b.count]
    assert [one.get_height() for one in ax.patches[: len(heights)] if isinstance(one, Rectangle)] == heights
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("confidence of the model", "share of right answers")
    named = trueodds.report(
        P[:, 1] / P[:, :2].sum(axis=1), np.array(["a", "b & <c>"])[(Y == 1) * 1], classes=["a", "b & <c>"]
    )
    assert named.plot(Figure().add_subplot()).get_xlabel() == "probability from the model: p(b & <c>)"
    assert "Reliability diagram of p(b &amp; &lt;c&gt;)" in named.svg()


def test_without_axes_it_opens_a_figure(report: CalibrationReport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    ax = report.plot()
    assert pyplot.gca() is ax
    pyplot.close(ax.get_figure())  # type: ignore[arg-type]


def test_without_matplotlib_it_says_what_to_install(
    report: CalibrationReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.pyplot", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    for call in (report.plot, lambda: report.save(tmp_path / "report.png")):
        with pytest.raises(MissingExtraError, match=r"needs the package matplotlib.*trueodds\[plot\]"):
            call()
    report.save(tmp_path / "report.svg")


def test_one_column_and_names_of_classes() -> None:
    p, y = P[:, 1] / P[:, :2].sum(axis=1), (Y == 1).astype(int)
    both, alone = trueodds.report(np.stack([1 - p, p], axis=1), y), trueodds.report(p, y)
    assert both.positive is None and alone.top_label_verdict == both.verdict
    assert replace(alone, positive=None, verdict=both.verdict, top_label_verdict=None) == both
    assert trueodds.report(p[:, None], y[:, None]) == alone
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
        (
            [[0.98828125, 0.0078125], [0.5, 0.5]],
            [0, 1],
            {},
            "sums to 0.996094; .* these are bfloat16: convert the logit",
        ),
        ([[2.0, -1.0]], [0], {}, r"probabilities holds -1; allowed is \[0, 1\]. If these are logits, apply"),
        ([[0.4, 0.4]], [0], {}, "sums to 0.8; every row must sum to 1"),
        ([[0.2, 0.9, 0.5], [0.8, 0.1, 0.5]], [1, 0, 1], {}, "sums to 1.6; .*; every column does: transpose them"),
        ([[0.5, 0.5]], [2], {}, "labels holds 2; allowed are the class indices 0..1"),
        ([[0.5, 0.5]], [0], {"level": 95}, "level is 95; allowed is"),
        ([[0.5, 0.5]], [0], {"bins": 7}, "bins is 7"),
    ],
)
def test_bad_input(probabilities: object, labels: object, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trueodds.report(probabilities, labels, **options)  # type: ignore[call-overload]


def test_an_error_that_the_nlls_limits_do_not_allow_for_is_said() -> None:
    confidence = np.append(np.full(200, 0.8), np.full(40, 1 - 1e-9))
    labels = np.append(np.arange(200) >= 40, np.ones(40, bool)).astype(int)
    report = trueodds.report(np.stack([1 - confidence, confidence], axis=1), labels)
    assert report.nll_unseen is not None
    assert "not included: a wrong answer at the highest confidence, not seen so far, would cost 20.7 nats" in str(
        report
    )
    assert "not allowed for" not in str(trueodds.report([[0.3, 0.7], [0.6, 0.4]] * 200, [1, 0, 1, 1] * 100))


@pytest.mark.parametrize(
    ("p_N", "classes", "words"),
    [
        ([0.5, 0.9] * 10, None, "None of the 20 probabilities is below one half. They are read as p(positive)."),
        ([0.4] + [0.9] * 19, None, "1 of the 20 probabilities is below one half."),
        ([0.4] * 2 + [0.9] * 18, None, "2 of the 20 probabilities are below one half."),
        ([0.4] * 3 + [0.9] * 17, None, ""),
        ([0.9] * 19, None, ""),
        ([0.9] * 20, [0, 1], ""),
        ([[0.1, 0.9]] * 20, None, ""),
    ],
)
def test_one_column_that_looks_like_confidences_is_told(p_N: list[Any], classes: list[int] | None, words: str) -> None:
    report = trueodds.report(p_N, [1] * len(p_N), classes=classes)
    assert report.doubt.startswith(words) and bool(report.doubt) is bool(words)
    assert report.reading.endswith(report.doubt) and report.to_dict()["doubt"] == report.doubt


def test_classes_in_another_order_than_the_labels_are_told() -> None:
    p_NC = np.repeat(np.eye(6) * 0.7 + 0.05, 20, axis=0)
    labels_N = p_NC.argmax(axis=1)
    told = "0 of 120 rows are right, and 120 would be if the order of the classes were another one. Check"
    assert told in trueodds.report(p_NC, (labels_N + 1) % 6).reading
    p_N = np.array([0.1, 0.2, 0.9] * 40)
    told = "0 of 120 rows are right, and 120 would be if the order of the classes were 'ham', 'spam'. Check"
    assert told in trueodds.report(p_N, np.where(p_N < 0.5, "ham", "spam"), classes=["spam", "ham"]).reading
    for fine in (labels_N, np.where(np.arange(120) % 5 < 2, labels_N, (labels_N + 1) % 6), np.zeros(120, int)):
        assert not trueodds.report(p_NC, fine).doubt


def test_an_order_of_the_classes_that_fits_few_rows_by_chance_is_not_told() -> None:
    rng = np.random.default_rng(0)
    for classes, rows in ((2, 20), (3, 40), (100, 60), (100, 600)):
        for _ in range(20):
            p_NC, labels_N = rng.dirichlet(np.full(classes, 0.1), rows), rng.integers(classes, size=rows)
            assert not trueodds.report(p_NC, labels_N).doubt
