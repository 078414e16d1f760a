"""Labels in bulk, labelled logits out, readiness and retention: over HTTP."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from service.app import create_app
from service.settings import Settings
from service.store import StoreError, open_store
from service.store.housekeeping import keep_house
from tests.service.app_client import Client
from tests.service.store.rows import batch, version
from tests.service.tiny_bundle import pictures
from trueodds import logits

CSV, LINES = {"content-type": "text/csv; charset=utf-8"}, {"content-type": "application/x-ndjson"}


def ids_of(client: Client, count: int) -> list[str]:
    return [p["id"] for p in client.predict(pictures(count))]


def counted(client: Client) -> dict[str, int]:
    """What /metrics says about labels."""
    counts = re.findall(r'trueodds_labels_total{outcome="(\w+)"} (\d+)', client.get("/metrics").text)
    return {outcome: int(count) for outcome, count in counts}


def test_csv_rows_stand_alone(client: Client) -> None:
    ids = ids_of(client, 4)
    rows = [
        "id,label,correct",
        f"{ids[0]},3,",
        f'"{ids[1]}","cat",false',
        "",
        f"{ids[0]},cat,",
        f"{ids[0]},cat,TRUE",
        "none,cat,",
        f"{ids[2]},cow,",
        f"{ids[2]},cat,perhaps",
        f"{ids[2]},cat",
        f"{ids[3]},hare,1\r",
    ]
    answer = client.post("/feedback", content="\n".join(rows).encode(), headers=CSV)
    assert answer.status_code == 200, answer.text
    report = answer.json()
    problems = report.pop("problems")
    assert report.pop("import_id") == answer.headers["x-import-id"]
    assert report == {"rows": 9, "stored": 3, "already_known": 0, "corrected": 1, "held": 0, "failed": 5}
    assert [(p["row"], p["id"], p["code"]) for p in problems] == [
        (5, ids[0], "conflicting_label"),
        (7, "none", "unknown_id"),
        (8, ids[2], "unknown_class"),
        (9, ids[2], "invalid_row"),
        (10, None, "invalid_row"),
    ]
    assert client.report()["labelled"] == 3
    assert counted(client) == {
        "stored": 3,
        "corrected": 1,
        "conflicting_label": 1,
        "unmatched": 1,
        "unknown_class": 1,
        "invalid_row": 2,
    }


def test_csv_by_index_and_lines_of_json(client: Client) -> None:
    ids = ids_of(client, 4)
    by_index = f"\ufeffid,index,model\n{ids[0]},2,tiny\n{ids[1]},2,\n{ids[2]},x,\nmine,1,tiny\n".encode()
    report = client.post("/feedback", content=by_index, headers=CSV).json()
    assert (report["stored"], report["held"], report["failed"]) == (2, 1, 1)
    assert "expected a whole number" in report["problems"][0]["message"]
    lines = [json.dumps({"id": ids[0], "label": "3"}), "{", "[]", json.dumps({"id": ids[3], "index": 0, "model": 3})]
    report = client.post("/feedback", content="\n".join(lines).encode(), headers=LINES).json()
    assert (report["already_known"], report["failed"], report["rows"]) == (1, 3, 4)


@pytest.mark.few(8)
@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["unix", "windows", "old mac"])
@pytest.mark.parametrize("block", [1, 40, 100_000])
def test_csv_as_spreadsheets_write_it(
    serve: Callable[..., Client], monkeypatch: pytest.MonkeyPatch, mark: str, end: str, block: int
) -> None:
    """The separator of the header, a mark before it, quoted cells with separators and line ends; rows by number."""
    monkeypatch.setattr("service.bulk.lines.blocks", blocks_of(block))
    client = serve(classes=("a,b;c\td", f"two{end}lines", "ü"))
    ids = ids_of(client, 3)
    rows = [
        ["id", "label", "correct"],
        [ids[0], '"a,b;c\td"', ""],
        [ids[1], f'"two{end}lines"', ""],
        [],
        [f'"no{end}{end}such"', "ü", ""],
        ["none", "ü", ""],
        ["mine", '"never closed', ""],
        [ids[2], "ü", ""],
        ["none too", "ü", ""],
    ]
    body = "\ufeff" + end.join(mark.join(row) for row in rows) + end
    report = client.post("/feedback", content=body.encode(), headers=CSV).json()
    assert (report["rows"], report["stored"], report["failed"]) == (7, 3, 4), report
    assert [(p["row"], p["code"]) for p in report["problems"]] == [
        (5, "invalid_row"),
        (6, "unknown_id"),
        (7, "invalid_row"),
        (9, "unknown_id"),
    ]
    assert "close each quote in the cell that opens it" in report["problems"][2]["message"]
    lines = client.post("/feedback", content=body.encode(), headers=CSV | {"accept": "application/x-ndjson"}).text
    assert [json.loads(line)["row"] for line in lines.splitlines()] == [2, 3, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_csv_with_quotes_blanks_and_numbers_with_a_point(client: Client, mark: str) -> None:
    """As R's write.csv, databases, and pandas with a gap in a column write it; CR alone ends a line, in pieces too."""
    ids = ids_of(client, 3)
    rows = [
        ('"id"', ' "index"', '"correct"'),
        (f'"{ids[0]}"', "1.0", "0.0"),
        (f" {ids[1]} ", " 0 ", ""),
        (ids[2], "0,5", ""),
    ]
    body = "\r".join(mark.join(row if mark != "," else [cell.replace("0,5", '"0,5"') for cell in row]) for row in rows)

    async def pieces() -> AsyncIterator[bytes]:
        for byte in body.encode():
            yield bytes([byte])

    report = client.run(client.http.post("/feedback", content=pieces(), headers=CSV)).json()
    assert (report["stored"], report["failed"]) == (2, 1), report
    assert "index is '0,5'" in report["problems"][0]["message"]
    report = client.post(
        "/feedback", content=f"id{mark}label{mark}correct\n{ids[0]}{mark} dog {mark}1.0".encode(), headers=CSV
    ).json()
    assert report["already_known"] == 1, report


