"""POST /observe: answers of another server come in, in every format, and are watched like this service's own."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import trueodds
from service.observe.observation_formats import header_of
from service.observe.parquet import PARQUET
from tests.service.app_client import Client
from tests.service.bodies import parquet_of
from tests.service.hooks import until
from tests.service.tiny_bundle import pictures, write_bundle
from trueodds import metrics
from trueodds.bundle import Bundle, open_models
from trueodds.metrics import CalibrationSums
from trueodds.sums.positive import PositiveClass

CSV, LINES = {"content-type": "text/csv"}, {"content-type": "application/x-ndjson"}
WHOSE = {"model": "mail", "version": "7"}
CLASSES = ("ham", "news", "spam")


def answers(count: int, seed: int = 0) -> np.ndarray:
    """Probabilities of three classes."""
    return trueodds.metrics.softmax(np.random.default_rng(seed).normal(0, 2, (count, 3)))


def rows_of(p_NC: np.ndarray, start: int = 0) -> list[dict[str, Any]]:
    return [{"id": f"r{n}", "probabilities": row} for n, row in enumerate(p_NC.tolist(), start)]


def observe(client: Client, body: Any, **query: Any) -> dict[str, Any]:
    """The summary of a call that must succeed."""
    summary: dict[str, Any] = client.send("/observe", body, **query)
    return summary


def refusal(client: Client, status: int, body: Any, **query: Any) -> str:
    """The words of a refusal."""
    return client.refusal("/observe", body, status, **query)


@pytest.fixture(scope="module")
def watched(serve_once: Callable[..., Client]) -> Client:
    """For calls that are refused: one answer of mail/7 is known."""
    client = serve_once()
    observe(client, {"id": "first", "probabilities": [0.5, 0.5], **WHOSE})
    return client


def table(p_NC: np.ndarray) -> pa.Table:
    return pa.table({"id": [f"r{n}" for n in range(len(p_NC))], **dict(zip(CLASSES, p_NC.T, strict=True))})


def test_the_report_is_that_of_the_same_rows_at_hand(client: Client) -> None:
    p_NC, labels_N = answers(300), np.random.default_rng(1).integers(0, 3, 300)
    summary = observe(client, {"observations": rows_of(p_NC), **WHOSE, "classes": CLASSES})
    assert summary == {"rows": 300, "stored": 300, "already_known": 0, "failed": 0, "problems": []}
    assert client.report(**WHOSE)["answers"] == 300
    client.label([{"id": f"r{n}", "label": CLASSES[label]} for n, label in enumerate(labels_N)])
    report, expected = client.report(**WHOSE), trueodds.report(p_NC, labels_N)
    for name in ("accuracy", "mean_confidence", "ece", "ece_upper", "smooth_ece", "mce"):
        assert report[name] == pytest.approx(getattr(expected, name), abs=1e-12), name
    for name in ("nll", "nll_upper", "brier", "brier_lower"):
        assert report[name] == pytest.approx(getattr(expected, name), rel=1e-5), name
    assert report["offline"] == {} and report["labelling"]["drift"] is None
    assert {"model": "mail", "version": "7", "role": "observed"} in report["known"]
    page = client.get("/calibration-report", params=WHOSE, headers={"accept": "text/html"})
    assert page.status_code == 200 and "answered by another server" in page.text and "on the test set" not in page.text


def test_probabilities_come_back_as_they_were_sent(client: Client) -> None:
    """Up to float32, and 0 as the smallest number that a float has beside 1. So do propensities."""
    p_NC = np.array([[0.8, 0.15, 0.05], [1.0, 0.0, 0.0], [0.2, 0.2, 0.6], [1e-30, 0.5, 0.5]])
    sent = rows_of(p_NC)
    sent[1]["propensity"] = 0.25
    observe(client, {"observations": sent, **WHOSE})
    client.label([{"id": f"r{n}", "label": n % 3} for n in range(4)])
    rows = np.load(io.BytesIO(client.get("/admin/labelled.npz", params=WHOSE).content))
    assert np.isfinite(rows["val_logits"]).all()
    np.testing.assert_array_equal(rows["val_propensity"], [np.nan, 0.25, np.nan, np.nan])
    np.testing.assert_allclose(trueodds.metrics.softmax(rows["val_logits"]), p_NC, rtol=1e-5, atol=1e-15)
    stored = client.run(client.app.state.runtime.store.read_answers("mail", ["r0"]))["r0"]
    assert stored.confidence == 0.8, "rounded numbers lie on the edges of bins, and must stay there"


@pytest.mark.parametrize("how", ["json", "by name", "lines", "csv", "parquet", "parquet lists", "parquet float32"])
def test_every_format_gives_the_same_sums(client: Client, how: str) -> None:
    p_NC = answers(500).astype(np.float32 if how == "parquet float32" else np.float64)
    by_name = [
        {"id": r["id"], "probabilities": dict(zip(CLASSES, r["probabilities"], strict=True))} for r in rows_of(p_NC)
    ]
    query, lists = (
        WHOSE | {"classes": ",".join(CLASSES)},
        pa.array(list(p_NC), pa.list_(pa.from_numpy_dtype(p_NC.dtype))),
    )
    ids = pa.array([f"r{n}" for n in range(len(p_NC))])
    csv = "\n".join(["id,ham,news,spam", *(f"r{n},{a!r},{b!r},{c!r}" for n, (a, b, c) in enumerate(p_NC.tolist()))])
    calls: dict[str, dict[str, Any]] = {
        "json": {"json": {"observations": rows_of(p_NC)}},
        "by name": {"json": {"observations": by_name}},
        "lines": {"content": "\n".join(map(json.dumps, rows_of(p_NC))).encode(), "headers": LINES},
        "csv": {"content": csv.encode(), "headers": CSV},
        "parquet": {"content": parquet_of(table(p_NC)), "headers": {"content-type": PARQUET}},
        "parquet lists": {
            "content": parquet_of({"id": ids, "probabilities": lists}),
            "headers": {"content-type": PARQUET},
        },
        "parquet float32": {"content": parquet_of(table(p_NC)), "headers": {"content-type": PARQUET}},
    }
    for outcome in ("stored", "already_known"):
        answer = client.post("/observe", params=query, **calls[how])
        assert answer.status_code == 200 and answer.json()[outcome] == 500, answer.text
    sums = client.run(client.app.state.runtime.store.read_sums("mail", "7"))
    expected = CalibrationSums.from_top(p_NC.max(axis=1).astype(np.float64), np.zeros(500))
    assert (sums.answers_C == expected.cells[0]).all()


def test_names_in_another_writing_are_the_classes_that_alone_are_meant(client: Client) -> None:
    names = ("New York", "los_angeles", "a.b")
    observe(client, {"id": "r0", "probabilities": dict(zip(names, (0.7, 0.2, 0.1), strict=True)), **WHOSE})
    csv = b"ID,new_york,a b,Los Angeles\nr0,.7,.1,.2\nr1,.7,.1,.2\n"
    answer = client.post("/observe", params=WHOSE, content=csv, headers=CSV).json()
    assert (answer["stored"], answer["already_known"]) == (1, 1), answer
    other = {"id": "r2", "probabilities": {"new_york": 0.7, "los_angele": 0.2, "a.b": 0.1}, **WHOSE}
    assert "not 'los_angele'" in (words := refusal(client, 422, other)) and "Did you mean 'los_angeles'?" in words
    twice = {"id": "r2", "probabilities": {"new_york": 0.7, "New York": 0.2, "a.b": 0.1}, **WHOSE}
    assert "'los_angeles' is missing" in refusal(client, 422, twice)


@pytest.mark.parametrize(
    ("header", "read"),
    [
        ("Id,Confidence,Predicted", "id,confidence,predicted"),
        ("Id,Sports,Time", "id,Sports,Time"),
        ("id,Sports,Time,time", "id,Sports,Time,time"),
        ("ID,id,a,b", "ID,id,a,b"),
        ("name,a,b", None),
    ],
)
def test_keys_in_another_writing_are_keys_where_no_class_is_meant(header: str, read: str | None) -> None:
    assert header_of(header.split(",")) == (read and read.split(","))


def test_logits_are_taken_as_they_are(client: Client) -> None:
    z_NC = np.random.default_rng(0).normal(0, 3, (50, 3))
    rows = [{"id": f"r{n}", "logits": row} for n, row in enumerate(z_NC.tolist())]
    observe(client, {"observations": rows, **WHOSE})
    stored = client.run(client.app.state.runtime.store.read_answers("mail", ["r3"]))["r3"]
    assert stored.confidence == pytest.approx(trueodds.metrics.softmax(z_NC[3:4]).max(), rel=1e-6)
    body = "id,0,1,2\n" + "\n".join(f"c{n},{a},{b},{c}" for n, (a, b, c) in enumerate(z_NC.tolist()))
    answer = client.post("/observe", params=WHOSE | {"form": "logits"}, content=body.encode(), headers=CSV).json()
    assert answer["stored"] == 50
    rows = [{"id": f"p{n}", "logits": row} for n, row in enumerate(answers(20).tolist())]
    assert "send them as probabilities" in refusal(client, 422, {"observations": rows, **WHOSE})


@pytest.mark.parametrize("how", ["lines", "csv", "parquet", "json"])
@pytest.mark.parametrize("far", [(1e39, 0.0), (3e38, -3e38), (1.7e308, -1.7e308), (0.0, -1e39)], ids=str)
def test_logits_too_far_apart_for_float32_are_refused_by_row(
    client: Client, how: str, far: tuple[float, float]
) -> None:
    rows: list[tuple[str, tuple[float, float]]] = [("far", far), ("good", (3e38, 0.0))]
    calls: dict[str, dict[str, Any]] = {
        "lines": {
            "content": "\n".join(json.dumps({"id": id_, "logits": z}) for id_, z in rows).encode(),
            "headers": LINES,
        },
        "csv": {
            "content": "\n".join(["id,ham,spam", *(f"{id_},{a},{b}" for id_, (a, b) in rows)]).encode(),
            "headers": CSV,
        },
        "parquet": {
            "content": parquet_of({"id": [i for i, _ in rows], "logits": [z for _, z in rows]}),
            "headers": {"content-type": PARQUET},
        },
        "json": {"json": {"observations": [{"id": id_, "logits": z} for id_, z in rows]}},
    }
    answer = client.post("/observe", params=WHOSE | {"form": "logits", "classes": "ham,spam"}, **calls[how])
    tree = answer.json() if how != "json" else answer.json()["error"]
    assert "as float32 they may differ by at most 3.4e+38" in tree["problems"][0]["message"]
    assert (answer.status_code, tree.get("stored")) == ((422, None) if how == "json" else (200, 1)), answer.text


def test_the_order_of_the_classes_is_that_of_the_call(client: Client) -> None:
    first, other = [0.7, 0.2, 0.1], [0.1, 0.2, 0.7]
    observe(client, {"id": "a", "probabilities": first, **WHOSE}, classes="ham,news,spam")
    observe(client, {"id": "b", "probabilities": other, **WHOSE}, classes="spam,news,ham")
    observe(client, {"id": "c", "probabilities": {"news": 0.2, "spam": 0.1, "ham": 0.7}, **WHOSE})
    observe(client, {"id": "d", "probabilities": first, **WHOSE})
    client.label([{"id": id_, "label": "ham"} for id_ in "abcd"])
    assert client.report(**WHOSE)["accuracy"] == 1.0


def test_the_same_again_changes_nothing_and_another_answer_is_a_conflict(client: Client) -> None:
    row = {"id": "a", "probabilities": [0.7, 0.3], "tag": "x", "time": "2026-01-02T03:04:05Z", **WHOSE}
    assert observe(client, row)["stored"] == 1
    assert observe(client, row)["already_known"] == 1
    for change in ({"probabilities": [0.6, 0.4]}, {"tag": "y"}, {"time": 1_700_000_000}, {"version": "8"}):
        message = refusal(
            client, 409, {"observations": [{"id": "new", "probabilities": [0.5, 0.5], **WHOSE}, row | change]}
        )
        assert "the id 'a' was used for another answer, time or tag of version 7" in message and "row 1" in message
    assert client.report(**WHOSE)["answers"] == 1, "a JSON call is all or nothing"
    lines = [{"id": "new", "probabilities": [0.5, 0.5]}, row | {"tag": None}, {"id": "n2", "probabilities": [0.4, 0.7]}]
    body = "\n".join(map(json.dumps, lines)).encode()
    answer = client.post("/observe", params=WHOSE, content=body, headers=LINES).json()
    assert (answer["stored"], answer["failed"]) == (1, 2)
    assert [(p["row"], p["code"]) for p in answer["problems"]] == [(2, "conflicting_answer"), (3, "invalid_row")]
    wanted = client.post("/observe", params=WHOSE, content=body, headers=LINES | {"accept": LINES["content-type"]}).text
    assert [json.loads(line)["outcome"] for line in wanted.splitlines()] == ["already_known", "failed", "failed"]
    counted = client.get("/metrics").text
    assert 'trueodds_observations_total{outcome="stored"} 2.0' in counted
    assert 'trueodds_observations_total{outcome="conflicting_answer"} 6.0' in counted


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"probabilities": [0.5, 0.6]},
            "probabilities sum to 1.1; they must sum to 1 (within 1e-3, or as far as",
        ),
        ({"probabilities": [1.5, -0.5]}, "probabilities holds 1.5; allowed is [0, 1]"),
        ({"probabilities": [0.5, "0.5"]}, "probabilities holds '0.5'; allowed are numbers"),
        ({"probabilities": [0.5, True]}, "probabilities holds True; allowed are numbers"),
        ({"probabilities": {"": 0.5, "x": 0.5}, "version": "8"}, "expected at least two different names"),
        ({"probabilities": [1.0]}, "probabilities is 1 number; expected a list with a number per class"),
        ({"probabilities": [0.2, 0.3, 0.5]}, "probabilities has 3 numbers, but mail/7 has 2 classes ('0', '1')"),
        ({"probabilities": {"0": 0.5, "2": 0.5}}, "mail/7 has the classes '0', '1', not '2'"),
        ({"probabilities": 0.5}, "probabilities is 0.5; expected a list"),
        ({"probabilities": [0.5, 0.5], "logits": [1, 2]}, "the row has probabilities and logits; a row has"),
        ({}, "the row has no answer; a row has probabilities, or logits, or confidence and predicted"),
        ({"confidence": 0.5, "predicted": "1"}, "mail/7 has probabilities of all classes, but this row has confidence"),
        ({"confidence": 1.5, "predicted": "1"}, "confidence is 1.5; allowed is a number in [0, 1]"),
        ({"confidence": 0.5}, "predicted is None; expected the name of the predicted class"),
        ({"probabilities": [0.5, 0.5], "label": "1"}, "send true labels to POST"),
        ({"probabilities": [0.5, 0.5], "tme": 3}, "unknown key 'tme'; allowed are id, .* Did you mean 'time'?"),
        (
            {"probabilities": [0.5, 0.5], "set": ["a"], "set_level": 0.9},
            "set_level is not a key of a row.* beside `observations` or as ?set_level=",
        ),
        ({"probabilities": [0.5, 0.5], "time": "soon"}, "time is 'soon'; allowed is ISO 8601"),
        ({"probabilities": [0.5, 0.5], "time": "1969-12-31"}, "from 1970 until now"),
        ({"probabilities": [0.5, 0.5], "time": "9998-01-01"}, "from 1970 until now"),
        ({"probabilities": [0.5, 0.5], "time": 1_700_000_000_0000}, "or milli-, micro- or nanoseconds"),
        ({"probabilities": [0.5, 0.5], "id": "0" * 36}, "ids of 36 hex digits are reserved for the service"),
        ({"probabilities": [0.5, 0.5], "id": None}, "id is None; allowed is a text"),
        ({"probabilities": [0.5, 0.5], "model": "a/b"}, "model is 'a/b'; allowed are letters"),
        ({"probabilities": [0.5, 0.5], "model": "mail~shadow"}, "model is 'mail~shadow'; allowed are letters"),
        ({"probabilities": [0.5, 0.5], "version": None}, "the version is missing"),
        ({"probabilities": [0.5, 0.5], "tag": ""}, "tag is ''; allowed"),
        ({"probabilities": [0.5, 0.5], "propensity": 2}, "propensity is 2; allowed"),
    ],
    ids=str,
)
def test_refusals_say_what_was_sent_and_the_cure(watched: Client, row: dict[str, Any], words: str) -> None:
    body = {"id": "a", **WHOSE} | row
    for form in (body, {"observations": [body]}):
        message = refusal(watched, 422, form)
        assert message.endswith("Nothing was stored.")
        for part in words.split(".*"):
            assert part in message
    lines = watched.post("/observe", content=json.dumps(body).encode(), headers=LINES).json()
    assert (lines["failed"], lines["stored"]) == (1, 0)
    assert watched.report(**WHOSE)["answers"] == 1


@pytest.mark.parametrize(
    ("content", "headers", "status", "words"),
    [
        (b"[", {"content-type": "application/json"}, 400, "not JSON"),
        (b"[]", {"content-type": "application/json"}, 422, "expected an observation"),
        (b'{"observations": []}', {"content-type": "application/json"}, 422, "at least one row"),
        (b'{"observations": [{}], "labels": 1}', {"content-type": "application/json"}, 422, "unknown key 'labels'"),
        (b"id,label,ham,spam\n", CSV, 422, "Send true labels to POST /feedback"),
        (b"id,ham\n", CSV, 422, "a column per class"),
        (b"id,confidence,predicted,ham,spam\n", CSV, 422, "expected a header"),
        (b"PAR1", {"content-type": PARQUET}, 400, "not a readable Parquet file"),
        (b"x", {"content-type": "text/plain"}, 415, "accepts application/json, application/x-ndjson, text/csv and"),
    ],
)
def test_bodies_of_another_shape(
    watched: Client, content: bytes, headers: dict[str, str], status: int, words: str
) -> None:
    answer = watched.post("/observe", content=content, headers=headers, params=WHOSE)
    assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True), answer.text


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"id": ["a"], "ham": ["x"], "spam": ["y"]}, "the column 'ham' holds 'string'; expected numbers, because it"),
        ({"id": ["a"], "probabilities": [[0.5, 0.5]], "ham": [1.0]}, "expected a header"),
        ({"name": ["a"], "probabilities": [[0.5, 0.5]]}, "expected a header"),
    ],
)
def test_columns_of_parquet_that_are_no_observations(watched: Client, columns: dict[str, Any], words: str) -> None:
    body, headers = parquet_of(columns), {"content-type": PARQUET}
    answer = watched.post("/observe", content=body, headers=headers, params=WHOSE)
    assert answer.status_code == 422 and words in answer.json()["error"]["message"]


def test_a_parquet_file_of_too_many_values_is_refused(watched: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.observe.parquet.MOST_VALUES", 10)
    body, headers = parquet_of(table(answers(5))), {"content-type": PARQUET}
    answer = watched.post("/observe", content=body, headers=headers, params=WHOSE)
    assert (answer.status_code, "20 values; the limit is 10" in answer.text) == (413, True)


def test_rows_of_parquet_stand_alone(client: Client) -> None:
    rows = pa.table(
        {
            "id": pa.array(["a", "b", None, "d", "e"]),
            "probabilities": pa.array([[0.5, 0.5], [0.5, None], [0.5, 0.5], None, [0.2, 0.3, 0.5]]),
            "time": pa.array([1_700_000_000_123] * 5, pa.timestamp("ms", "UTC")),
            "tag": pa.array(["x", None, None, None, None]).dictionary_encode(),
        }
    )
    headers = {"content-type": PARQUET}
    answer = client.post("/observe", content=parquet_of(rows), headers=headers, params=WHOSE).json()
    assert (answer["rows"], answer["stored"], answer["failed"]) == (5, 1, 4)
    assert sorted(problem["row"] for problem in answer["problems"]) == [1, 2, 3, 4]
    stored = client.run(client.app.state.runtime.store.read_answers("mail", ["a"]))["a"]
    assert (stored.created_ms, stored.tag) == (1_700_000_000_123, "x")


def test_of_confidences_alone_nll_and_brier_score_stay_unknown(client: Client) -> None:
    rng = np.random.default_rng(0)
    confidence_N, predicted_N, labels_N = rng.uniform(0.4, 1, 200), rng.integers(0, 3, 200), rng.integers(0, 3, 200)
    rows = [
        {"id": f"r{n}", "confidence": c, **({"predicted": CLASSES[k]} if n % 2 else {"index": int(k)})}
        for n, (c, k) in enumerate(zip(confidence_N.tolist(), predicted_N, strict=True))
    ]
    assert "give the names of its classes in the call: ?classes=a,b,c" in refusal(
        client, 422, {"observations": rows, **WHOSE}
    )
    observe(client, {"observations": rows, "classes": CLASSES, **WHOSE})
    csv = "id,confidence,predicted\nx,0.5,news\n"
    assert client.post("/observe", params=WHOSE, content=csv.encode(), headers=CSV).json()["stored"] == 1
    client.label([{"id": f"r{n}", "index": int(label)} for n, label in enumerate(labels_N)])
    client.label([{"id": "r0", "index": int(labels_N[0] + 1) % 3, "correct": True}])
    client.label([{"id": "r0", "index": int(labels_N[0]), "correct": True}])
    for query in ({}, {"last": 1000}):
        report = client.report(**WHOSE, **query, **({} if query else {"by": "class", "trend": "hour"}))
        assert report["ece"] == pytest.approx(
            trueodds.metrics.ece(CalibrationSums.from_top(confidence_N, labels_N == predicted_N))
        )
        assert [report[name] for name in ("nll", "nll_lower", "nll_upper", "brier", "brier_upper")] == [None] * 5
        assert any("no NLL and no Brier score" in caution for caution in report["cautions"])
    assert client.get("/calibration-report", params=WHOSE, headers={"accept": "text/html"}).status_code == 200
    client.run(client.app.state.runtime.store.compact())
    assert client.report(**WHOSE)["nll"] is None
    answer = client.get("/admin/labelled.npz", params=WHOSE)
    assert (
        answer.status_code == 422 and "recalibration needs probabilities or logits" in answer.json()["error"]["message"]
    )
    assert client.get("/metrics").status_code == 200


def test_labels_may_come_first_and_tags_and_times_are_kept(client: Client) -> None:
    client.post("/observe", json={"id": "z", "probabilities": [0.5, 0.5], **WHOSE})
    assert client.label([{"id": "a", "label": 1, "model": "mail"}])["held"] == 1
    day = 1_700_000_000
    observe(client, {"id": "a", "probabilities": [0.1, 0.9], "time": day, "tag": "x", "propensity": 0.5, **WHOSE})
    report = client.report(**WHOSE, until="2023-11-15", tag="x")
    assert (report["answers"], report["labelled"], report["accuracy"]) == (1, 1, 1.0)


def test_a_name_is_of_one_origin(client: Client, models: Any, tmp_path: Any) -> None:
    model, version = client.app.state.runtime.registry.served_version()
    row = {"id": "a", "probabilities": [0.25] * 4, "model": model, "version": version}
    assert "this service serves" in refusal(client, 409, row)
    observe(client, row | {"version": "elsewhere"})
    answer = client.post("/predict", params={"model": model, "version": "elsewhere"}, json={"instances": pictures(1)})
    assert answer.status_code == 404 and "It runs on another server" in answer.json()["error"]["message"]
    answer = client.post("/predict", params={"model": "mail"}, json={"instances": pictures(1)})
    assert answer.status_code == 404
    assert {"model": model, "versions": ["elsewhere"]} in client.get("/models").json()["observed"]


def test_a_bundle_with_the_name_of_an_observed_version_is_refused(client: Client, models: Any, tmp_path: Any) -> None:
    bundle = write_bundle(tmp_path / "other", seed=5)
    row = {"id": "a", "probabilities": [0.25] * 4, "model": "tiny", "version": Bundle.load(bundle).version}
    observe(client, row)
    open_models(models).publish(bundle)
    client.run(client.app.state.runtime.registry.look())
    problems = client.get("/models").json()["problems"]
    assert any("the store has another server's answers under" in problem for problem in problems)
    assert observe(client, row | {"id": "b"})["stored"] == 1


@pytest.mark.parametrize("first", ["shadow", "answered"])
@pytest.mark.parametrize("label", ["before", "after"])
def test_what_a_shadow_would_have_answered_gets_the_same_labels(client: Client, first: str, label: str) -> None:
    p_NC, q_NC = answers(30), answers(30, seed=9)
    observe(client, {"id": "known", "probabilities": {"ham": 0.5, "news": 0.25, "spam": 0.25}, **WHOSE})
    labels = [{"id": f"r{n}", "label": "news", "model": "mail"} for n in range(30)]
    calls: dict[str, Callable[[], Any]] = {
        "answered": lambda: observe(client, {"observations": rows_of(p_NC), **WHOSE}),
        "shadow": lambda: observe(
            client,
            {"observations": rows_of(q_NC), "model": "mail", "version": "8", "shadow": True, "classes": CLASSES},
        ),
    }
    if label == "before":
        client.label(labels)
    calls.pop(first)()
    for call in calls.values():
        call()
    if label == "after":
        client.label(labels)
    report = client.report(model="mail~shadow", version="8")
    assert (report["answers"], report["labelled"]) == (30, 30)
    assert report["accuracy"] == pytest.approx((q_NC.argmax(axis=1) == 1).mean())
    both = client.get("/admin/labelled.npz", params=WHOSE | {"shadow": "8"})
    rows = np.load(io.BytesIO(both.content))
    order = np.argsort([f"r{n}" for n in range(30)]) if label == "before" else slice(None)  # held labels come by id
    np.testing.assert_allclose(trueodds.metrics.softmax(rows["val_shadow_logits"]), q_NC[order], rtol=1e-5)


def test_a_name_for_each_answer_does_not_make_versions_without_end(serve: Callable[..., Client]) -> None:
    client = serve({"max_observed": 2})
    rows = [{"id": f"r{n}", "probabilities": [0.5, 0.5], "model": "mail", "version": f"v{n}"} for n in range(4)]
    answer = client.post("/observe", content="\n".join(map(json.dumps, rows)).encode(), headers=LINES).json()
    assert (answer["stored"], answer["failed"]) == (2, 2)
    assert "mail/v2 would exceed the limit of 2 versions from other servers" in answer["problems"][0]["message"]
    assert "raise TRUEODDS_MAX_OBSERVED" in refusal(client, 409, rows[3])
    assert observe(client, rows[0] | {"id": "more"})["stored"] == 1


def test_the_alarm_fires(client: Client) -> None:
    observe(client, {"observations": rows_of(np.tile([0.98, 0.01, 0.01], (80, 1))), **WHOSE})
    client.label([{"id": f"r{n}", "label": 1} for n in range(80)])
    until(lambda: client.report(**WHOSE)["alarm"]["state"] == "fired")
    assert client.report(**WHOSE)["verdict"] == "over_confident"


def test_without_pyarrow_parquet_is_refused_with_the_cure(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = client.post("/observe", content=b"PAR1", headers={"content-type": PARQUET}, params=WHOSE)
    assert answer.status_code == 415 and "pip install 'trueodds[serve,table]'" in answer.json()["error"]["message"]


@pytest.mark.parametrize("form", ["probabilities", "confidence"])
def test_the_positive_class_of_a_version_is_named_with_its_first_answer(client: Client, form: str) -> None:
    """From then on its report leads with p(positive); it is counted from the predicted class alone, too."""
    p_N = np.random.default_rng(0).uniform(0, 1, 80)
    rows: list[dict[str, Any]] = [
        {"id": f"r{n}", "probabilities": {"ham": 1 - p, "spam": p}} for n, p in enumerate(p_N)
    ]
    if form == "confidence":
        top = [("spam", p) if p > 0.5 else ("ham", 1 - p) for p in p_N]
        rows = [{"id": f"r{n}", "predicted": name, "confidence": c} for n, (name, c) in enumerate(top)]
    body = {"observations": rows[:40], **WHOSE, "classes": ["ham", "spam"]}
    assert "unknown positive class 'span'" in refusal(client, 422, {**body, "positive": "span"})
    observe(client, {**body, "positive": "spam"})
    observe(client, {"observations": rows[40:60], **WHOSE})
    lines = "".join(json.dumps(row) + "\n" for row in rows[60:])
    query = {**WHOSE, "positive": "spam"}
    assert client.post("/observe", params=query, content=lines, headers=LINES).json()["stored"] == 20
    client.label([{"id": f"r{n}", "label": "spam" if p > 0.3 else "ham"} for n, p in enumerate(p_N)])
    report = client.report(**WHOSE)
    expected = PositiveClass("spam", 1).sums_of(p_N, p_N > 0.3)
    assert report["positive"]["label"] == "spam" and "p(spam)" in report["headline"]
    values = {
        "ece": metrics.ece(expected, binning="mass"),
        "brier": metrics.brier(expected),
        "nll": metrics.nll(expected),
    }
    for name, value in values.items():
        assert report["positive"][name] == pytest.approx(value, rel=1e-5)
    words = refusal(client, 422, {"observations": rows[:1], **WHOSE}, positive="ham")
    assert (
        "mail/7 has the positive class 'spam', but the call gives 'ham'; a version keeps what its first answer" in words
    )


def test_three_classes_have_no_positive_one(client: Client) -> None:
    body = {"observations": rows_of(answers(2)), **WHOSE, "classes": CLASSES}
    assert "there are 3 classes; a positive class is one of two" in refusal(client, 422, body, positive="spam")
    assert "positive is 1.5; expected the name" in refusal(client, 422, {**body, "positive": 1.5})
    observe(client, body)
    assert client.report(**WHOSE)["positive"] is None
    assert "mail/7 has no positive class, but the call gives 'spam'" in refusal(client, 422, body, positive="spam")


@pytest.mark.parametrize("how", ["json", "csv", "parquet"])
def test_rounded_probabilities_and_noise_below_0_are_taken(client: Client, how: str) -> None:
    """Issue: three classes rounded to two decimals sum to .99, and 1 - p leaves -1e-9."""
    rows = {"r": [0.33, 0.33, 0.33], "n": [1.000000001, -1e-9, 0.0]}
    whose = {"model": "rounded", "version": how}
    if how == "json":
        for id_, numbers in rows.items():
            row = {"id": f"{how}-{id_}", "probabilities": dict(zip("abc", numbers, strict=True)), **whose}
            assert client.post("/observe", json=row).json()["stored"] == 1
    elif how == "csv":
        body = "id,a,b,c\n" + "".join(f"{how}-{id_},{','.join(map(str, row))}\n" for id_, row in rows.items())
        assert client.post("/observe", params=whose, content=body.encode(), headers=CSV).json()["stored"] == 2
    else:
        numbers_NC = np.array([*rows.values()])
        packed = parquet_of({"id": [f"{how}-{id_}" for id_ in rows], **dict(zip("abc", numbers_NC.T, strict=True))})
        answer = client.post("/observe", params=whose, content=packed, headers={"content-type": PARQUET})
        assert answer.json()["stored"] == 2, answer.text
    assert client.get(f"/predictions/{how}-r").json()["confidence"] == 0.33
    assert client.get(f"/predictions/{how}-n").json()["confidence"] == 0.9975, "a rounded 1 is not certain"
