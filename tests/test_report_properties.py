"""Whatever the probabilities and however many labels: a report, without an impossible number, in every form."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueodds
from service.app import create_app
from service.settings import Settings
from tests.service.app_client import Client
from trueodds.inputs.columns import Texts
from trueodds.metrics import Costs
from trueodds.reports import Report, ReportOptions, page
from trueodds.reports.page.state import state_of
from trueodds.reports.table.table_content import of_probabilities
from trueodds.reports.table.table_report import report_of_answers
from trueodds.reports.table.text import text_of

SHAPES: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "below one half": lambda rng, n: rng.uniform(0, 0.5, n),
    "above one half": lambda rng, n: rng.uniform(0.5, 1, n),
    "all equal": lambda rng, n: np.full(n, 0.3),
    "all 0": lambda rng, n: np.zeros(n),
    "all 1": lambda rng, n: np.ones(n),
    "two spikes": lambda rng, n: rng.choice([0.1, 0.9], n),
    "uniform": lambda rng, n: rng.uniform(0, 1, n),
    "rare": lambda rng, n: rng.beta(0.5, 60, n),
}
TRUTHS: dict[str, Callable[[np.random.Generator, Any], Any]] = {
    "as said": lambda rng, p: rng.random(len(p)) < p,
    "half": lambda rng, p: rng.random(len(p)) < p / 2,
    "twice": lambda rng, p: rng.random(len(p)) < np.minimum(2 * p, 1),
    "reversed": lambda rng, p: rng.random(len(p)) < 1 - p,
    "never": lambda rng, p: np.zeros(len(p), bool),
    "always": lambda rng, p: np.ones(len(p), bool),
}
COUNTS = (
    *("answers", "labelled", "labels", "corrected", "count", "alerts", "hits", "fired_after", "last"),
    *("observed", "positives_to_come", "labels_to_come", "zeros", "ruled_out"),
)
ROUNDING = 1e-12
SIGNED = ("gap", "saving", "phi")
"""Parts of the names of differences, which may be negative."""
MOST = {"brier": 2.0, "positive.brier": 1.0}
FREE = (
    *("nll", "log_e", "log_loss", "statistic", "threshold", "effective_n", "ratio", "costs", "decisions.cost"),
    "positive.expected",
)
"""Parts of the names of numbers that [0, 1] does not hold; costs are checked by themselves."""


@st.composite
def situations(draw: st.DrawFn) -> tuple[str, str, int, int, bool, int]:
    classes = draw(st.sampled_from([2, 2, 3, 10, 100]))
    labels = draw(st.sampled_from([0, 1, 2, 20, 20, 5000]))
    positive = classes == 2 and draw(st.booleans())
    names = draw(st.sampled_from(sorted(SHAPES))), draw(st.sampled_from(sorted(TRUTHS)))
    return *names, classes, labels, positive, draw(st.integers(0, 99))


def rows_of(shape: str, truth: str, classes: int, n: int, seed: int) -> tuple[Any, Any]:
    """N x C probabilities, the last column of that shape and the others sharing the rest; and labels."""
    rng = np.random.default_rng(seed)
    p_N = SHAPES[shape](rng, n)
    is_last_N = TRUTHS[truth](rng, p_N)
    p_NC = np.column_stack([np.outer(1 - p_N, np.full(classes - 1, 1 / (classes - 1))), p_N])
    return p_NC, np.where(is_last_N, classes - 1, rng.integers(0, classes - 1, n))


def numbers(tree: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON tree under its dotted name; an object with a pair of limits as well."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from numbers(value, f"{path}.{name}".lstrip("."))
    elif isinstance(tree, list):
        for value in tree:
            yield from numbers(value, path)
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        yield path, float(tree)


def objects(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []:
        yield from objects(value)


def check_numbers(text: str) -> None:
    """Raises AssertionError for a number that no answers can give: by its range, its limits or a count."""
    tree = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    del tree["estimands"]  # words under the names of numbers
    for path, value in numbers(tree):
        name = path.rpartition(".")[2]
        assert math.isfinite(value)
        if name in COUNTS:
            assert value >= 0 and value == int(value), (path, value)
        elif not any(part in path for part in FREE):
            least = -1.0 if any(part in name for part in SIGNED) else 0.0
            kind = next((most for part, most in MOST.items() if path.startswith(part)), 1.0)
            assert least - ROUNDING <= value <= kind + ROUNDING, (path, value)
    for one in objects(tree):
        for name, value in one.items():
            low, high = one.get(f"{name}_lower"), one.get(f"{name}_upper")
            if low is not None and high is not None and name != "ece":  # the plug-in one has a bias
                assert low - ROUNDING <= value <= high + ROUNDING, (name, low, value, high)
        if one.get("ece_estimate") is not None:
            assert one["ece_lower"] <= one["ece_estimate"] <= one["ece_upper"]
        if "estimate" in one and one["estimate"] is not None:
            assert one["lower"] <= one["estimate"] <= one["upper"]
    for part in (tree, tree["positive"] or {}):
        if "bins" in part:
            assert sum(b["count"] for b in part["bins"]) == tree["labelled"]
    if decisions := tree["decisions"]:
        for one in decisions["thresholds"]:
            assert 0 <= one["hits"] <= one["alerts"] <= tree["labelled"]
        if cost := decisions["cost"]:
            most = max(cost["costs"].values())
            assert 0 <= cost["lower"] <= cost["cost"] <= cost["upper"] <= most
            assert 0 <= cost["saving_lower"] <= cost["saving"] <= cost["saving_upper"] <= most


def check_words(report: Report) -> None:
    """Each word is of its own quantity, and the page's is that of the text."""
    state, name = state_of(report.model_copy(update={"alarm": None})), report.verdict.removeprefix("leans_")
    assert (name in ("too_high", "too_low")) <= (report.positive is not None)
    assert (name in ("over_confident", "under_confident")) <= (report.positive is None)
    if report.positive is not None and name in ("too_high", "too_low"):
        before = report.headline.partition("The more probable class")[0]
        assert "over-confident" not in before and "under-confident" not in before
        assert name.replace("_", " ") in before and name.replace("_", " ") in state.word
        assert ((report.positive.signed_gap or 0.0) < 0) == (name == "too_high")
    assert "nan" not in report.reading.lower().split() and "inf" not in report.reading.lower().split()


