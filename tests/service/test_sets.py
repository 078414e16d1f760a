"""Conformal sets in the service: the answers, the live coverage in the report, and the alarm."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from service.alarm import COVERAGE
from service.alarm.coverage import CoverageState
from service.alarm.coverage_readings import set_coverage
from service.alarm.evidence import Firing
from service.app import create_app
from service.models.set_answers import SetAnswers
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.conftest import Serve
from tests.service.hooks import Hook, until
from tests.service.tiny_bundle import CLASSES, pictures, write_bundle
from trueodds.bundle import Bundle, open_models
from trueodds.calibrators.conformal import LiveSets, SetRule, SetSettings
from trueodds.calibrators.conformal.live_sets import WeightedCounts
from trueodds.client.responses import Predictions
from trueodds.reports.verdict.set_coverage import weighted_interval

APS = SetSettings.of("aps", {"levels": [0.9, 0.6]})
LAC = SetSettings.of("lac", {"levels": [0.9]})


def ask(client: Client, count: int, level: float = 0.9, seed: int = 5, **body: Any) -> dict[str, Any]:
    instances = pictures(count, seed=seed)
    answer = client.post(f"/predict?set={level}", json={"instances": instances, **body})
    assert answer.status_code == 200, answer.text
    tree: dict[str, Any] = answer.json()
    return tree


def label(client: Client, answered: list[dict[str, Any]], labels: list[str]) -> None:
    ids = [one["id"] for one in answered]
    client.label([{"id": id_, "label": name} for id_, name in zip(ids, labels, strict=True)])


def part(client: Client, labels: int) -> dict[str, Any]:
    """The report's part about sets, once it has all labels."""

    def read() -> Any:
        sets = client.report()["sets"]
        return sets if sets["levels"][0]["labels"] + sets["left_out"] == labels else None

    until(lambda: read() is not None)
    found: dict[str, Any] = read()
    return found


def test_predict_returns_the_sets_of_the_bundle(serve: Serve, tmp_path: Any) -> None:
    client = serve(sets=APS)
    tree = ask(client, 30)
    bundle = Bundle.load(tmp_path / "served-0" / "bundle")
    assert bundle.conformal is not None
    for level in (0.9, 0.6, 0.75):  # the last is not on the card, so its threshold follows from the scores
        tree = ask(client, 30, level)
        rule = bundle.conformal.at(level)
        p_NC = np.array([one["probabilities"] for one in tree["predictions"]])
        inside_NC = rule.sets(p_NC, [one["id"] for one in tree["predictions"]])
        for one, inside_C, p_C in zip(tree["predictions"], inside_NC, p_NC, strict=True):
            order = np.argsort(-p_C, kind="stable")
            assert one["set"] == [CLASSES[k] for k in order if inside_C[k]]
        about = tree["sets"]
        assert (about["level"], about["method"], about["calibration_rows"]) == (level, "aps", 400)
        assert about["floor"] == min(rule.floors) < level and about["test_coverage"] is None
        assert "not for one class" in about["reading"]
    assert "sets" not in client.post("/predict", json={"instances": pictures(1)}).json()


@pytest.mark.parametrize(
    ("rule", "coverage", "words"),
    [
        (
            SetRule(method="lac", level=0.9, thresholds=(0.8,), ranks=(361,), rows=(400,)),
            0.9125,
            "with probability 0.9, for inputs like the 400 calibration rows. 91.25% of the test rows were covered. The",
        ),
        (
            SetRule(method="aps", level=0.95, thresholds=(None,), ranks=(13,), rows=(12,)),
            None,
            "12 calibration rows are too few for this level, which needs 19, so every class is in the set. The",
        ),
        (
            SetRule(method="class", level=0.9, thresholds=(0.8, None), ranks=(28, 6), rows=(30, 5)),
            None,
            "1 class with too few calibration rows is in every set: 9 rows of a class are needed. The level",
        ),
        (
            SetRule(method="class", level=0.9, thresholds=(None, None), ranks=(4, 6), rows=(3, 5)),
            None,
            "2 classes with too few calibration rows are in every set: 9 rows of a class are needed. The level",
        ),
    ],
)
def test_the_promise_in_words(rule: SetRule, coverage: float | None, words: str) -> None:
    said = SetAnswers(rule, [], coverage).reading
    assert words in said and said.endswith("not for one class, one kind of input or one set size."), said