def test_lines_with_cr_alone_stay_a_stream(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.labels.feedback_route.BLOCK", 100)
    ids = ids_of(client, 20)
    body = ("id,label\r" + "".join(f"{id_},cat\r" for id_ in ids)).encode()
    assert client.post("/feedback", content=body, headers=CSV).json()["stored"] == 20


def test_a_whole_number_with_a_point_is_the_class_of_that_name(serve: Callable[..., Client]) -> None:
    client = serve(classes=("7", "8", "9"))
    ids = ids_of(client, 2)
    report = client.post("/feedback", content=f"id,label\n{ids[0]},8.0\n{ids[1]},8.5".encode(), headers=CSV).json()
    assert (report["stored"], report["failed"]) == (1, 1)
    assert "unknown class '8.5'" in report["problems"][0]["message"]


def blocks_of(lines: int) -> Callable[..., AsyncIterator[bytes]]:
    """Whole lines as the service reads them from a request, so many at a time."""

    async def blocks(request: Any, *_: Any) -> AsyncIterator[bytes]:
        every = (await request.body()).splitlines(keepends=True)
        for start in range(0, len(every), lines):
            yield b"".join(every[start : start + lines])

    return blocks


def test_a_line_for_every_row_if_wanted(client: Client) -> None:
    ids = ids_of(client, 3)
    lines = "".join(json.dumps({"id": id_, "index": 0}) + "\n" for id_ in [*ids, "none", ids[0]])
    answer = client.post("/feedback", content=lines.encode(), headers=LINES | {"accept": "application/x-ndjson"})
    records = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["row"] for row in records] == list(range(1, 6))
    assert [row["outcome"] for row in records] == ["stored", "stored", "stored", "failed", "already_known"]
    assert records[3]["code"] == "unknown_id"


