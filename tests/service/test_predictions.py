"""Stored predictions over HTTP: one by its id, its removal, and all of a version as a table."""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from service.http import hashed_keys
from service.store import StoreError
from tests.service.app_client import Client
from tests.service.tiny_bundle import CLASSES, pictures, write_bundle
from trueodds.bundle import open_models
from trueodds.reports.table import reading
from trueodds.reports.table.reading import Form

NAMES = ["id", "time", "model", "version", "tag", "predicted", "confidence", "label", "label_time", "corrected",
         "import_id", "propensity", "confidence_source", "judge_label"]  # fmt: skip


def answered(client: Client, count: int, **query: Any) -> list[dict[str, Any]]:
    answer = client.post("/predict", json={"instances": pictures(count, seed=len(query)), **query.pop("body", {})},
                         params=query)  # fmt: skip
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["predictions"]
    return rows


def table(client: Client, **query: Any) -> list[dict[str, str]]:
    answer = client.get("/predictions", params=query)
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_one_prediction_and_its_label(client: Client) -> None:
    own = "order/17 é"
    (row,) = answered(client, 1, tag="page", propensity=0.5, body={"ids": [own]})
    before = client.get("/predictions/order%2F17%20é").json()
    assert (before["label"], before["label_time"], before["corrected"], before["import_id"]) == (None,) * 4
    assert before["probabilities"] == row["probabilities"] and before["classes"] == list(CLASSES)
    assert (before["predicted"], before["confidence"]) == (row["label"], row["confidence"])
    assert (before["tag"], before["propensity"], before["model"]) == ("page", 0.5, "tiny")
    client.post("/feedback", json={"id": own, "index": 0, "import_id": "first"})
    client.post("/feedback", json={"id": own, "index": 1, "import_id": "second", "correct": True})
    after = client.get(f"/predictions/{own}", params={"model": "tiny"}).json()
    assert (after["label"], after["corrected"], after["import_id"]) == (CLASSES[1], True, "second")
    assert after["label_time"] >= after["time"] == before["time"]
    for url, words in [
        ("/predictions/none", "no prediction has the id 'none'; use an id that /predict returned"),
        ("/predictions/%00", "no prediction has the id"),
        ("/predictions/none?model=other", "no prediction of 'other' has the id 'none'"),
    ]:
        refused = client.get(url)
        assert (refused.status_code, words in refused.json()["error"]["message"]) == (404, True), refused.text


def test_an_id_of_several_models_and_of_a_shadow(client: Client, tmp_path: Any) -> None:
    """The answer is that of the model, unless its shadow is named; removed together."""
    folder = open_models(tmp_path / "models")
    folder.publish(write_bundle(tmp_path / "other", name="other"))
    client.run(client.app.state.runtime.registry.look())
    body = {"ids": ["mine"]}
    answered(client, 1, body=body)
    answered(client, 1, model="other", body=body)
    several = client.get("/predictions/mine")
    assert several.status_code == 409 and "several models have the id 'mine' (other, tiny)" in several.text
    assert client.run(client.http.delete("/predictions/mine")).status_code == 409
    removed = client.run(client.http.delete("/predictions/mine?model=other"))
    assert removed.json() == {"predictions": 1, "labels": 0, "held": 0}
    assert client.get("/predictions/mine").json()["model"] == "tiny"


def test_a_prediction_is_removed_and_the_sums_stay(client: Client) -> None:
    first, second = answered(client, 2)
    client.label([{"id": first["id"], "index": 0}, {"id": second["id"], "index": 0}])
    client.label([{"id": first["id"], "index": 1, "correct": True}])
    client.label([{"id": "early", "index": 1, "model": "tiny"}])
    before = client.report()
    path = f"/predictions/{first['id']}"
    assert client.run(client.http.delete(path)).json() == {"predictions": 1, "labels": 1, "held": 0}
    again = client.run(client.http.delete(path))
    assert again.status_code == 404 and client.get(path).status_code == 404
    after = client.report()
    assert (after["labelled"], after["nll"]) == (before["labelled"], before["nll"]) and after["labelled"] == 2
    assert client.get(f"/predictions/{second['id']}").json()["label"] == CLASSES[0]
    assert client.run(client.http.delete("/predictions/early")).status_code == 404
    held = client.run(client.http.delete("/predictions/early?model=tiny"))
    assert held.json() == {"predictions": 0, "labels": 0, "held": 1}
    for url in ("/predictions/x?model=none", "/predictions/%00?model=tiny", "/predictions/x?model=%00"):
        assert client.run(client.http.delete(url)).status_code == 404