def test_the_client_reads_the_sets(serve: Serve) -> None:
    tree = ask(serve(sets=APS), 12)
    read = Predictions.read([{**tree, "classes": list(CLASSES)}])
    assert read.sets == tuple(tuple(one["set"]) for one in tree["predictions"])
    plain = serve(sets=APS).post("/predict?classes=true", json={"instances": pictures(2)}).json()
    assert Predictions.read([plain]).sets is None


def test_the_open_inference_protocol_has_the_same_sets(serve: Serve) -> None:
    client, ids = serve(sets=APS), [f"mine-{n}" for n in range(12)]
    expected = ask(client, 12, ids=ids)["predictions"]
    images_NHWC = np.asarray(pictures(12, seed=5), np.uint8)
    outputs = [{"name": "set"}, {"name": "probabilities", "parameters": {"classification": 1}}]
    for n, one in enumerate(expected):
        row_NHWC = images_NHWC[n : n + 1]
        tensor = {
            "name": "images",
            "shape": list(row_NHWC.shape),
            "datatype": "UINT8",
            "data": row_NHWC.ravel().tolist(),
        }
        body = {"inputs": [tensor], "parameters": {"prediction_id": one["id"], "set": 0.9}, "outputs": outputs}
        tree = client.send("/v2/models/tiny/infer", body)
        inside = tree["outputs"][0]
        assert (inside["datatype"], inside["shape"]) == ("BOOL", [1, 4]) and "parameters" not in tree
        assert {CLASSES[k] for k in np.flatnonzero(inside["data"])} == set(one["set"])
    plain = {"inputs": [tensor], "parameters": {"set": 0.6}}
    assert [one["name"] for one in client.send("/v2/models/tiny/infer", plain)["outputs"]][-1] == "set"
    described = client.get("/v2/models/tiny").json()["outputs"]
    assert {"name": "set", "datatype": "BOOL", "shape": [-1, 4]} in described
    for wrong, words in [({"set": 1}, "parameters.set is 1"), ({"set": True}, "is True"), ({}, "needs the level")]:
        answer = client.post("/v2/models/tiny/infer", json={**plain, "parameters": wrong, "outputs": outputs})
        assert answer.status_code == 422 and words in answer.json()["error"]


def test_the_open_inference_protocol_names_a_version_without_sets(client: Client) -> None:
    images_NHWC = np.asarray(pictures(1), np.uint8)
    tensor = {
        "name": "images",
        "shape": list(images_NHWC.shape),
        "datatype": "UINT8",
        "data": images_NHWC.ravel().tolist(),
    }
    answer = client.post("/v2/models/tiny/infer", json={"inputs": [tensor], "parameters": {"set": 0.9}})
    assert answer.status_code == 422 and "has no conformal sets" in answer.json()["error"]
    assert client.report()["answers"] == 0


def test_the_same_request_gets_the_same_set(serve: Serve) -> None:
    client = serve(sets=APS)
    ids = [f"mine-{n}" for n in range(20)]
    first, again = (ask(client, 20, 0.6, ids=ids)["predictions"] for _ in range(2))
    assert [one["set"] for one in first] == [one["set"] for one in again]
    assert all(one["repeated"] for one in again)


@pytest.mark.parametrize(
    ("level", "words"), [("1", "set = '1'"), ("0", "set = '0'"), ("x", "set = 'x': expected a number, such as 0.9")]
)
def test_levels_that_are_refused(serve: Serve, level: str, words: str) -> None:
    answer = serve(sets=LAC).post(f"/predict?set={level}", json={"instances": pictures(1)})
    assert answer.status_code == 422 and words in answer.json()["error"]["message"]


