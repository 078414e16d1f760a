"""Where a confidence comes from: answers of chat models in /observe, in every format, as rows of the store."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from service.observe.parquet import PARQUET
from tests.service.app_client import Client
from tests.service.bodies import parquet_of
from trueodds.files import FileError
from trueodds.inputs.sources import from_logprobs, from_votes
from trueodds.reports.table.reading import read
from trueodds.reports.table.table_report import report_of_answers

WHOSE = {"model": "mail", "version": "7"}
CLASSES = ("ham", "spam", "news")
TOP = [
    {"token": "ham", "logprob": math.log(0.6), "bytes": [104]},
    {"token": " Spam", "logprob": math.log(0.2), "bytes": None},
    {"token": "The", "logprob": math.log(0.1)},
]


def observe(client: Client, rows: list[dict[str, Any]], **beside: Any) -> dict[str, Any]:
    summary: dict[str, Any] = client.send("/observe", {"observations": rows, **WHOSE, "classes": CLASSES, **beside})
    return summary


def stored(client: Client, id_: str) -> dict[str, Any]:
    row: dict[str, Any] = client.get(f"/predictions/{id_}", params={"model": "mail"}).json()
    return row


def test_all_that_a_chat_model_gives_is_stored_with_its_source(client: Client) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "logprobs": TOP},
        {"id": "b", "votes": {"spam": 3, "ham": 1}},
        {"id": "c", "votes": ["news", "news"]},
        {"id": "d", "verbalised": {"ham": 85, "spam": 14, "news": 1}},
        {"id": "e", "probabilities": [0.5, 0.25, 0.25]},
        {"id": "f", "probabilities": [0.5, 0.25, 0.25], "confidence_source": "native"},
        {"id": "g", "votes": [1, 2, 3]},
    ]
    summary = observe(client, rows)
    assert summary["stored"] == 7 and len(summary["read_as"]) == 3 and "low_label_mass" not in summary
    sources = {"a": "logprob", "b": "votes", "c": "votes", "d": "verbalised", "e": None, "f": "native", "g": "votes"}
    assert {id_: stored(client, id_)["confidence_source"] for id_ in sources} == sources
    expected = {
        "a": from_logprobs(TOP, CLASSES).probabilities,
        "b": from_votes([1, 3, 0], CLASSES),
        "c": from_votes([0, 0, 2], CLASSES),
        "d": [0.85, 0.14, 0.01],
        "g": from_votes([1, 2, 3], CLASSES),
    }
    for id_, p_C in expected.items():
        assert stored(client, id_)["probabilities"] == pytest.approx(p_C, abs=1e-6)
    assert observe(client, rows)["already_known"] == 7
    table = client.get("/predictions", params={**WHOSE, "format": "csv"}).text.splitlines()
    assert table[0].endswith(",confidence_source,judge_label") and sum(line.endswith(",votes,") for line in table) == 3


def test_the_answer_says_how_a_row_was_read_and_where_the_prompt_does_not_fit(client: Client) -> None:
    low = {"id": "low", "logprobs": {"ham": math.log(0.2), "Well": math.log(0.7)}}
    summary = observe(client, [{"id": "good", "logprobs": TOP}, low])
    assert summary["low_label_mass"] == 1 and "smallest listed probability" in summary["read_as"][0]


def test_the_report_warns_of_answers_that_hardly_name_the_classes(client: Client) -> None:
    low = {"id": "low", "logprobs": {"ham": math.log(0.2), "Well": math.log(0.7)}}
    observe(client, [{"id": "good", "logprobs": TOP}, {"id": "votes", "votes": {"spam": 3, "ham": 1}}])
    assert not any("log-probabilities" in one for one in client.report(**WHOSE)["cautions"])
    for _ in range(2):  # sent again, it counts once
        observe(client, [low])
    report = client.report(**WHOSE)
    (caution,) = [one for one in report["cautions"] if "log-probabilities" in one]
    assert caution.startswith("1 answer of 2 that came as log-probabilities so far had less than 50%")
    assert "on average 50% over all of these" in caution and caution in report["reading"]
    page = client.get("/calibration-report", params={**WHOSE, "format": "html"}).text
    assert "1 answer of 2 that came as log-probabilities" in page


def test_a_verbalised_number_is_a_confidence(client: Client) -> None:
    rows: list[dict[str, Any]] = [
        {"id": f"v{n}", "verbalised": v, "predicted": "spam"} for n, v in enumerate((0.85, 85, "85%", "85 %"))
    ]
    observe(client, rows)
    for row in rows:
        answer = stored(client, row["id"])
        assert (answer["confidence"], answer["predicted"], answer["probabilities"]) == (0.85, "spam", None)


@pytest.mark.parametrize("how", ["csv", "parquet", "ndjson"])
def test_tables_of_chat_models(client: Client, how: str) -> None:
    query: dict[str, Any] = {**WHOSE, "classes": "ham,spam,news", "form": "votes"}
    if how == "csv":
        answer = client.post(
            "/observe",
            content="id,ham,spam,news\na,3,1,0\nb,0,0,4\n",
            params=query,
            headers={"content-type": "text/csv"},
        )
    elif how == "parquet":
        body = parquet_of({"id": ["a", "b"], "ham": [3, 0], "spam": [1, 0], "news": [0, 4]})
        answer = client.post("/observe", content=body, params=query, headers={"content-type": PARQUET})
    else:
        rows = [{"id": "a", "votes": {"ham": 3, "spam": 1}}, {"id": "b", "votes": [0, 0, 4]}]
        lines = b"\n".join(map(orjson.dumps, rows))
        answer = client.post("/observe", content=lines, params=query, headers={"content-type": "application/x-ndjson"})
    assert answer.json()["stored"] == 2 and answer.json()["read_as"], answer.text
    assert stored(client, "a")["probabilities"] == pytest.approx(from_votes([3, 1, 0], CLASSES), abs=1e-6)
    assert stored(client, "b")["confidence_source"] == "votes"


def test_logprobs_and_verbalised_numbers_in_csv(client: Client) -> None:
    csv = {"content-type": "text/csv"}
    query = {**WHOSE, "classes": "ham,spam,news", "form": "logprobs"}
    client.post("/observe", content="id,ham,spam\na,-0.5,\n", params=query, headers=csv)
    expected = from_logprobs({"ham": -0.5}, CLASSES).probabilities
    assert stored(client, "a")["probabilities"] == pytest.approx(expected, abs=1e-6)
    one = {**query, "version": "8", "form": "probabilities"}
    table = "id,verbalised,predicted,confidence_source\nx,85%,spam,\ny,0.7,ham,verbalised\n"
    assert client.post("/observe", content=table, params=one, headers=csv).json()["stored"] == 2
    assert stored(client, "x")["confidence"] == 0.85 and stored(client, "y")["confidence_source"] == "verbalised"
    many = {**query, "form": "verbalised"}
    client.post("/observe", content="id,ham,spam,news\nz,70%,20%,10%\n", params=many, headers=csv)
    assert stored(client, "z")["probabilities"] == pytest.approx([0.7, 0.2, 0.1], abs=1e-6)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"logprobs": {"Well": -0.1}}, "none of them is a class"),
        ({"logprobs": 3}, "expected an object with a log-probability per token"),
        ({"votes": {"maybe": 1}}, "'maybe', which is no class"),
        ({"votes": {}}, "no vote"),
        ({"verbalised": 1, "predicted": "ham"}, "1 percent or certain"),
        ({"verbalised": 0.8}, "expected one number with predicted"),
        ({"verbalised": [3, 4, 5]}, "sum to 12"),
        ({"verbalised": {"ham": 0.7, "spam": 0.2, "news": 0.3}}, "probabilities sum to 1.2"),
        ({"logprobs": TOP, "votes": {"ham": 1}}, "the row has logprobs and votes"),
        ({"logprobs": TOP, "confidence_source": "votes"}, "confidence_source is votes, but the row has logprobs"),
        ({"probabilities": [1, 0, 0], "confidence_source": "guess"}, "allowed are native, logprob, verbalised, votes"),
        ({"probabilities": [1, 0, 0], "confidence_source": ["x"]}, "allowed are native, logprob, verbalised, votes"),
    ],
)
def test_what_cannot_be_read_is_refused_by_row_and_nothing_else_is_lost(
    client: Client, row: dict[str, Any], words: str
) -> None:
    lines = b"\n".join(map(orjson.dumps, [{"id": "good", "votes": {"ham": 1}}, {"id": "bad", **row}]))
    headers = {"content-type": "application/x-ndjson"}
    query = {**WHOSE, "classes": "ham,spam,news"}
    summary = client.post("/observe", content=lines, params=query, headers=headers).json()
    assert (summary["stored"], summary["failed"]) == (1, 1)
    assert words in summary["problems"][0]["message"]


@pytest.mark.parametrize("row", [{"logprobs": TOP}, {"votes": {"ham": 2}}, {"votes": [1, 2]}])
def test_a_new_version_of_a_chat_model_needs_its_classes(client: Client, row: dict[str, Any]) -> None:
    assert "?classes=a,b,c" in client.refusal("/observe", {"id": "a", **WHOSE, **row})


def test_a_source_beside_the_rows_is_that_of_rows_that_name_none(client: Client) -> None:
    rows: list[dict[str, Any]] = [{"id": "a", "probabilities": [1, 0, 0]}, {"id": "b", "votes": {"ham": 1}}]
    observe(client, rows, confidence_source="native")
    assert [stored(client, id_)["confidence_source"] for id_ in "ab"] == ["native", "votes"]
    assert "allowed are native" in client.refusal("/observe", {"observations": rows, **WHOSE, "confidence_source": "x"})


def test_another_source_is_another_answer(client: Client) -> None:
    observe(client, [{"id": "a", "probabilities": [0.5, 0.25, 0.25], "confidence_source": "native"}])
    again = {"id": "a", "probabilities": [0.5, 0.25, 0.25], "confidence_source": "votes", **WHOSE}
    assert client.post("/observe", json=again).status_code == 409


def test_the_report_is_split_by_source_with_marks(client: Client) -> None:
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    labels = []
    for n in range(900):
        source = ("native", "verbalised", None)[n % 3]
        right = rng.random() < (0.9 if source != "verbalised" else 0.6)
        row = {"id": f"s{n}", "probabilities": [0.9, 0.05, 0.05]}
        rows.append(row if source is None else {**row, "confidence_source": source})
        labels.append({"id": f"s{n}", "label": CLASSES[0 if right else 1]})
    observe(client, rows)
    client.label(labels)
    report = client.report(**WHOSE, by="confidence_source")
    table = {row["name"]: row for row in report["confidence_sources"]}
    counts = {name: (row["answers"], row["labelled"]) for name, row in table.items()}
    assert counts == dict.fromkeys(("native", "verbalised", "(unknown)"), (300, 300))
    assert {name for name, row in table.items() if row["more_than_chance"]} == {"verbalised"}
    assert client.report(**WHOSE)["confidence_sources"] is None
    query = {**WHOSE, "by": "confidence_source"}
    page = client.get("/calibration-report", params=query, headers={"accept": "text/html"}).text
    assert "By source of the confidence" in page and "verbalised" in page
    client.run(client.http.delete("/predictions/s1?model=mail"))
    refused = client.get("/calibration-report", params=query)
    assert refused.status_code == 422 and "only 899 are still stored" in refused.json()["error"]["message"]


def test_an_exported_table_is_split_by_the_same_sources(client: Client, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": f"e{n}", "votes": {CLASSES[n % 3]: 3}} for n in range(40)]
    rows += [{"id": f"n{n}", "probabilities": [0.5, 0.25, 0.25]} for n in range(20)]
    observe(client, rows)
    client.label([{"id": row["id"], "label": "ham"} for row in rows])
    table = tmp_path / "answers.csv"
    table.write_bytes(client.get("/predictions", params={**WHOSE, "probabilities": True}).content)
    offline = report_of_answers(read(table), by="confidence_source")
    live = client.report(**WHOSE, by="confidence_source")
    shown = [(row.name, row.answers, row.labelled) for row in offline.confidence_sources or []]
    assert shown == [("votes", 40, 40), ("(unknown)", 20, 20)]
    assert [row["ece"] for row in live["confidence_sources"]] == pytest.approx(
        [row.ece for row in offline.confidence_sources or []], abs=1e-6
    )
    (tmp_path / "bare.csv").write_text("id,label,a,b\n1,a,.9,.1\n2,b,.2,.8\n")
    with pytest.raises(FileError, match="no column confidence_source"):
        report_of_answers(read(tmp_path / "bare.csv"), by="confidence_source")