def test_a_long_stream_is_taken_block_by_block(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.labels.feedback_route.BLOCK", 500)
    ids = ids_of(client, 100)
    body = ("id,label\n" + "".join(f"{id_},cat\n" for id_ in ids)).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 37):
            yield body[start : start + 37]

    taken: list[int] = []
    store = client.app.state.runtime.store
    put = store.put_each_label

    async def counting(labels: list[Any], import_id: str) -> Any:
        taken.append(len(labels))
        return await put(labels, import_id)

    monkeypatch.setattr(store, "put_each_label", counting)
    report = client.run(client.http.post("/feedback", content=pieces(), headers=CSV)).json()
    assert (report["rows"], report["stored"]) == (100, 100)
    assert len(taken) > 5 and sum(taken) == 100
    long = client.post("/feedback", content=b"id,label\n" + b"x" * 2000, headers=CSV)
    assert long.status_code == 413
    assert "a line has more than 500 bytes" in long.text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "the body is empty"),
        (b"\n\n", "the body is empty"),
        (b"id\n", "expected a header"),
        (b"id,label,index\n", "expected a header"),
        (b"id,id,label\n", "expected a header"),
        (b"id,label,colour\n", "'id,label,colour'"),
        (b"\xff,label\n", "not UTF-8; in a spreadsheet, save it as 'CSV UTF-8'"),
        (b"id;label,index\n", "separated by commas, semicolons, tabs or |"),
        (b"id:label\n", "the CSV begins with 'id:label'"),
        ("id,label\n".encode("utf-16"), "the CSV is UTF-16; save it as UTF-8"),
        (b'"id,label\n', "not CSV"),
    ],
)
def test_bad_headers(client: Client, body: bytes, words: str) -> None:
    answer = client.post("/feedback", content=body, headers=CSV)
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]


def test_hostile_lines_are_rows_that_failed(client: Client) -> None:
    ids = ids_of(client, 1)
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 256, int(n), np.uint8).tobytes().replace(b"\n", b" ") for n in rng.integers(1, 60, 500)]
    hostile = [b'"' * 5, b"a\0b,cat", b"," * 300, "é,\N{SNOWMAN}".encode(), ids[0].encode() + b",cat"]
    for headers, first in ((CSV, b"id,label\n"), (LINES, b"")):
        answer = client.post("/feedback", content=first + b"\n".join([*rows, *hostile]), headers=headers)
        assert answer.status_code == 200
        assert answer.json()["failed"] >= 500


def test_a_store_that_fails_midway_says_how_far_it_came(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.labels.feedback_route.BLOCK", 200)
    ids, store, calls = ids_of(client, 20), client.app.state.runtime.store, 0
    put = store.put_each_label

    async def fails(labels: list[Any], import_id: str) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise StoreError("the disk is full")
        return await put(labels, import_id)

    monkeypatch.setattr(store, "put_each_label", fails)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"id,label\n"
        for id_ in ids:
            yield f"{id_},cat\n".encode()

    answer = client.run(client.http.post("/feedback", content=pieces(), headers=CSV))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], answer.headers["retry-after"]) == (503, "store_unavailable", "1")
    assert error["message"].startswith(f"the disk is full. {error['rows']} rows were processed before")
    assert client.report()["labelled"] == counted(client)["stored"] == error["stored"] > 0


def test_many_bad_names_do_not_hold_others_up(serve: Callable[..., Client]) -> None:
    """Looking for the nearest name among hundreds costs milliseconds a row."""
    client = serve(classes=tuple(f"class number {k}" for k in range(600)))
    ids = ids_of(client, 1)
    started = time.process_time()  # of this process, the service's part included: other processes do not count
    rows = [{"id": ids[0], "label": f"class numbr {k}"} for k in range(5000)]
    answer = client.post("/feedback", json={"labels": rows})
    assert answer.status_code == 422
    assert answer.json()["error"]["problem_count"] == 5000
    assert time.process_time() - started < 10  # 40 s if every row were compared


