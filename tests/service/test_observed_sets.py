"""Conformal sets of another server: stored with its answers, reported with their live coverage, and watched."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from service.bulk.lines import CSV
from service.observe.parquet import PARQUET
from service.predict.stored.archive import AnswerArchive
from service.store.work.statements import Query, Work
from tests.service.app_client import Client
from tests.service.bodies import parquet_of
from tests.service.hooks import until
from trueodds.calibrators.conformal import SetRule, coverage_floor, rank_of
from trueodds.client.observations import observation_rows, shared_options
from trueodds.metrics import risk_sequence, softmax
from trueodds.reports.table import reading
from trueodds.reports.table.table_report import report_of_answers

CLASSES = ["ham", "news", "spam"]
WHOSE = {"model": "mail", "version": "7"}


def drawn(count: int, threshold: float = 0.8, seed: int = 0) -> tuple[Any, Any, list[list[str]]]:
    """Probabilities, labels that are calibrated, and the sets {p >= 1 - threshold}."""
    rng = np.random.default_rng(seed)
    p_NC = softmax(rng.normal(0, 1.5, (count, 3)))
    y_N = (p_NC.cumsum(axis=1) > rng.random((count, 1))).argmax(axis=1)
    return p_NC, y_N, [[c for c, inside in zip(CLASSES, row, strict=True) if inside] for row in p_NC >= 1 - threshold]


def send(client: Client, p_NC: Any, sets: list[list[str]], prefix: str = "r", **query: Any) -> dict[str, Any]:
    rows = [
        {"id": f"{prefix}{n}", "probabilities": p, "set": members, "tag": "ab"[n % 2]}
        for n, (p, members) in enumerate(zip(p_NC.tolist(), sets, strict=True))
    ]
    body = {"observations": rows, "classes": CLASSES, **WHOSE, **query}
    summary: dict[str, Any] = client.send("/observe", body)
    return summary


def label(client: Client, y_N: Any, prefix: str = "r") -> None:
    client.label([{"id": f"{prefix}{n}", "index": int(y), "model": "mail"} for n, y in enumerate(y_N)])


def level_of(client: Client, labels: int) -> dict[str, Any]:
    """The report's part about sets, once it has all labels."""

    def read() -> dict[str, Any]:
        (found,) = client.report(model="mail")["sets"]["levels"]
        part: dict[str, Any] = found
        return part

    until(lambda: read()["labels"] == labels)
    return read()


@pytest.mark.parametrize("rows", [None, 500])
def test_the_report_has_their_coverage(client: Client, rows: int | None) -> None:
    p_NC, y_N, sets = drawn(400)
    more: dict[str, Any] = {} if rows is None else {"set_rows": rows}
    assert send(client, p_NC, sets, set_level=0.9, **more)["stored"] == 400
    assert send(client, p_NC[:5], sets[:5])["already_known"] == 5
    assert client.report(model="mail")["sets"]["levels"][0]["labels"] == 0
    label(client, y_N)
    found, hit_N = level_of(client, 400), np.array([CLASSES[y] in one for one, y in zip(sets, y_N, strict=True)])
    assert (found["level"], found["method"], found["calibration_rows"]) == (0.9, "given", rows or 0)
    assert (found["labels"], found["hits"]) == (400, hit_N.sum())
    twin = risk_sequence(int((~hit_N).sum()), 400, level=0.95)
    assert (found["lower"], found["upper"]) == pytest.approx((1 - twin.upper, 1 - twin.lower))
    size_N = np.array(list(map(len, sets)))
    assert {one["name"]: (one["labels"], one["hits"]) for one in found["sizes"]} == {
        str(size): ((size_N == size).sum(), hit_N[size_N == size].sum()) for size in sorted(set(size_N.tolist()))
    }
    assert {one["name"]: one["hits"] for one in found["classes"]} == {
        name: hit_N[y_N == k].sum() for k, name in enumerate(CLASSES)
    }
    assert {one["name"]: one["labels"] for one in found["tags"]} == {"a": 200, "b": 200}
    floor = 0.9 if rows is None else coverage_floor(rank_of(rows, 0.9), rows, 0.9)
    assert found["floor"] == found["alarm"]["floor"] == pytest.approx(floor)
    words = "is not known, so the alarm fires if" if rows is None else "Sound sets from 500 calibration rows cover at"
    assert words in found["reading"]
    page = client.get("/calibration-report", params={"model": "mail", "format": "html"}).text
    assert words in page
    metric = next(row for row in client.get("/metrics").text.splitlines() if row.startswith("trueodds_sets_coverage{"))
    assert float(metric.split()[-1]) == pytest.approx(hit_N.mean())


