"""Models of independent labels: /predict, truths of single labels, and the report on them."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trueodds
from service.app import create_app
from service.labels import label_matrix
from service.models.calls import PredictionCall
from service.report import label_report_route
from service.settings import Settings
from tests.importing.test_multilabel import NAMES, WEIGHTS
from tests.service.app_client import Client
from tests.service.label_bundle import write_labels
from tests.service.test_process import server
from tests.service.tiny_bundle import write_bundle
from trueodds.bundle import BundleError, LabelBundle, open_models
from trueodds.client import CallError
from trueodds.reports.table.multilabel import MultilabelReport

QUESTIONS = [f"tagger-{name}" for name in NAMES]
OFFSETS = np.array([-0.5, 0.0, 0.25])


@pytest.fixture
def bundle(tmp_path: Path) -> LabelBundle:
    return write_labels(tmp_path / "bundle")


@pytest.fixture
def settings(tmp_path: Path, bundle: LabelBundle) -> Settings:
    open_models(tmp_path / "models").publish(bundle.directory)
    return Settings(models=tmp_path / "models", store=tmp_path / "store.sqlite", threads=1)


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with Client(create_app(settings)) as client:
        yield client


def rows(count: int) -> Any:
    return np.random.default_rng(7).normal(0, 2, (count, 2)).astype(np.float32)


def probabilities(x: Any, slope: float = 0.5) -> Any:
    """sigma(slope z + offset), by hand."""
    return 1 / (1 + np.exp(-(slope * (x.astype(np.float64) @ WEIGHTS) + OFFSETS)))


def answered(client: Client, x: Any, **more: Any) -> tuple[list[str], Any]:
    tree = client.send("/predict", {"instances": x.tolist(), **more})
    assert all([a["name"] for a in one["answers"]] == QUESTIONS for one in tree["predictions"])
    return [one["id"] for one in tree["predictions"]], np.array(
        [[a["probability"] for a in one["answers"]] for one in tree["predictions"]]
    )


def test_each_label_has_its_own_probability(client: Client, bundle: LabelBundle) -> None:
    x = rows(40)
    _, p_NL = answered(client, x)
    assert np.allclose(p_NL, probabilities(x), atol=1e-6) and np.ptp(p_NL.sum(axis=1)) > 0.5
    tree = client.send("/predict", {"instances": x[:1].tolist()}, classes="true")
    assert (tree["model"], tree["version"], tree["classes"]) == ("tagger", bundle.version, [*NAMES])
    assert {answer["type"] for answer in tree["predictions"][0]["answers"]} == {"predicate"}
    assert client.read("/health/ready")["model"] == "tagger" and client.read("/models")["problems"] == []


def test_the_live_report_is_the_offline_one(client: Client) -> None:
    """Truths of single labels, some never known, sent in two calls; one is corrected."""
    x, rng = rows(250), np.random.default_rng(3)
    ids, p_NL = answered(client, x)
    truth_NL = (rng.random(p_NL.shape) < p_NL * [1, 1, 0.6]).astype(float)
    truth_NL[rng.random(p_NL.shape) < 0.4] = np.nan
    sent = [
        {"id": ids[row], "question": QUESTIONS[label], "label": bool(truth_NL[row, label])}
        for row, label in np.argwhere(~np.isnan(truth_NL)).tolist()
    ]
    assert client.send("/feedback", {"labels": sent[1:90]})["stored"] == 89
    client.send("/feedback", {"labels": [{**sent[0], "label": not sent[0]["label"]}]})
    client.send("/feedback", {"labels": [{**sent[0], "correct": True}, *sent[90:]]})
    live = client.read("/multi-label-report", model="tagger")
    offline = trueodds.report(p_NL, truth_NL, multilabel=True, classes=NAMES).to_dict()
    assert live["versions"] == dict.fromkeys(QUESTIONS, live["versions"]["tagger-rain"])
    assert [one["name"] for one in live["by_label"]] == [*NAMES]
    same = ("n", "labels", "pairs", "level", "binning", "design_effect")
    assert {key: live[key] for key in same} == pytest.approx({key: offline[key] for key in same})
    for name in ("nll", "brier", "ece", "ece_lower", "ece_upper", "prevalence", "signed_gap"):
        assert live["whole"][name] == pytest.approx(offline["whole"][name], abs=1e-9), name
        for ours, theirs in zip(live["by_label"], offline["by_label"], strict=True):
            assert ours.get(name) == pytest.approx(theirs.get(name), abs=1e-9), name
    assert [one["more_than_chance"] for one in live["by_label"]] == [
        one["more_than_chance"] for one in offline["by_label"]
    ]
    read = MultilabelReport.read(live)
    assert str(read).startswith(f"tagger: {live['n']} rows, 3 labels, {live['pairs']} known truths; intervals at 95%")
    assert read.reading == live["reading"] and read.to_dict()["by_label"] == live["by_label"]
    for label, name in enumerate(QUESTIONS):
        one = client.read("/calibration-report", model=name)
        known_N = ~np.isnan(truth_NL[:, label])
        assert (one["answers"], one["labelled"]) == (250, known_N.sum())
        assert one["positive"]["mean_probability"] == pytest.approx(p_NL[known_N, label].mean(), abs=1e-3)
        assert one["positive"]["nll"] == pytest.approx(live["by_label"][label]["nll"], abs=1e-6)
    page = client.get("/multi-label-report?format=html")
    assert page.text == client.get("/multi-label-report", headers={"accept": "text/html"}).text
    assert client.get("/multi-label-report?format=json", headers={"accept": "text/html"}).json()["n"] == live["n"]
    refused = client.get("/multi-label-report?format=pdf")
    assert refused.status_code == 422 and "format" in refused.json()["error"]["message"]
    assert "default-src 'none'" in page.headers["content-security-policy"] and "<script" not in page.text
    assert page.headers["content-type"].startswith("text/html") and "fog" in page.text
    assert client.read("/multi-label-report")["pairs"] == live["pairs"]


def test_every_label_is_a_question(client: Client, bundle: LabelBundle) -> None:
    """The overview, the metrics and a stored answer know each label by its question."""
    (id_, *_), p_NL = answered(client, rows(3), tags=["north", None, None])
    listed = client.read("/questions")
    assert {one["question"] for one in listed["questions"]} == {*QUESTIONS} and listed["notices"] == []
    text = client.get("/metrics").text
    assert f'trueodds_predictions_total{{model="tagger",version="{bundle.version}"}} 3.0' in text
    assert f'trueodds_answers{{model="tagger-rain",version="{bundle.version}"}} 3.0' in text
    stored = client.read(f"/predictions/{id_}", model="tagger-rain")
    assert stored["tag"] == "north" and stored["probabilities"][1] == pytest.approx(p_NL[0, 0])


def test_an_id_is_answered_once(client: Client, tmp_path: Path) -> None:
    """Also by another version, whose curves differ. Another input is refused."""
    x = rows(2)
    _, first_NL = answered(client, x, ids=["a", "b"])
    second = write_labels(tmp_path / "second", slope=0.8)
    open_models(tmp_path / "models").publish(second.directory)
    client.run(client.app.state.runtime.registry.look())
    tree = client.send("/predict", {"instances": x[[0, 1, 0]].tolist(), "ids": ["a", "b", "c"]})
    assert tree["version"] == second.version
    assert [one.get("repeated", False) for one in tree["predictions"]] == [True, True, False]
    p_NL = np.array([[a["probability"] for a in one["answers"]] for one in tree["predictions"]])
    assert (p_NL[:2] == first_NL).all() and np.allclose(p_NL[2], probabilities(x[:1], 0.8), atol=1e-6)
    refused = client.refusal("/predict", {"instances": x[:1].tolist(), "ids": ["b"]}, 409)
    assert "the id 'b' was used for another input" in refused
    assert client.read("/calibration-report", model="tagger-fog")["answers"] == 1


def test_an_id_never_has_labels_of_two_inputs(tmp_path: Path) -> None:
    """A new version has one label more. A refused input leaves no answer to that label, so the first input is kept."""
    models, x = open_models(tmp_path / "models"), rows(3)
    models.publish(write_labels(tmp_path / "two", names=NAMES[:2]).directory)
    settings = Settings(models=tmp_path / "models", store=tmp_path / "store.sqlite", threads=1)
    with Client(create_app(settings)) as client:
        first = client.send("/predict", {"instances": x[:1].tolist(), "ids": ["a"]})["predictions"][0]
        models.publish(write_labels(tmp_path / "three").directory)
        client.run(client.app.state.runtime.registry.look())
        refused = {"instances": x[1:].tolist(), "ids": ["a", "new"]}
        assert "the id 'a' was used for another input" in client.refusal("/predict", refused, 409)
        assert client.get("/predictions/a", params={"model": "tagger-fog"}).status_code == 404
        assert client.get("/predictions/new", params={"model": "tagger-fog"}).status_code == 404
        again = client.send("/predict", {"instances": x[:1].tolist(), "ids": ["a"]})["predictions"][0]
        gave = [answer.pop("version") for answer in again["answers"]]
        assert again["answers"][:2] == first["answers"] and again["repeated"]
        assert gave[:2] == [again["version"]] * 2 and gave[2] != again["version"]
        for name, version in zip(NAMES, gave, strict=True):  # each answer counts for the version that it names
            assert client.read("/calibration-report", model=f"tagger-{name}", version=version)["answers"] == 1
        once_more = client.send("/predict", {"instances": x[:1].tolist(), "ids": ["a"]})["predictions"][0]
        assert [answer.pop("version") for answer in once_more["answers"]] == gave
        assert again["answers"][2]["probability"] == pytest.approx(probabilities(x[:1])[0, 2], abs=1e-6)


def test_a_refused_call_refuses_no_other_of_its_batch(client: Client) -> None:
    """Calls that are scored together: only the one with a used id is refused."""
    x, label_engine = rows(3), client.app.state.runtime.registry.default
    answered(client, x[:1], ids=["a"])
    calls = [PredictionCall(x[[row]], f"call-{id_}{row}", [id_]) for row, id_ in ((1, "a"), (2, "b"), (0, "a"))]
    outcomes = client.run(label_engine._store_and_answer(label_engine._score(calls, alone=False)))
    assert [type(one).__name__ for one in outcomes] == ["ServiceError", "LabelResult", "LabelResult"]
    assert client.read("/calibration-report", model="tagger-rain")["answers"] == 2


def test_a_logit_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    """The logarithm of a sigmoid may be -inf for one label, with finite ones beside it."""
    models = open_models(tmp_path / "models")
    models.publish(write_labels(tmp_path / "log", log=True).directory)
    with Client(create_app(Settings(models=models.path, store=tmp_path / "store.sqlite", threads=1))) as client:
        words = client.refusal("/predict", {"instances": [[0, 0], [300, 300]]})
        assert words.startswith("row 1: the model's logits are not finite (-inf)")
        assert len(client.predict([[0, 0]])) == 1


def test_a_truth_of_an_unknown_question_names_the_questions(client: Client) -> None:
    """The id is right; the question lacks the name of the model."""
    (one, *_), *_ = answered(client, rows(1))
    words = client.refusal("/feedback", {"id": one, "question": "snow", "label": True}, 404)
    assert words.startswith("unknown model 'snow'; known are tagger-fog, tagger-rain, tagger-snow.")


def test_truths_may_come_first(client: Client) -> None:
    early = {"id": "later", "question": "tagger-snow", "label": True}
    assert client.send("/feedback", early)["held"] == 1
    answered(client, rows(1), ids=["later"])
    assert client.read("/multi-label-report", model="tagger")["pairs"] == 1


@pytest.mark.parametrize(
    ("name", "value"), [("set", "0.9"), ("top_k", "2"), ("abstain_below", "0.5"), ("logits", "true")]
)
def test_options_of_classes_are_refused(client: Client, name: str, value: str) -> None:
    words = client.refusal("/predict", {"instances": [[0, 0]]}, 422, **{name: value})
    assert words == f"{name} is of exclusive classes, and tagger has independent labels; leave it out"


@pytest.mark.parametrize(
    "path",
    ["/calibration-report", "/calibration-report?model=tagger"],
)
def test_doors_of_classes_refuse_the_model(client: Client, path: str) -> None:
    answered(client, rows(1))
    words = client.read(path, 422)
    text = words["error"]["message"] if isinstance(words["error"], dict) else words["error"]
    assert "tagger has independent labels" in text and "tagger-rain" in text
    assert client.refusal("/feedback", {"id": "x" * 8, "model": "tagger", "label": "rain"}, 404)
    infer = {"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 2], "data": [0, 0]}]}
    assert "tagger has independent labels" in client.send("/v2/models/tagger/infer", infer, status=422)["error"]


def test_the_metadata_name_input_and_labels(client: Client) -> None:
    found = client.read("/v2/models/tagger")
    assert found["inputs"][0]["parameters"]["features"] == ["heat", "damp"]
    (output,) = found["outputs"]
    assert (output["shape"], output["parameters"]) == ([-1, 3], {"classes": [*NAMES], "multilabel": True})
    assert client.read("/v2/models/tagger/ready")["ready"]


def test_doors_of_people_work_for_the_model(client: Client) -> None:
    """The documentation has examples that are answered, and a browser comes to the labels."""
    paths = client.read("/openapi.json")["paths"]

    def examples(path: str) -> dict[str, Any]:
        content: dict[str, Any] = paths[path]["post"]["requestBody"]["content"]["application/json"]["examples"]
        return content

    for example in examples("/predict").values():
        assert len(client.send("/predict", example["value"])["predictions"][0]["answers"]) == 3
    assert client.send("/feedback", examples("/feedback")["one label"]["value"])["held"] == 1
    assert client.get("/", headers={"accept": "text/html"}).headers["location"] == "/questions"
    assert client.get("/questions", headers={"accept": "text/html"}).status_code == 200


def test_a_report_without_truths_says_so(client: Client) -> None:
    assert "is missing" not in client.read("/multi-label-report", 404)["error"]["message"]
    answered(client, rows(1))
    assert "no answer of tagger has a truth yet" in client.read("/multi-label-report", 404)["error"]["message"]
    assert "no answers to yes/no questions" in client.read("/multi-label-report", 404, model="cat")["error"]["message"]


def test_the_limit_of_truths_is_that_of_all_labels(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, _ = answered(client, rows(3))
    truths = [{"id": id_, "question": question, "label": True} for id_ in ids for question in QUESTIONS[:2]]
    client.send("/feedback", {"labels": truths})
    monkeypatch.setattr(label_report_route, "MOST_TRUTHS", 6)
    assert client.read("/multi-label-report")["pairs"] == 6
    monkeypatch.setattr(label_report_route, "MOST_TRUTHS", 5)
    words = client.read("/multi-label-report", 422)["error"]["message"]
    assert words == "the labels up to tagger-snow have more than 5 truths; give a later start: since"


def test_a_shadow_is_refused(client: Client, tmp_path: Path) -> None:
    """It would never be scored. A role file that somebody wrote is a problem of the models, and answers go on."""
    models, second = open_models(tmp_path / "models"), write_labels(tmp_path / "second", slope=0.8)
    with pytest.raises(BundleError, match="holds a model of independent labels, which has no shadow"):
        models.publish(second.directory, "shadow")
    models.publish(second.directory, None)
    with pytest.raises(BundleError, match="which has no shadow"):
        models.shadow("tagger", second.version)
    (tmp_path / "models" / "tagger" / "shadow").write_text(f"{second.version}\n")
    client.run(client.app.state.runtime.registry.look())
    assert any("no shadows" in problem for problem in client.read("/models")["problems"])
    answered(client, rows(2))


def test_a_label_with_the_name_of_a_model_is_refused(tmp_path: Path) -> None:
    models = open_models(tmp_path / "models")
    models.publish(write_bundle(tmp_path / "a", name="tagger-rain"))
    settings = Settings(models=tmp_path / "models", store=tmp_path / "store.sqlite", threads=1)
    with Client(create_app(settings)) as client:
        models.publish(write_labels(tmp_path / "b").directory)
        client.run(client.app.state.runtime.registry.look())
        (problem,) = client.read("/models")["problems"]
        assert "tagger-rain is the name of a model, and tagger has the label question" in problem


@pytest.mark.parametrize("answers_first", [False, True])
def test_two_models_never_share_a_question(tmp_path: Path, *, answers_first: bool) -> None:
    """The label c of the model a-b, and the label b-c of the model a. Neither's answers are counted as the other's."""
    models = open_models(tmp_path / "models")
    models.publish(write_labels(tmp_path / "a", name="a-b", names=("c", "d", "e")).directory)
    settings = Settings(models=tmp_path / "models", store=tmp_path / "store.sqlite", threads=1)
    with Client(create_app(settings)) as client:
        if answers_first:
            client.send("/predict", {"instances": rows(1).tolist()})
        models.publish(write_labels(tmp_path / "b", name="a", names=("b-c", "d", "e")).directory)
        models.publish(write_bundle(tmp_path / "c", name="a-b-d"))
        client.run(client.app.state.runtime.registry.look())
        problems = client.read("/models")["problems"]
        assert len(problems) == 2
        assert any("a-b-c is the name of a label of a-b, and a has the label question a-b-c" in p for p in problems)
        assert any("a-b-d is the name of a label of a-b, and a-b-d has this name" in p for p in problems)
        assert client.send("/predict", {"instances": rows(1).tolist()})["model"] == "a-b"
    if answers_first:  # the store remembers whose question it is, whichever model is loaded first
        models.set_default("a")
        with Client(create_app(settings)) as client:
            assert any("a-b-c is the name of a label of a-b" in p for p in client.read("/models")["problems"])


def test_a_name_may_change_to_exclusive_classes(client: Client, tmp_path: Path) -> None:
    """Its report is then that of the classes, and the labels keep theirs. It may change back."""
    models = open_models(tmp_path / "models")
    answered(client, rows(2))
    models.publish(write_bundle(tmp_path / "classes", name="tagger"))
    client.run(client.app.state.runtime.registry.look())
    version = client.read("/models")["default"]["version"]
    for address in ("/calibration-report", "/calibration-report?model=tagger"):
        assert client.read(address)["version"] == version
    assert client.read("/calibration-report", model="tagger-rain")["answers"] == 2
    models.publish(write_labels(tmp_path / "again", slope=0.7).directory)
    client.run(client.app.state.runtime.registry.look())
    assert "independent labels" in client.read("/calibration-report", 422, model="tagger")["error"]["message"]
    assert client.read("/calibration-report", model="tagger", version=version)["version"] == version


def test_a_model_without_answers_is_refused_too(client: Client) -> None:
    assert "independent labels" in client.read("/calibration-report", 422)["error"]["message"]


def test_the_report_of_a_label_is_of_the_served_version(client: Client, bundle: LabelBundle, tmp_path: Path) -> None:
    """After a rollback, both reports are about the version that answers."""
    models, second = open_models(tmp_path / "models"), write_labels(tmp_path / "second", slope=0.8)
    for change in ("", "publish", "roll back"):
        if change == "publish":
            models.publish(second.directory)
        elif change:
            models.roll_back("tagger")
        client.run(client.app.state.runtime.registry.look())
        ids, _ = answered(client, rows(2))
        client.send("/feedback", {"id": ids[0], "question": "tagger-rain", "label": True})
    one, of_all = client.read("/calibration-report", model="tagger-rain"), client.read("/multi-label-report")
    assert (one["version"], one["answers"]) == (bundle.version, 4)
    assert of_all["versions"]["tagger-rain"] == bundle.version


def test_questions_of_another_server_have_the_same_report(client: Client) -> None:
    """A model on another server that answers the same questions, through /observe/decisions."""
    x, rng = rows(60), np.random.default_rng(5)
    p_NL = probabilities(x).round(6)
    truth_NL = (rng.random(p_NL.shape) < p_NL).astype(float)
    asked = [{"type": "predicate", "name": name, "instructions": name} for name in NAMES]
    pairs = [
        {
            "id": f"row-{n}",
            "request": {"model": "other", "input": str(n), "questions": asked},
            "response": {
                "model": "other-1",
                "answers": [
                    {"type": "predicate", "name": k, "probability": p} for k, p in zip(NAMES, p_L, strict=True)
                ],
            },
        }
        for n, p_L in enumerate(p_NL.tolist())
    ]
    assert client.send("/observe/decisions", {"decisions": pairs})["stored"] == 180
    truths = [
        {"id": f"row-{n}", "question": name, "label": bool(truth_NL[n, k])}
        for n in range(60)
        for k, name in enumerate(NAMES)
    ]
    client.send("/feedback", {"labels": truths})
    live = client.read("/multi-label-report", model="other-1")
    offline = trueodds.report(p_NL, truth_NL, multilabel=True, classes=NAMES)
    assert (live["n"], live["pairs"]) == (60, 180)
    assert live["whole"]["nll"] == pytest.approx(offline.whole.nll, abs=1e-6)
    assert live["whole"]["brier"] == pytest.approx(offline.whole.brier, abs=1e-6)


@pytest.mark.full
def test_the_python_client(settings: Settings, tmp_path: Path) -> None:
    """Over a real server: labels, several requests, truths, and the doors that refuse."""
    x = rows(30)
    with server(tmp_path) as (http, _), trueodds.Client(str(http.base_url).rstrip("/")) as client:
        answer = client.predict_labels(x, rows=8)
        assert answer.labels == NAMES and answer.questions == tuple(QUESTIONS) and len(answer) == 30
        assert np.allclose(answer.probabilities_NL, probabilities(x), atol=1e-6)
        assert client.feedback(answer.ids[:3], [True, False, True], question=answer.questions[1]).stored == 3
        with pytest.warns(UserWarning, match="'Damp' was read as the feature 'damp'"):
            assert client.predict_labels([{"heat": 1.0, "Damp": 2.0}]).columns == {"damp": "Damp"}
        again = client.predict_labels(x[:2], ids=["a", "b"])
        assert client.predict_labels(x[:2], ids=["a", "b"]).repeated == {0: again.version, 1: again.version}
        with pytest.raises(CallError, match=r"call client\.predict_labels"):
            client.predict(x[:1])
        with pytest.raises(CallError, match="tagger has independent labels"):
            client.report()


def test_the_last_answers_keep_all_their_labels(client: Client, bundle: LabelBundle) -> None:
    """The last answers are those whose first labels came last, whenever other labels come."""
    ids, _ = answered(client, rows(4))
    for question, (first, second) in ((0, (0, 1)), (0, (2, 3)), (1, (2, 3)), (1, (0, 1))):
        time.sleep(0.003)
        labels = [{"id": ids[row], "question": QUESTIONS[question], "label": True} for row in (first, second)]
        client.send("/feedback", {"labels": labels})
    for last, known in ((2, [[1, 1, -1]] * 2), (3, [[1, 1, -1]] * 3), (9, [[1, 1, -1]] * 4)):
        file = client.get("/admin/labelled.npz", params={"model": "tagger", "last": last}).content
        assert np.load(io.BytesIO(file))["val_labels"].tolist() == known


def test_a_file_of_too_many_cells_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few labels of many answers fill a large matrix."""
    ids, _ = answered(client, rows(4))
    client.send("/feedback", {"labels": [{"id": id_, "question": QUESTIONS[0], "label": True} for id_ in ids]})
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 11)
    answer = client.get("/admin/labelled.npz", params={"model": "tagger"})
    assert answer.status_code == 422 and "more than 11 pairs of an answer and a label" in answer.text
    assert client.get("/admin/labelled.npz", params={"model": "tagger", "last": 3}).status_code == 200