def test_a_version_without_sets_says_how_to_get_them(client: Client) -> None:
    answer = client.post("/predict?set=0.9", json={"instances": pictures(1)})
    assert answer.status_code == 422 and answer.json()["error"]["code"] == "no_sets"
    assert "trueodds import --conformal lac" in answer.json()["error"]["message"]
    assert client.report()["answers"] == 0, "a refused call stores nothing"
    assert client.report()["sets"] is None


def test_a_repeated_answer_of_another_version(settings: Settings, tmp_path: Any) -> None:
    models = open_models(settings.models)
    with Client(create_app(settings)) as client:
        client.post("/predict", json={"instances": pictures(1), "ids": ["old"]})
    models.publish(write_bundle(tmp_path / "with", sets=LAC))
    with Client(create_app(settings)) as client:
        tree = ask(client, 2, ids=["old", "new"])
        assert tree["predictions"][0]["set"] is None and tree["predictions"][1]["set"] is not None


def test_the_report_counts_coverage_by_size_class_and_tag(serve: Serve) -> None:
    client = serve(sets=APS)
    tags = ["a" if n % 3 else "b" for n in range(120)]
    answered = ask(client, 120, tags=tags)["predictions"]
    labels = [CLASSES[n % len(CLASSES)] for n in range(120)]
    label(client, answered, labels)
    found = part(client, 120)
    one = found["levels"][0]
    hits = [name in answer["set"] for name, answer in zip(labels, answered, strict=True)]
    sizes = [len(answer["set"]) for answer in answered]
    assert (one["labels"], one["hits"]) == (120, sum(hits)) and one["coverage"] == pytest.approx(np.mean(hits))
    assert one["lower"] < one["coverage"] < one["upper"] and one["how"] == "plain"
    assert one["mean_size"] == pytest.approx(np.mean(sizes))
    for key, names in (("sizes", map(str, sizes)), ("classes", labels), ("tags", tags)):
        named = list(names)
        expected = {name: sum(h for h, own in zip(hits, named, strict=True) if own == name) for name in set(named)}
        assert {group["name"]: group["hits"] for group in one[key]} == expected
        assert sum(group["labels"] for group in one[key]) == 120
    page = client.get("/calibration-report?format=html").text
    assert "Do the sets hold the true class?" in page and "By number of classes in the set" in page


def test_the_alarm_fires_and_calls(serve: Serve, hook: Hook) -> None:
    client = serve({"alarm_webhook": hook.url}, sets=LAC)
    answered = ask(client, 200)["predictions"]
    outside = [next((n for n in CLASSES if n not in one["set"]), one["label"]) for one in answered]
    label(client, answered, outside)
    one = part(client, 200)["levels"][0]
    assert one["alarm"]["state"] == "fired" and one["alarm"]["fired_after"] <= 200
    assert one["alarm"]["log_e"] > np.log(20) and "ALARM" in one["reading"]
    until(lambda: any(body["type"] == "sets-do-not-cover" for body in [call.body for call in hook.calls]))
    told = next(body for body in [call.body for call in hook.calls] if body["type"] == "sets-do-not-cover")
    assert told["level"] == 0.9 and told["floor"] == one["floor"] and told["coverage"] == one["coverage"]
    assert "Sets do not cover" in client.get("/calibration-report?format=html").text or (
        client.report()["alarm"]["state"] == "fired"
    )


def test_voided_labels_leave_no_trace(serve: Serve) -> None:
    client = serve(sets=LAC)
    answered = ask(client, 40)["predictions"]
    label(client, answered[:20], [one["label"] for one in answered[:20]])
    before = part(client, 20)
    rows = [{"id": one["id"], "label": CLASSES[0]} for one in answered[20:]]
    imported = client.post("/feedback", json={"labels": rows}).json()["import_id"]
    part(client, 40)
    body = {"import_id": imported, "who": "Ada", "why": "wrong file"}
    assert client.post("/admin/labels/void", json=body).status_code == 200
    assert part(client, 20) == before