@pytest.mark.full
@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(situations())
def test_a_table_in_every_form(situation: tuple[str, str, int, int, bool, int]) -> None:
    """JSON, page, and text of a table; and the figures of rows in a notebook."""
    shape, truth, classes, labels, positive, seed = situation
    p_NC, labels_N = rows_of(shape, truth, classes, max(labels, 3), seed)
    names = tuple(f"c{k}" for k in range(classes))
    known = [names[y] if n < labels else "" for n, y in enumerate(labels_N)]
    answers = of_probabilities("a.csv", p_NC, Texts.of_array(np.array(known)), names, ordered=True)
    options = ReportOptions(costs=Costs(10, 1) if positive else None)
    report = report_of_answers(answers, options, by="class", positive=names[-1] if positive else None)
    assert (report.answers, report.labelled) == (max(labels, 3), labels)
    check_numbers(report.model_dump_json())
    check_words(report)
    html = page.render(report)
    assert "<h2" in html and ">nan" not in html and ">inf" not in html
    assert text_of(report).startswith("a.csv")
    if labels:
        rows = trueodds.report(p_NC[:labels, 1] if positive else p_NC[:labels], labels_N[:labels])
        assert rows.verdict == report.verdict and str(rows) and rows._repr_html_() and rows.svg()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp("properties")
    with Client(create_app(Settings(models=folder / "models", store=folder / "store.sqlite", threads=1))) as client:
        yield client


NUMBER = count()


@pytest.mark.full
@settings(max_examples=15, derandomize=True, deadline=None, database=None)
@given(situations())
def test_a_service_in_every_form(client: Client, situation: tuple[str, str, int, int, bool, int]) -> None:
    """Answers of another server, their labels, and the report as JSON and as a page: never a 500."""
    shape, truth, classes, labels, positive, seed = situation
    labels = min(labels, 60)
    p_NC, labels_N = rows_of(shape, truth, classes, max(labels, 3), seed)
    names, whose = [f"c{k}" for k in range(classes)], {"model": "m", "version": f"v{next(NUMBER)}"}
    ids = [f"{whose['version']}-{n}" for n in range(len(p_NC))]
    rows = [{"id": i, "probabilities": p_C} for i, p_C in zip(ids, p_NC.tolist(), strict=True)]
    body = {"observations": rows, "classes": names, **whose, **({"positive": names[-1]} if positive else {})}
    answer = client.post("/observe", json=body)
    assert answer.status_code == 200, answer.text
    if labels:
        client.label([{"id": i, "label": names[y]} for i, y in zip(ids[:labels], labels_N, strict=False)])
    for query in ({}, {"last": 5}, {"by": "class"}, {"costs": "miss:10,alarm:1"} if positive else {}):
        answer = client.get("/calibration-report", params={**whose, **query})
        assert answer.status_code == 200, answer.text
        check_numbers(answer.text)
        check_words(Report.model_validate_json(answer.text))
        html = client.get("/calibration-report", params={**whose, **query, "format": "html"})
        assert html.status_code == 200, html.text[:500]
