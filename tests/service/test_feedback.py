"""/feedback: every rule of labels, and that the sums are always those of the labels that count."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest

from service.errors import STATUSES, RefusalCode
from tests.service.app_client import Client
from tests.service.tiny_bundle import CLASSES, pictures
from trueodds import metrics
from trueodds.metrics import CalibrationSums
from trueodds.sums.answers import AnswerSums


def sums_of(client: Client) -> CalibrationSums:
    runtime = client.app.state.runtime
    version = runtime.registry.default.version
    sums: AnswerSums = client.run(runtime.store.read_sums(version.model, version.version))
    return sums.labelled


def from_scratch(predictions: list[dict[str, Any]], labels: dict[str, int]) -> CalibrationSums:
    rows = [(p["probabilities"], labels[p["id"]]) for p in predictions if p["id"] in labels]
    return CalibrationSums.from_probabilities(np.array([p for p, _ in rows]), np.array([y for _, y in rows]))


def assert_equal(actual: CalibrationSums, expected: CalibrationSums) -> None:
    assert (actual.cells[[0, 2]] == expected.cells[[0, 2]]).all()
    np.testing.assert_allclose(actual.cells, expected.cells, rtol=1e-12, atol=1e-12)
    assert (actual.cells[:, expected.cells[0] == 0] == 0).all()


def test_names_and_indices(client: Client) -> None:
    ids = [p["id"] for p in client.predict(pictures(3))]
    stored = client.post("/feedback", json={"id": ids[0], "label": "3"})
    counts = {"stored": 1, "already_known": 0, "corrected": 0, "held": 0}
    assert stored.json() == {**counts, "import_id": stored.headers["x-import-id"]}
    assert client.label([{"id": ids[0], "index": 2}])["already_known"] == 1  # the class named "3" has index 2
    assert client.label([{"id": ids[1], "index": 3}])["stored"] == 1
    assert client.label([{"id": ids[1], "label": "hare"}])["already_known"] == 1
    assert client.label([{"id": ids[0], "label": 3}])["already_known"] == 1, "a whole number is a name, too"


def test_live_ece_is_the_ece_of_the_answers(client: Client) -> None:
    predictions = client.predict(pictures(200))
    labels = {p["id"]: int(k) for p, k in zip(predictions, np.random.default_rng(0).integers(0, 4, 200), strict=True)}
    rows = [{"id": i, "index": y} for i, y in labels.items()]
    for start in range(0, 200, 30):
        client.label(rows[start : start + 30])
    report, expected = client.report(), from_scratch(predictions, labels)
    assert_equal(sums_of(client), expected)
    for name in ("ece", "mce", "nll", "brier", "accuracy", "mean_confidence", "signed_gap"):
        assert report[name] == pytest.approx(getattr(metrics, name)(expected), abs=1e-9)
    assert (report["answers"], report["labelled"], report["coverage"]) == (200, 200, 1.0)


def test_corrections_move_the_sums_to_those_built_from_scratch(client: Client) -> None:
    rng, predictions = np.random.default_rng(1), client.predict(pictures(60))
    labels: dict[str, int] = {}
    for _ in range(6):
        chosen = rng.choice(60, 25, replace=False)
        rows = {predictions[int(k)]["id"]: int(rng.integers(0, 4)) for k in chosen}
        counts = client.label([{"id": i, "index": y, "correct": True} for i, y in rows.items()])
        assert counts == {
            "stored": len(rows.keys() - labels.keys()),
            "already_known": sum(labels.get(i) == y for i, y in rows.items()),
            "corrected": sum(i in labels and labels[i] != y for i, y in rows.items()),
            "held": 0,
        }
        labels |= rows
        assert_equal(sums_of(client), from_scratch(predictions, labels))


def test_repeating_changes_nothing(client: Client) -> None:
    id_ = client.predict(pictures(1))[0]["id"]
    for row in ({"id": id_, "label": "cat"}, {"id": id_, "label": "dog", "correct": True}):
        client.label([row])
        before = sums_of(client)
        assert client.label([row, row]) == {"stored": 0, "already_known": 2, "corrected": 0, "held": 0}
        assert sums_of(client) == before


def test_conflict_needs_correct(client: Client) -> None:
    id_ = client.predict(pictures(1))[0]["id"]
    client.label([{"id": id_, "label": "cat"}])
    before = sums_of(client)
    answer = client.post("/feedback", json={"id": id_, "label": "dog"})
    assert answer.status_code == 409
    assert "'cat'" in answer.text
    assert '\\"correct\\": true' in answer.text
    assert sums_of(client) == before
    top_level = client.post("/feedback", json={"labels": [{"id": id_, "label": "dog"}], "correct": True})
    assert top_level.json()["corrected"] == 1
    row_wins = client.post("/feedback", json={"labels": [{"id": id_, "index": 0, "correct": False}], "correct": True})
    assert row_wins.status_code == 409


def test_duplicates_in_one_batch(client: Client) -> None:
    id_ = client.predict(pictures(1))[0]["id"]
    conflict = [{"id": id_, "label": "cat", "correct": True}, {"id": id_, "label": "dog", "correct": True}]
    answer = client.post("/feedback", json={"labels": conflict})
    assert answer.status_code == 409
    assert "one label per id" in answer.text
    same = client.label([{"id": id_, "label": "cat"}, {"id": id_, "index": 0}])
    assert same == {"stored": 1, "already_known": 1, "corrected": 0, "held": 0}
    assert client.post("/feedback", json={"labels": [{"id": id_, "index": 0}, *conflict[1:]]}).status_code == 409


def test_a_batch_is_all_or_nothing(client: Client) -> None:
    ids = [p["id"] for p in client.predict(pictures(3))]
    rows = [
        {"id": ids[0], "label": "cat"},
        {"id": ids[1], "label": "ct"},
        *({"id": f"no-{k}", "index": 0} for k in range(30)),
    ]
    answer = client.post("/feedback", json={"labels": rows})
    error = answer.json()["error"]
    assert answer.status_code == 422
    assert error["message"].endswith("this is row 1, counted from 0). Nothing was stored.")
    assert (error["problem_count"], len(error["problems"])) == (31, 20)
    assert error["problems"][0]["row"] == 1
    assert error["problems"][1] | {"message": ""} == {"row": 2, "id": "no-0", "code": "unknown_id", "message": ""}
    assert client.report()["labelled"] == 0
    assert client.post("/feedback", json={"labels": rows[2:]}).status_code == 404
    assert client.post("/feedback", json={"labels": [{"id": 3, "index": 1}] * 25}).status_code == 422
    counts = dict(re.findall(r'trueodds_labels_total{outcome="(\w+)"} (\d+)', client.get("/metrics").text))
    assert counts == {"unmatched": "60", "unknown_class": "1", "invalid_row": "25"}, (
        "all, not only those that are listed"
    )


def test_every_refusal_has_a_status() -> None:
    assert set(STATUSES) == set(get_args(RefusalCode))


def test_unknown_classes_name_the_near_and_the_allowed(client: Client) -> None:
    id_ = client.predict(pictures(1))[0]["id"]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"label": "harre"}, "Did you mean 'hare'?"),
        ({"label": "0"}, "use index"),
        ({"label": 0}, "use index"),
        ({"index": 4}, "allowed are 0..3"),
        ({"index": 2**60}, "allowed are 0..3"),
        ({"index": -1}, "expected a whole number, 0 or more"),
    ]
    for label, words in cases:
        answer = client.post("/feedback", json={"id": id_, **label})
        assert answer.status_code == 422
        assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        [],
        3,
        {},
        {"id": "x"},
        {"index": 1},
        {"id": 3, "index": 1},
        {"id": "x" * 129, "index": 1},
        {"id": "x", "label": True},
        {"id": "x", "label": "cat", "index": 0},
        {"id": "x", "index": "0"},
        {"id": "x", "index": False},
        {"id": "x", "index": 1.5},
        {"id": "x", "label": None},
        {"id": "x", "index": 1, "correct": "yes"},
        {"id": "x", "index": 1, "extra": 1},
        {"labels": []},
        {"labels": {}},
        {"labels": [3]},
        {"labels": [{"id": "x", "label": [1]}]},
        {"labels": [{"id": "x", "index": 1, "correct": 1}]},
        {"labels": [], "id": "x"},
    ],
)
def test_misshapen_bodies(client: Client, body: Any) -> None:
    answer = client.post("/feedback", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("body", [{"id": "x", "index": 1, "judge": "m"}, {"labels": [{"id": "x"}], "source": "m"}])
def test_a_judges_label_is_refused_with_its_cure(client: Client, body: dict[str, Any]) -> None:
    answer = client.post("/feedback", json=body)
    assert answer.status_code == 422
    assert "counts as a human one; send a judge's labels to POST /judge-labels, without this key" in answer.text
    lines = client.post("/feedback", content=b"id,label,judge\nx,a,m\n", headers={"content-type": "text/csv"})
    assert lines.status_code == 422


def test_limits_and_types(serve: Callable[..., Client]) -> None:
    client = serve({"max_labels": 3})
    answer = client.post("/feedback", json={"labels": [{"id": "x", "index": 1}] * 4})
    assert answer.status_code == 413
    assert "limit is 3" in answer.text
    answer = client.post("/feedback", content=b"id,label", headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    assert "application/json, text/csv and application/x-ndjson" in answer.text
    assert client.post("/feedback", content=b"{", headers={"content-type": "application/json"}).status_code == 400


def test_many_clients_at_once(client: Client) -> None:
    async def one(seed: int) -> list[dict[str, Any]]:
        answer = await client.http.post("/predict", json={"instances": pictures(1 + seed % 3, seed=seed)})
        assert answer.status_code == 200
        predictions: list[dict[str, Any]] = answer.json()["predictions"]
        rows = [{"id": p["id"], "index": seed % 4} for p in predictions]
        answers = await asyncio.gather(*(client.http.post("/feedback", json={"labels": rows}) for _ in range(3)))
        assert sum(a.json()["stored"] for a in answers) == len(rows)
        return [p | {"truth": seed % 4} for p in predictions]

    async def all_of_them() -> list[dict[str, Any]]:
        return [p for batch in await asyncio.gather(*map(one, range(60))) for p in batch]

    predictions = client.run(all_of_them())
    assert_equal(sums_of(client), from_scratch(predictions, {p["id"]: p["truth"] for p in predictions}))
    assert client.report()["answers"] == len(predictions) == 120


def test_a_name_in_another_writing_is_the_class_that_alone_is_meant(client: Client) -> None:
    id_ = client.predict(pictures(1))[0]["id"]
    body = f"ID,Label\n{id_}, HARE \n{id_},hare\n"
    answer = client.post("/feedback", content=body.encode(), headers={"content-type": "text/csv"}).json()
    assert (answer["stored"], answer["already_known"]) == (1, 1)


def test_a_cell_of_correct_that_cannot_be_read_is_named(client: Client) -> None:
    body = b"id,label,correct\nx,hare,yes\n"
    answer = client.post("/feedback", content=body, headers={"content-type": "text/csv"}).json()
    assert answer["problems"][0]["message"].startswith("correct is 'yes'; allowed are true, false, 1, 0 and an empty")


def test_class_names_are_the_cards(client: Client) -> None:
    assert client.predict(pictures(1))[0]["label"] in CLASSES


@pytest.mark.parametrize(
    ("id_", "may_come"),
    [("A" * 36, False), ("0193a5C1" + "e" * 28, False), ("a" * 35, True), ("A" * 37, True), ("g" * 36, True)],
)
def test_no_label_waits_for_an_id_that_cannot_come(client: Client, id_: str, may_come: bool) -> None:
    """What /predict takes for a caller's own id and what /feedback holds a label for is one rule."""
    label = {"id": id_, "index": 0, "model": "tiny"}
    held = client.post("/feedback", json=label)
    row = client.post("/feedback", content=json.dumps(label), headers={"content-type": "application/x-ndjson"}).json()
    prediction = client.post("/predict", json={"instances": pictures(1), "ids": [id_]})
    if may_come:
        assert (held.json()["held"], row["already_known"], prediction.status_code) == (1, 1, 200)
        assert client.report()["labelled"] == 1
    else:
        assert (held.status_code, held.json()["error"]["code"]) == (404, "unknown_id")
        assert (row["failed"], row["problems"][0]["code"]) == (1, "unknown_id")
        assert (prediction.status_code, prediction.json()["error"]["code"]) == (422, "invalid_id")