@pytest.mark.parametrize("threshold", [0.95, 0.5])
def test_the_alarm_fires_for_sets_that_cover_too_seldom(client: Client, threshold: float) -> None:
    p_NC, y_N, sets = drawn(600, threshold)
    send(client, p_NC, sets, set_level=0.9, set_rows=300)
    label(client, y_N)
    assert level_of(client, 600)["alarm"]["state"] == ("fired" if threshold == 0.5 else "quiet")


def test_sets_of_an_answer_with_its_confidence_only(client: Client) -> None:
    rows = [{"id": f"c{n}", "predicted": "ham", "confidence": 0.6, "set": ["ham", "spam"]} for n in range(4)]
    client.send("/observe", {"observations": rows, "classes": CLASSES, "set_level": 0.8, **WHOSE})
    label(client, [0, 2, 1, 0], "c")
    found = level_of(client, 4)
    assert (found["hits"], found["mean_size"]) == (3, 2)
    assert stored_sets(client) == 4 and client.delete("/predictions/c0").status_code == 200
    assert stored_sets(client) == 3


def test_every_door_gives_a_stored_set_back(client: Client, tmp_path: Path) -> None:
    """An empty set is a set. An answer without one has null."""
    p_NC, _, _ = drawn(3)
    given = [["spam", "ham"], [], ["news"]]
    send(client, p_NC, given, set_level=0.9)
    other = {"id": "other", "probabilities": [0.5, 0.3, 0.2], "time": 86_400}
    client.send("/observe", {"observations": [other], "classes": CLASSES, "model": "plain", "version": "1"})
    expected = {"r0": ["ham", "spam"], "r1": [], "r2": ["news"]}
    assert {id_: client.get(f"/predictions/{id_}").json()["set"] for id_ in expected} == expected
    assert client.get("/predictions/other").json()["set"] is None

    text = client.get("/predictions", params=WHOSE).text
    assert {row["id"]: json.loads(row["set"]) for row in csv.DictReader(io.StringIO(text))} == expected
    plain = client.get("/predictions", params={"model": "plain", "version": "1"}).text
    assert "set" not in plain.splitlines()[0].split(",")
    query = {**WHOSE, "format": "parquet", "probabilities": "true"}
    table = parquet.read_table(io.BytesIO(client.get("/predictions", params=query).content))
    assert dict(zip(table["id"].to_pylist(), table["set"].to_pylist(), strict=True)) == expected
    assert np.array(table["ham"]) == pytest.approx(p_NC[:, 0], abs=1e-6)

    archive = AnswerArchive(client.app.state.runtime.store, str(tmp_path))
    assert client.run(archive.run(2**42)) == 4
    (path,) = tmp_path.glob("mail/7/*.parquet")
    table = parquet.read_table(path)
    assert dict(zip(table["id"].to_pylist(), table["set"].to_pylist(), strict=True)) == expected
    assert client.get("/predictions/r0").status_code == 404 and stored_sets(client) == 0
    assert len(reading.read(path, reading.Form(needs_labels=False))) == 3