def test_the_table(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """CSV and Parquet, in blocks of two rows; ids of ours first, then own ones."""
    export = client.app.state.runtime.store.export
    monkeypatch.setattr(client.app.state.runtime.store, "export", lambda *a, **k: export(*a, **k, limit=2))
    ours = answered(client, 5, tag="a, b")
    own = answered(client, 3, body={"ids": ["z", "x", "y"]})
    client.post("/feedback", json={"id": "y", "index": 3, "import_id": "friday"})
    rows = table(client, probabilities=True)
    assert list(rows[0]) == [*NAMES, *CLASSES]
    assert [row["id"] for row in rows] == [*sorted(row["id"] for row in ours), "x", "y", "z"]
    answers = {row["id"]: row for row in (*ours, *own)}
    for row in rows:
        answer = answers[row["id"]]
        assert [float(row[name]) for name in CLASSES] == answer["probabilities"]
        assert (row["predicted"], float(row["confidence"])) == (answer["label"], answer["confidence"])
        assert row["tag"] == ("a, b" if answer in ours else "") and row["model"] == "tiny"
    (labelled,) = (row for row in rows if row["label"])
    assert (labelled["id"], labelled["label"], labelled["corrected"]) == ("y", CLASSES[3], "false")
    assert labelled["import_id"] == "friday" and labelled["label_time"].endswith("Z")
    packed = client.get("/predictions", params={"format": "parquet", "probabilities": True})
    columns = parquet.read_table(io.BytesIO(packed.content)).to_pylist()
    assert [row["id"] for row in columns] == [row["id"] for row in rows]
    assert [row["cat"] for row in columns] == [float(row["cat"]) for row in rows]
    assert columns[-2]["corrected"] is False and columns[0]["tag"] == "a, b" and columns[0]["label"] is None
    assert [f"{row['time']:%Y-%m-%dT%H:%M:%S}" for row in columns] == [row["time"][:19] for row in rows]
    assert table(client, since="2020-01-01", until="2020-01-02") == []
    assert len(table(client, since=rows[0]["time"])) == 8 and len(table(client, until=rows[0]["time"])) == 0


def test_a_spreadsheet_runs_no_cell_and_the_names_come_back(serve: Callable[..., Client], tmp_path: Path) -> None:
    """Names of classes, tags and ids that would be formulas: in the table, sent back as labels, and in a report."""
    classes = ("=1+1", "-1", "@cat", "'=odd")
    client, tag = serve(classes=classes), "=HYPERLINK(A1)"
    rows = answered(client, 4, tag=tag, body={"ids": ["+a", "-b", "c", "-1"]})
    answer = client.get("/predictions", params={"probabilities": True})
    for line in csv.reader(io.StringIO(answer.text)):
        assert not any(cell[:1] in "=+-@\t\r" for cell in line if cell and cell != "-1"), line
    told = list(csv.DictReader(io.StringIO(answer.text)))
    assert {row["tag"] for row in told} == {f"'{tag}"} and "'=1+1" in told[0] and "-1" in told[0]
    labels = io.StringIO()
    csv.writer(labels).writerows([("id", "label"), *((row["id"], row["predicted"]) for row in told)])
    sent = client.post("/feedback", content=labels.getvalue().encode(), headers={"content-type": "text/csv"})
    assert sent.json()["stored"] == 4, sent.text
    after = client.get("/predictions", params={"probabilities": True})
    assert client.report()["accuracy"] == 1.0
    (tmp_path / "a.csv").write_bytes(after.content)
    answers = reading.read(tmp_path / "a.csv", Form(classes=classes))
    assert answers.correct_N.all() and answers.groups.tags is not None and answers.groups.tags.values == (tag,)
    assert sorted(set(answers.predicted.as_list() if answers.predicted else [])) == sorted({r["label"] for r in rows})


def test_it_is_packed_where_that_is_wanted(client: Client) -> None:
    answered(client, 2)
    request = client.http.build_request("GET", "/predictions", headers={"accept-encoding": "gzip"})
    packed = client.run(client.http.send(request, stream=True))
    content = b"".join(client.run(_all(packed)))
    assert gzip.decompress(content).decode() == client.get("/predictions", headers={"accept-encoding": ""}).text


async def _all(answer: Any) -> list[bytes]:
    return [part async for part in answer.aiter_raw()]


def test_refusals(client: Client, serve: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    answered(client, 1)
    clash = serve(classes=("label", "other"))
    clash.predict(pictures(1))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for service, query, status, words in [
        (client, {"format": "xlsx"}, 422, "'csv' or 'parquet'"),
        (client, {"since": "2020-01-02", "until": "2020-01-01"}, 422, "is not before until"),
        (client, {"model": "none"}, 404, "there is no none/*; known are tiny/"),
        (client, {"limit": 3}, 422, "/predictions has no parameter 'limit'"),
        (
            client,
            {"format": "parquet"},
            422,
            "pyarrow is missing (pip install 'trueodds[serve,table]'). Use format=csv",
        ),
        (clash, {"probabilities": True}, 422, "the class 'label' has the same name as a column"),
    ]:
        refused = service.get("/predictions", params=query)
        assert (refused.status_code, words in refused.json()["error"]["message"]) == (status, True), refused.text

    def fails(*arguments: Any, **options: Any) -> Any:
        raise StoreError("the store cannot be read: it is gone")

    monkeypatch.setattr(client.app.state.runtime.store.database, "read", fails)
    assert client.get("/predictions").status_code == 503


def test_reading_and_removing_take_their_keys(serve: Callable[..., Client]) -> None:
    (reading, hashed), (admin, of_admin) = hashed_keys.make(), hashed_keys.make()
    client = serve({"read_key_hash": hashed, "admin_key_hash": of_admin})
    (row,) = client.predict(pictures(1))
    path = f"/predictions/{row['id']}"
    for url in ("/predictions", path):
        assert client.get(url).status_code == 401
        assert client.get(url, headers={"authorization": f"Bearer {reading}"}).status_code == 200
    for key, status in ((reading, 403), (admin, 200)):
        headers = {"authorization": f"Bearer {key}"}
        assert client.run(client.http.delete(path, headers=headers)).status_code == status