def test_labels_with_different_chances_are_weighted_or_refused(serve: Serve) -> None:
    client = serve(sets=LAC)
    chances = [0.2 if n % 2 else 1.0 for n in range(100)]
    answered = ask(client, 100, propensities=chances)["predictions"]
    label(client, answered, [CLASSES[n % 3] for n in range(100)])
    one = part(client, 100)["levels"][0]
    hits = np.array([CLASSES[n % 3] in a["set"] for n, a in enumerate(answered)])
    weights = 1 / np.array(chances)
    assert one["how"] == "propensity" and one["coverage"] == pytest.approx((hits * weights).sum() / weights.sum())
    assert one["alarm"]["state"] == "refused" and one["alarm"]["labels"] == 1
    more = ask(client, 10, seed=6)["predictions"]
    label(client, more, [a["label"] for a in more])
    refused = part(client, 110)["levels"][0]
    assert refused["how"] == "refused" and refused["coverage"] is None and refused["hits"] > 0
    assert "label a random sample" in refused["reading"]


def test_labels_chosen_by_confidence_have_no_coverage_at_any_door(serve: Serve) -> None:
    client = serve(sets=LAC)
    answered = sorted(ask(client, 200)["predictions"], key=lambda one: -float(one["confidence"]))[:100]
    label(client, answered, [one["label"] for one in answered])
    one = part(client, 100)["levels"][0]
    assert one["how"] == "refused" and "chosen by confidence" in one["reading"]
    shown = [line for line in client.get("/metrics").text.splitlines() if line.startswith("trueodds_sets_coverage{")]
    assert len(shown) == 1 and shown[0].endswith(" NaN")
    for part_of_all in ({"last": 50}, {"class": CLASSES[0]}):
        (found,) = client.report(model="tiny", **part_of_all)["sets"]["levels"]
        assert (found["how"], found["coverage"], found["labels"]) == ("refused", None, 100)


@pytest.mark.parametrize("chances", [(1.0, 0.1), (0.1, 1.0)])
def test_the_weighted_interval_covers(chances: tuple[float, float]) -> None:
    """Labels are chosen by a group that is missed more often than the others."""
    rng, misses, found = np.random.default_rng(0), (0.3, 0.05), 0
    for _ in range(400):
        group_N = (rng.random(800) >= 0.3).astype(int)
        propensity_N = np.array(chances)[group_N]
        labelled_N = rng.random(800) < propensity_N
        hit_N = rng.random(800) >= np.array(misses)[group_N]
        counts = WeightedCounts().take(1 / propensity_N[labelled_N], hit_N[labelled_N])
        _, lower, upper = weighted_interval(counts)
        found += lower <= 1 - (0.3 * 0.3 + 0.7 * 0.05) <= upper
    assert found >= 370


def test_an_alarm_on_labels_chosen_by_confidence_says_so(settings: Settings) -> None:
    rules = (SetRule(method="lac", level=0.9, thresholds=(0.8,), ranks=(900,), rows=(999,)),)
    state = CoverageState.start(rules, settings)
    one = state.evidence[0].model_copy(
        update={
            "live": LiveSets().take([False] * 30, [1] * 30, [0] * 30, [None] * 30),
            "fired": Firing(at_ms=0, after=9, log_e=4.0, by="e-process"),
        }
    )
    state = state.model_copy(update={"taken": 30, "evidence": (one,)})
    plain, chosen = (set_coverage(state, CLASSES, is_chosen=is_chosen).levels[0].reading for is_chosen in (False, True))
    assert "Do not rely on the sets" in plain
    assert "Do not rely" not in chosen and "the choice alone can cause it" in chosen


def test_damaged_evidence_is_named(settings: Settings, tmp_path: Any) -> None:
    open_models(settings.models).publish(write_bundle(tmp_path / "with", sets=LAC))
    with Client(create_app(settings)) as client:
        answered = ask(client, 5)["predictions"]
        label(client, answered, [one["label"] for one in answered])
        part(client, 5)
        store = client.app.state.runtime.store
        key = client.report()["model"], client.report()["version"]
        tree = client.run(store.read_state(*key, COVERAGE))
        broken = json.loads(json.dumps(tree)) | {"taken": -1}
        client.run(store.update_state(*key, COVERAGE, lambda *_: broken))
        report = client.report()
    assert report["sets"] is None
    assert any("coverage of the sets cannot be judged" in caution for caution in report["cautions"])