def test_a_report_on_the_exported_table_has_the_same_coverage(client: Client, tmp_path: Path) -> None:
    p_NC, y_N, sets = drawn(200)
    send(client, p_NC, sets, set_level=0.9, set_rows=500)
    label(client, y_N)
    live = level_of(client, 200)
    for form in ("csv", "parquet"):
        path = tmp_path / f"answers.{form}"
        path.write_bytes(client.get("/predictions", params={**WHOSE, "format": form}).content)
        answers = reading.read(path, reading.Form(sets=SetRule.of_level(0.9, 500)))
        report = report_of_answers(answers)
        assert report.sets is not None
        found = report.sets.levels[0].model_dump()
        for name in ("labels", "hits", "coverage", "mean_size", "floor", "calibration_rows", "sizes", "tags"):
            assert found[name] == live[name]
        by_name = {one["name"]: one for one in found["classes"]}
        assert by_name == {one["name"]: one for one in live["classes"]}


def test_a_class_may_be_named_like_the_column(client: Client) -> None:
    whose: dict[str, Any] = {"model": "names", "version": "1", "classes": ["set", "decision"]}
    client.send("/observe", {"observations": [{"id": "n", "probabilities": [0.7, 0.3]}], **whose})
    query = {"model": "names", "version": "1", "format": "parquet", "probabilities": "true"}
    table = parquet.read_table(io.BytesIO(client.get("/predictions", params=query).content))
    assert [*table["set"].to_pylist(), *table["decision"].to_pylist()] == pytest.approx([0.7, 0.3])
    whose |= {"version": "2", "set_level": 0.9}
    client.send("/observe", {"observations": [{"id": "m", "probabilities": [0.7, 0.3], "set": ["set"]}], **whose})
    refused = client.get("/predictions", params={**query, "version": "2"})
    assert "the class 'set' has the same name as a column" in refused.json()["error"]["message"]


def stored_sets(client: Client) -> int:
    def count() -> Work[int]:
        ((rows,),) = yield Query("SELECT count(*) FROM observed_sets")
        return int(rows)

    return int(client.run(client.app.state.runtime.store.database.read(count)))


def refusal(client: Client, row: dict[str, Any], **more: Any) -> str:
    body = {
        "observations": [{"id": "x1", "probabilities": [0.5, 0.3, 0.2], **row}],
        "classes": CLASSES,
        **WHOSE,
        **more,
    }
    answer = client.post("/observe", json=body)
    assert answer.status_code in (409, 422)
    return str(answer.json()["error"]["message"])


def test_bad_sets_are_refused_by_row(client: Client) -> None:
    p_NC, _, sets = drawn(3)
    send(client, p_NC, [["ham"], [], sets[2]], set_level=0.9)
    assert "the row has no set, but mail/7 has sets of level 0.9" in refusal(client, {})
    assert "set holds 'eggs'; mail/7 has the classes" in refusal(client, {"set": ["eggs"]})
    assert "expected a list of different class names" in refusal(client, {"set": ["ham", "ham"]})
    assert "expected a list of different class names" in refusal(client, {"set": "ham"})
    assert "has sets of level 0.9, but the call gives sets of level 0.8" in refusal(client, {"set": []}, set_level=0.8)
    rows = refusal(client, {"set": []}, set_level=0.9, set_rows=50)
    assert "sets of level 0.9 of 50 calibration rows" in rows
    assert "the id 'r0' was used for another answer" in refusal(
        client, {"id": "r0", "probabilities": p_NC[0].tolist(), "tag": "a", "set": ["ham", "spam"]}
    )
    assert "set_level is 1.5; allowed is (0, 1)" in refusal(client, {"set": []}, set_level=1.5)
    assert "set_rows is 0; allowed are whole numbers from 1" in refusal(client, {"set": []}, set_level=0.9, set_rows=0)
    most = 2**53 - 1
    assert f"set_rows is {most + 1}; allowed are whole numbers from 1 to 2^53 - 1" in refusal(
        client, {"set": []}, set_level=0.9, set_rows=most + 1
    )
    assert "set_rows is given without set_level" in refusal(client, {"set": []}, set_rows=9)
    assert "other/1 has none; give their level (set_level)" in refusal(
        client, {"set": ["ham"]}, model="other", version="1"
    )


