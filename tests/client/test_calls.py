"""The Python client against a real service process: predictions, labels, reports, versions and keys."""

from __future__ import annotations

import asyncio
import doctest
import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import trueodds
from service.http import hashed_keys
from tests.client.data import CLASSES, SHAPE, expected, images
from tests.conftest import ROOT
from tests.service.hooks import until
from tests.service.test_process import server
from tests.service.tiny_bundle import write_bundle
from trueodds.bundle import open_models
from trueodds.client import AsyncClient, CallError, Client, LabelSummary, ObservationSummary, calls
from trueodds.errors import ConfigError
from trueodds.sums.inputs import Array


def test_predictions_labels_and_report(client: Client, folder: Path, tmp_path: Path) -> None:
    before = client.report()
    images_NHWC = images(600)
    predictions = client.predict(images_NHWC)
    assert np.abs(predictions.probabilities_NC - expected(folder, images_NHWC)).max() < 1e-6
    assert predictions.classes == CLASSES and len(set(predictions.ids)) == len(predictions) == 600
    assert (predictions.index_N == predictions.probabilities_NC.argmax(axis=1)).all()
    assert (predictions.confidence_N == predictions.probabilities_NC.max(axis=1)).all()
    assert predictions.labels == tuple(CLASSES[k] for k in predictions.index_N)
    served = client.ready()
    assert served is not None and served in client.models()
    assert (served.model, served.version) == (predictions.model, predictions.version)
    assert client.feedback(predictions.ids, index=predictions.index_N) == LabelSummary(stored=600)
    report = client.report(model="tiny", bins=10)
    assert (report.answers, report.labelled) == (before.answers + 600, before.labelled + 600)
    lines = str(report).splitlines()
    assert lines[0] == f"tiny {served.version}: {report.answers:,} answers, {report.labelled:,} with their labels"
    assert lines[1].startswith(f"ECE                 {report.ece:.4f}, 95% interval {report.ece_lower:.4f} .. ")
    assert lines[-1] == report.reading
    report.save(tmp_path / "live.json")
    assert json.loads((tmp_path / "live.json").read_text()) == report.to_dict()
    assert report.to_dict()["labelled"] == report.labelled and "Reliability diagram" in report.svg()


def test_without_labels_a_report_prints_its_reading(client: Client) -> None:
    report = client.report(until=datetime(2000, 1, 1, tzinfo=UTC))
    assert str(report) == f"{report.model} {report.version}: 0 answers, 0 with their labels\n{report.reading}"


def test_the_awaited_client_answers_as_the_other(client: Client, url: str) -> None:
    images_NHWC = images(20, seed=3)

    async def together() -> tuple[list[Array], LabelSummary, int, object]:
        async with AsyncClient(url) as awaited:
            answers = await asyncio.gather(*(awaited.predict(image) for image in images_NHWC))
            summary = await awaited.feedback({answer.ids[0]: answer.labels[0] for answer in answers})
            report = await awaited.report(last=20)
            assert await awaited.ready() in await awaited.models()
            return [answer.probabilities_NC for answer in answers], summary, report.labelled, await awaited.ready()

    answers, *rest = asyncio.run(together())
    assert rest == [LabelSummary(stored=20), 20, client.ready()]
    assert (np.concatenate(answers) == client.predict(images_NHWC).probabilities_NC).all()


def test_one_version_answers_all_rows(client: Client, folder: Path, tmp_path: Path) -> None:
    """Another one becomes the default after the first request."""
    models = open_models(folder / "models")
    models.publish(write_bundle(tmp_path / "first", shape=SHAPE, name="switched"))

    def default() -> str | None:
        return {served.model: served.version for served in client.models()}.get("switched")

    until(lambda: default() is not None)
    first = default()

    def rows() -> Iterator[Any]:
        yield from images(4)
        models.publish(write_bundle(tmp_path / "second", shape=SHAPE, name="switched", seed=1))
        until(lambda: default() != first)
        yield from images(3, seed=1)

    predictions = client.predict(rows(), model="switched", rows=2)
    assert (predictions.version, len(predictions)) == (first, 7)
    assert client.predict(images(1), model="switched").version != first