def test_labelled_logits_are_what_recalibration_reads(client: Client, tmp_path: Path) -> None:
    nothing = client.get("/admin/labelled.npz")
    assert nothing.status_code == 404
    assert "has no labelled answers; send labels" in nothing.text
    ids = ids_of(client, 30)
    client.label([{"id": id_, "index": k % 4} for k, id_ in enumerate(ids[::-1])])
    answer = client.get("/admin/labelled.npz", params={"model": "tiny", "since": "2020-01-01"})
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content)
    (tmp_path / "labelled.npz").write_bytes(answer.content)
    rows = logits.read(tmp_path / "labelled.npz", "val")
    assert rows.labels_N.tolist() == [k % 4 for k in range(30)]
    stored = client.run(client.app.state.runtime.store.read_answers("tiny", ids))
    assert (rows.logits_NC == [np.frombuffer(stored[id_].logits, "<f4") for id_ in ids[::-1]]).all()
    times = np.load(io.BytesIO(answer.content))["val_created_ms"]
    assert (times == [stored[id_].created_ms for id_ in ids[::-1]]).all()
    last = np.load(io.BytesIO(client.get("/admin/labelled.npz", params={"last": 7}).content))
    assert (last["val_created_ms"] == times[-7:]).all() and last["val_labels"].tolist() == [
        k % 4 for k in range(23, 30)
    ]
    assert client.get("/admin/labelled.npz", params={"last": 0}).status_code == 422
    assert client.get("/admin/labelled.npz", params={"since": "2999-01-01T00:00:00Z"}).status_code == 404
    assert client.get("/admin/labelled.npz", params={"since": "yesterday"}).status_code == 422
    assert client.get("/admin/labelled.npz", params={"version": "x"}).status_code == 404


def test_not_ready_once_the_store_is_gone(settings: Settings) -> None:
    with Client(create_app(settings)) as client:
        assert client.get("/health/ready").status_code == 200
        Path(settings.store).rename(settings.store + ".aside")
        for answer in (client.get("/health/ready"), client.post("/predict", json={"instances": pictures(1)})):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert "was deleted or replaced while it was open" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("name", "limit"), [("retention_days", 36_525), ("hold_hours", 876_600)])
def test_times_that_housekeeping_cannot_reckon_with_are_refused(name: str, limit: int) -> None:
    assert getattr(Settings.model_validate({name: limit}), name) == limit
    for number in (limit + 1, 10**16):
        with pytest.raises(ValidationError, match=f"less than or equal to {limit}"):
            Settings.model_validate({name: number})


@pytest.mark.parametrize("days", [None, 2])
async def test_retention_runs_by_itself(tmp_path: Path, days: int | None) -> None:
    path, now = tmp_path / "s.sqlite", time.time_ns() // 1_000_000
    settings = Settings(store=path, retention_days=days)
    store = await open_store(settings.store)
    await store.put_version(version())
    old, new = (batch(3, now=now - 3_600_000 * hours) for hours in (60, 40))
    for answers in (old, new):
        await store.put_predictions(answers)
    path.rename(tmp_path / "aside")  # housekeeping goes on after the store was gone for a moment
    task = asyncio.create_task(keep_house(store, days, settings.hold_hours, seconds=0.01))
    await asyncio.sleep(0.05)
    (tmp_path / "aside").rename(path)
    kept = new.ids if days else [*old.ids, *new.ids]
    for _ in range(200):
        await asyncio.sleep(0.01)
        rows = await store.read_answers("m", [*old.ids, *new.ids])
        if set(rows) == set(kept):
            break
    assert set(rows) == set(kept)
    assert (await store.read_sums("m", "v1")).answers == 6
    task.cancel()
    await store.close()


def test_problems_have_the_numbers_of_their_lines(client: Client) -> None:
    """As an editor shows them: from 1, and blank lines count, whatever block they are in. CSV counts its header."""
    lines = b'{"id": "a", "index": 0}\n\n{"id": "b", "index": 0}\r\n' + b"\n" * 70_000 + b"{\n"
    problems = client.post("/feedback", content=lines, headers=LINES).json()["problems"]
    assert [problem["row"] for problem in problems] == [1, 3, 70_004]
    assert problems[2]["message"].startswith("not JSON: ") and "line 1" not in problems[2]["message"]
    table = b"id,index\na,0\n\nb,0\n"
    problems = client.post("/feedback", content=table, headers={"content-type": "text/csv"}).json()["problems"]
    assert [problem["row"] for problem in problems] == [2, 4]
    tree = {"labels": [{"id": "a", "index": 0}, {"id": "b", "index": 0}]}
    error = client.post("/feedback", json=tree).json()["error"]
    assert [problem["row"] for problem in error["problems"]] == [0, 1] and "counted from 0" in error["message"]