def bulk(client: Client, body: bytes | str, media_type: str, **query: Any) -> dict[str, Any]:
    options: dict[str, Any] = {**WHOSE, "classes": ",".join(CLASSES), "set_level": 0.9, "set_rows": 500, **query}
    options = {name: value for name, value in options.items() if value is not None}
    sent = client.post("/observe", content=body, headers={"content-type": media_type}, params=options)
    assert sent.status_code == 200, sent.text
    tree: dict[str, Any] = sent.json()
    return tree


def csv_of(ids: list[str], p_NC: Any, cells: list[str]) -> str:
    file = io.StringIO()
    rows = zip(ids, *p_NC.T.tolist(), cells, strict=True)
    csv.writer(file).writerows([("id", *CLASSES, "set"), *rows])
    return file.getvalue()


def test_the_largest_number_of_calibration_rows(client: Client) -> None:
    """Its floor is the level: the threshold of so many rows covers as it says."""
    p_NC, y_N, sets = drawn(3)
    send(client, p_NC, sets, set_level=0.9, set_rows=2**53 - 1)
    label(client, y_N)
    level = level_of(client, 3)
    assert level["calibration_rows"] == 2**53 - 1 and level["floor"] == pytest.approx(0.9)


@pytest.mark.few(2)
@pytest.mark.parametrize("form", ["csv", "lists", "large lists", "texts"])
def test_a_table_may_have_sets(client: Client, form: str) -> None:
    """The same answers as JSON are known afterwards, so the sets are the same."""
    p_NC, y_N, sets = drawn(40)
    sets[3] = []
    ids = [f"r{n}" for n in range(40)]
    cells = [json.dumps(members) for members in sets]
    if form == "csv":
        found = bulk(client, csv_of(ids, p_NC, cells), CSV)
    else:
        kinds: dict[str, Any] = {
            "lists": pa.array(sets, pa.list_(pa.string())),
            "large lists": pa.array(sets, pa.large_list(pa.dictionary(pa.int32(), pa.string()))),
            "texts": pa.array(cells),
        }
        found = bulk(
            client, parquet_of({"id": ids, "set": kinds[form], **dict(zip(CLASSES, p_NC.T, strict=True))}), PARQUET
        )
    assert (found["stored"], found["failed"]) == (40, 0)
    body: dict[str, Any] = {"classes": CLASSES, **WHOSE}
    body["observations"] = [
        {"id": id_, "probabilities": p, "set": members}
        for id_, p, members in zip(ids, p_NC.tolist(), sets, strict=True)
    ]
    assert client.send("/observe", body)["already_known"] == 40
    label(client, y_N)
    assert level_of(client, 40)["hits"] == sum(CLASSES[y] in one for one, y in zip(sets, y_N, strict=True))