def test_ids_of_ones_own_get_the_stored_answer(client: Client) -> None:
    first = client.predict(images(2), ids=["order-1", "order-2"])
    again = client.predict(images(3), ids=["order-1", "order-2", "order-3"])
    assert first.repeated == {} and again.repeated == {0: first.version, 1: first.version}
    assert (again.probabilities_NC[:2] == first.probabilities_NC).all()
    with pytest.raises(CallError) as error:
        client.predict(images(1, seed=9), ids=["order-1"])
    assert (error.value.code, error.value.status) == ("conflicting_input", 409)


def test_corrections_and_labels_that_come_first(client: Client) -> None:
    (id_,) = client.predict(images(1)).ids
    client.feedback(id_, "1")
    with pytest.raises(CallError) as error:
        client.feedback(id_, "2")
    assert error.value.code == "conflicting_label"
    assert client.feedback(id_, "2", correct=True) == LabelSummary(corrected=1)
    assert client.feedback("not-yet", "1", model="tiny") == LabelSummary(held=1)


def test_labels_of_one_import_are_voided_together(client: Client, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LABELS", 2)  # three requests
    ids = client.predict(images(5, seed=77)).ids
    assert client.feedback(ids, [1] * 5, import_id="friday") == LabelSummary(stored=5)
    void = {"import_id": "friday", "who": "Ada", "why": "the file of another day"}
    assert httpx.post(f"{url}/admin/labels/void", json=void).json()["labels"] == 5
    assert client.feedback(ids, [2] * 5) == LabelSummary(stored=5)
    for wrong in ("", "two words", "a\nb", "é", "x" * 129, 7):
        with pytest.raises(ConfigError, match="allowed are 1 to 128 ASCII characters without blanks"):
            client.feedback(ids, [2] * 5, import_id=wrong)  # type: ignore[arg-type]


def test_answers_of_another_server(client: Client, url: str) -> None:
    p_NC = np.random.default_rng(0).dirichlet([0.3] * 3, 700)
    ids, labels_N = [f"n-{k}" for k in range(700)], np.random.default_rng(1).integers(0, 3, 700)
    whose: dict[str, Any] = {"model": "elsewhere", "version": "1"}
    beside: dict[str, Any] = {"tags": ["x", None] * 350, "times": [datetime(2026, 1, 1), 1.7e9] * 350}
    summary = client.observe(ids, p_NC, classes=["a, b", "c", "d"], propensities=[0.5] * 700, **beside, **whose)
    assert summary == ObservationSummary(stored=700)
    client.feedback(ids, index=labels_N)
    report = client.report(**whose)
    assert report.ece == pytest.approx(trueodds.report(p_NC, labels_N).ece, abs=1e-12)
    assert client.report(tag="x", **whose).answers == 350
    first = {name: values[:1] for name, values in beside.items()}
    again = client.observe(ids[:1], p_NC[:1], propensities=[0.5], **first, **whose)
    assert again == ObservationSummary(already_known=1)
    with pytest.raises(
        CallError, match="1 of 2 answers refused, the others taken; row 1, counted from 0: the id 'n-1' was used"
    ) as refused:
        client.observe(["new", "n-1"], np.log(p_NC[:2]), logits=True, **whose)
    assert refused.value.details["outcomes"] == ObservationSummary(stored=1)

    async def awaited() -> ObservationSummary:
        async with AsyncClient(url) as other:
            options: dict[str, Any] = {"predicted": ["no"], "classes": ["no", "yes"]}
            return await other.observe(["s-1"], [0.7], model="elsewhere", version="2", **options)

    assert asyncio.run(awaited()) == ObservationSummary(stored=1)


def test_p_positive_of_answers_and_of_observed_ones(client: Client, folder: Path, tmp_path: Path) -> None:
    classes = ("benign", "malignant")
    bundle = write_bundle(tmp_path / "binary", shape=SHAPE, name="tumours", classes=classes, positive="malignant")
    open_models(folder / "models").publish(bundle)
    until(lambda: "tumours" in [served.model for served in client.models()])
    predictions = client.predict(images(3), model="tumours", rows=2)
    assert predictions.positive == "malignant" and predictions.positive_N is not None
    assert (predictions.positive_N == predictions.probabilities_NC[:, 1]).all()
    assert (client.predict(images(1)).positive, client.predict(images(1)).positive_N) == (None, None)
    whose: dict[str, Any] = {"model": "elsewhere", "version": "3"}
    client.observe(["b-1", "b-2"], [[0.9, 0.1], [0.3, 0.7]], classes=classes, positive="malignant", **whose)
    client.feedback({"b-1": "benign", "b-2": "malignant"})
    report = client.report(**whose)
    assert report.positive is not None and report.positive.mean_probability == pytest.approx(0.4)
    assert "p(malignant)  ECE 0.2000" in str(report)
    assert client.report(model="elsewhere", version="2").answers == 1


def test_ordered_classes_of_observed_answers(client: Client) -> None:
    whose: dict[str, Any] = {"model": "stars", "version": "1"}
    p_NC = [[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]]
    client.observe(["g-1", "g-2"], p_NC, classes=["bad", "fair", "good"], ordered=True, **whose)
    client.feedback({"g-1": "bad", "g-2": "good"})
    report = client.report(**whose)
    assert report.ordered is not None and report.ordered.rps == pytest.approx(0.28125, rel=1e-6)
    shown = f"RPS                 {report.ordered.rps:.4f} (of 0 to 2, in levels), bias of the level +0.1250"
    assert shown in str(report)
    assert "bias of the level" in report._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (["a"], [0.5, 0.5]),
            r"the numbers have shape \(2,\), the ids are \['a'\]; expected ids, and N x C probabilities",
        ),
        (("a", [[0.5, 0.5]]), "the ids are 'a'"),
        (([7], [[0.5, 0.5]]), "row 0 has the id 7; expected a text"),
        ((["a"], [["0.5", "0.5"]]), "the numbers are of the type <U3, such as .*'0.5'"),
        ((["a"], [[True, False]]), "the numbers are of the type bool"),
        ((["a", "b"], [[0.5, 0.5], [0.5, float("nan")]]), "row 1 of the numbers holds nan; every number must"),
        ((["a", "b"], [[0.5, 0.5], [1.0]]), "the numbers are not an array"),
        ((["a", "b"], [[0.5, 0.5]]), "there are 2 of id, 1 of probabilities; expected the same number of each"),
    ],
)
def test_answers_that_cannot_be_sent(client: Client, arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client.observe(*arguments, model="elsewhere", version="1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"predicted": ["a"], "index": [0]}, "predicted and index are both given"),
        ({"propensity": [0.5]}, "unknown option 'propensity'; allowed: .*propensities"),
        ({"predicted": [1.5]}, "row 0 of predicted is 1.5; expected the name of a class"),
        ({"index": ["0"]}, "row 0 of index is '0'; expected a whole number from 0 on"),
        ({"predicted": ["a"], "classes": ["a ", "b"]}, "classes holds 'a '; remove the blanks at its ends"),
        ({"predicted": ["a"], "classes": [1.5, 2.0]}, "row 0 of classes is 1.5"),
        ({"predicted": ["a"], "positive": True}, "positive is True"),
    ],
)
def test_classes_that_cannot_be_sent(client: Client, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client.observe(["a"], [0.5], model="elsewhere", version="9", **options)


def test_refused_labels_are_listed_by_their_rows_over_all_requests(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "LABELS", 2)
    ids = client.predict(images(5)).ids
    with pytest.raises(
        CallError, match=r"^2 of 5 labels refused, the others taken; row 3, counted from 0: unknown class 'cat'"
    ) as error:
        client.feedback(zip(ids, ["1", "2", "3", "cat", 99], strict=True))
    details = error.value.details
    assert [problem["row"] for problem in details["problems"]] == [3, 4] and details["problem_count"] == 2
    assert details["outcomes"] == LabelSummary(stored=3) and error.value.code == "unknown_class"


def test_an_error_in_a_later_request_has_the_answers_before_it(client: Client) -> None:
    rows = [*images(3), images(1)[0][:5]]
    with pytest.raises(
        CallError, match=r"^from row 2 on: .*instances.1. has 5 rows.*. 2 rows were answered before"
    ) as error:
        client.predict(rows, rows=2)
    answered = error.value.answered
    assert answered is not None and error.value.code == "wrong_shape"
    assert client.feedback(answered.ids, ["1", "2"]) == LabelSummary(stored=2)


def test_keys(folder: Path, tmp_path: Path) -> None:
    key, hash_ = hashed_keys.make()
    (tmp_path / "models").symlink_to(folder / "models")
    with server(tmp_path, "--predict-key-hash", hash_) as (http, _):
        url = str(http.base_url)
        with Client(url, key=key) as client:
            assert len(client.predict(images(1))) == 1
        with Client(url) as client, pytest.raises(CallError, match="a key is needed") as error:
            client.predict(images(1))
        assert (error.value.code, error.value.status) == ("key_needed", 401)


EXAMPLES = [
    *(Client, AsyncClient, Client.predict, Client.feedback, Client.observe, Client.observe_decision, Client.report),
]


@pytest.mark.parametrize("method", EXAMPLES)
def test_its_examples_run_against_a_service(url: str, method: Any) -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(method, method.__qualname__, globs={})
    for one in example.examples:
        one.source = one.source.replace("http://127.0.0.1:8000", url)
    printed: list[str] = []
    assert example.examples
    assert doctest.DocTestRunner(verbose=False).run(example, out=printed.append).failed == 0, "".join(printed)


def test_observed_answers_of_a_version_with_a_promise_come_back_with_decisions(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueodds.client.observations.NUMBERS", 200)  # so in several requests
    whose: dict[str, Any] = {"model": "acting", "version": "1", "classes": ["ham", "spam"]}
    p_NC = np.column_stack([np.linspace(0.5, 1, 250), np.linspace(0.5, 0, 250)])
    ids = [f"a-{n}" for n in range(250)]
    summary = client.observe(ids, p_NC, act_alone="threshold=.8,risk=.05,confidence=.95", **whose)
    assert summary == ObservationSummary(stored=250)
    assert summary.acts_N is not None and summary.audit_N is not None
    assert (summary.acts_N == (p_NC[:, 0] >= 0.8)).all() and not summary.audit_N.any()
    plain = client.observe(["b-1"], [[0.9, 0.1]], **whose)
    assert plain == ObservationSummary(stored=1) and plain.acts_N is None
    with pytest.raises(CallError) as error:
        client.observe(["b-1"], [[0.8, 0.2]], act_alone="threshold=.8,risk=.05,confidence=.95", **whose)
    assert error.value.code == "conflicting_answer" and error.value.details["problems"][0]["id"] == "b-1"


def test_without_httpx_it_names_the_extra() -> None:
    code = "import sys; sys.modules['httpx'] = None; import trueodds; trueodds.Client('http://a').ready()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith("install what belongs to it: pip install 'trueodds[client]'")


@pytest.mark.full
def test_labels_are_never_in_memory_all_at_once(client: Client) -> None:
    """Twice the labels need no more memory: they go in blocks of 20,000."""

    def pairs(name: str, rows: int) -> Iterator[tuple[str, int]]:
        for n in range(rows):
            if n % 20_000 == 0:
                gc.collect()  # of the last request, which is a cycle in httpx
            yield f"{name}-{n}", n % 10

    peaks = []
    for name, rows in (("a", 40_000), ("b", 80_000)):
        tracemalloc.start()
        try:
            summary = client.feedback(pairs(name, rows), model="tiny")
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert summary == LabelSummary(held=rows)
    assert peaks[1] < 1.2 * peaks[0], peaks