def test_bad_sets_of_a_table_are_refused_by_row(client: Client) -> None:
    p_NC = np.full((6, 3), 1 / 3)
    ids = [f"r{n}" for n in range(6)]
    bad = ['["ham"]', "", "ham", '["eggs"]', '["ham", "ham"]', "0.25"]
    expected = {
        1: "the row has no set",
        2: "set is 'ham'; expected a list of class names in JSON",
        3: "set holds 'eggs'; mail/7 has the classes",
        4: "expected a list of different class names",
        5: "If set is a class, give the names of all classes in ?classes=",
    }

    def check(found: dict[str, Any], first: int) -> None:
        assert (found["stored"] + found["already_known"], found["failed"]) == (1, 5)
        messages = {problem["row"] - first: problem["message"] for problem in found["problems"]}
        assert messages.keys() == expected.keys()
        assert not [n for n, words in expected.items() if words not in messages[n]], messages

    check(bulk(client, csv_of(ids, p_NC, bad), CSV), 2)
    columns = {"id": ids, **dict(zip(CLASSES, p_NC.T, strict=True))}
    texts = pa.array([cell or None for cell in bad])
    check(bulk(client, parquet_of({**columns, "set": texts}), PARQUET), 0)
    lists = [["ham"], None, [None], ["eggs"], ["ham", "ham"], ["x" * 5000]]
    expected |= {2: "expected a list of different class names", 5: "set has 5,000 bytes; the limit is 4,096"}
    check(bulk(client, parquet_of({**columns, "set": pa.array(lists, pa.list_(pa.string()))}), PARQUET), 0)
    numbers = parquet_of({**columns, "set": pa.array([[1]] * 6, pa.list_(pa.int64()))})
    query = {**WHOSE, "classes": ",".join(CLASSES), "set_level": 0.9}
    refused = client.post("/observe", content=numbers, headers={"content-type": PARQUET}, params=query)
    assert refused.status_code == 422 and "expected lists of texts, or lists in JSON as text" in refused.text


def test_a_file_whose_sets_are_all_empty(client: Client) -> None:
    """Arrow has no type for the members of such lists."""
    columns = {"id": ["e0", "e1", "e2"], **{name: [1 / 3] * 3 for name in CLASSES}}
    assert bulk(client, parquet_of({**columns, "set": pa.array([[], [], []])}), PARQUET)["stored"] == 3
    assert [client.get(f"/predictions/e{n}").json()["set"] for n in range(3)] == [[]] * 3
    nulls = bulk(
        client, parquet_of({**columns, "id": ["n0", "n1", "n2"], "set": pa.array([[], [None], None])}), PARQUET
    )
    assert (nulls["stored"], nulls["failed"]) == (1, 2)


def test_a_column_of_numbers_may_be_a_class_named_set(client: Client) -> None:
    whose: dict[str, Any] = {"model": "names", "version": "1", "classes": "set,no", "set_level": None, "set_rows": None}
    assert bulk(client, "id,set,no\na,0.7,0.3\n", CSV, **whose)["stored"] == 1
    body = parquet_of({"id": ["b"], "set": [0.7], "no": [0.3]})
    assert bulk(client, body, PARQUET, **whose | {"classes": None})["stored"] == 1
    assert bulk(client, "id,predicted,confidence,set\nc,x,0.6,0.7\n", CSV, **whose | {"classes": None})["failed"] == 1


def test_a_class_with_the_name_of_a_source_is_no_source(client: Client) -> None:
    """One id with another source and another set is another answer."""
    whose: dict[str, Any] = {"classes": ["native", "no"], "set_level": 0.9, **WHOSE}
    row: dict[str, Any] = {"id": "s1", "probabilities": [0.7, 0.3]}
    client.send("/observe", {"observations": [{**row, "set": ["native"]}], **whose})
    other = {"observations": [{**row, "set": [], "confidence_source": "native"}], **whose}
    assert "the id 's1' was used for another answer" in client.refusal("/observe", other, 409)


def test_the_client_sends_sets() -> None:
    options: Any = {"sets": [["ham"], []], "set_level": 0.9, "set_rows": 99, "classes": ["ham", "spam"]}
    rows, _ = observation_rows(["a", "b"], [[0.9, 0.1], [0.3, 0.7]], options)
    assert [row["set"] for row in rows] == [["ham"], []]
    assert {"set_level": 0.9, "set_rows": 99}.items() <= shared_options(options).items()


def test_a_given_rule_has_the_floor_of_its_rows_and_computes_nothing() -> None:
    assert SetRule.of_level(0.9).floors == (0.9,)
    assert SetRule.of_level(0.9, 999).floors == (coverage_floor(900, 999, 0.9),)
    assert SetRule.of_level(0.9, 5).floors == (0.9,)  # five rows give no threshold
    with pytest.raises(ValueError, match="given by another server"):
        SetRule.of_level(0.9).sets([[0.5, 0.5]])
