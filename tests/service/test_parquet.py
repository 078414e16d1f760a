"""Parquet files at POST /observe: damaged ones, hostile ones, and rows that cannot be taken."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pytest

from service.observe.observation_formats import SET, TABLE
from service.observe.parquet import LISTS, MEMORY, PARQUET
from tests.service.app_client import Client
from tests.service.bodies import parquet_of
from trueodds.processes.confined import Readers
from trueodds.processes.pieces import ConfinedError

WHOSE = {"model": "mail", "version": "7"}
REQUIRED = b"%\x00\x18\x03ham"
"""In a file's metadata: that the column `ham` is required. Of optional columns pyarrow writes b"%\\x02..."."""


def good(name: str = "r", count: int = 4, **options: Any) -> bytes:
    ids = [f"{name}{n}" for n in range(count)]
    return parquet_of(
        {"id": ids, "ham": [0.25] * count, "spam": [0.75] * count, "tag": ["x", "y"] * (count // 2)}, **options
    )


def killer() -> bytes:
    """A file of which one byte is wrong: pyarrow ends the process that reads it."""
    body = good().replace(REQUIRED.replace(b"\x00", b"\x02"), REQUIRED)
    assert REQUIRED in body
    return body


def send(client: Client, content: bytes, **query: Any) -> httpx.Response:
    return client.post("/observe", content=content, headers={"content-type": PARQUET}, params=WHOSE | query)


def problems(client: Client, columns: dict[str, Any], **query: Any) -> dict[int, str]:
    """The messages of refused rows; all others must be stored."""
    answer = send(client, parquet_of(columns), **query)
    assert answer.status_code == 200, answer.text
    tree = answer.json()
    assert tree["rows"] == tree["stored"] + tree["failed"]
    return {problem["row"]: problem["message"] for problem in tree["problems"]}


@pytest.fixture(scope="module")
def watched(serve_once: Callable[..., Client]) -> Client:
    return serve_once()


@pytest.mark.full
def test_a_file_that_ends_its_reader_is_refused_and_nobody_elses(watched: Client) -> None:
    async def together() -> list[httpx.Response]:
        bodies = [good("a"), killer(), good("b"), killer(), good("c"), killer(), good("d")]
        headers = {"content-type": PARQUET}
        posts = [watched.http.post("/observe", params=WHOSE, content=body, headers=headers) for body in bodies]
        return await asyncio.gather(*posts)

    answers = watched.run(together())
    assert [answer.status_code for answer in answers] == [200, 422, 200, 422, 200, 422, 200]
    error = answers[1].json()["error"]
    assert error["code"] == "invalid_parquet" and "SIGABRT" in error["message"]


@pytest.mark.full
def test_damaged_files_are_refused_or_read(watched: Client) -> None:
    """Some hundred random changes: a reader may die, never more. benchmarks/faults sends 10,000 over HTTP."""
    readers = Readers("service.observe.parquet_file:read", seconds=5.0, memory=MEMORY)
    options = {"cells": TABLE, "lists": LISTS, "sets": SET, "rows": 2000, "most_values": 10**6, "most_bytes": 2**30}
    rng, body, found = np.random.default_rng(0), good(count=8), Counter[str]()
    try:
        for _ in range(300):
            damaged = bytearray(body)
            for place in rng.integers(0, len(body), rng.integers(1, 4)):
                damaged[place] = rng.integers(256)
            try:
                found["rows"] += sum(piece.head.get("rows", 0) for piece in readers.read(bytes(damaged), **options))
            except ConfinedError as error:
                found[error.code] += 1
        assert sum(piece.head.get("rows", 0) for piece in readers.read(body, **options)) == 8
    finally:
        readers.close()
    assert found["unreadable"] > 30 and found["rows"] > 30 and not found["start"], found


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"id": ["a"], "tag": [["x"]]}, "the column 'tag' holds 'list<"),
        ({"id": ["a"], "time": pa.array([1], pa.duration("s"))}, "'duration[s]'; expected a text, a number or a time"),
    ],
)
def test_columns_of_other_types_are_refused(watched: Client, columns: dict[str, Any], words: str) -> None:
    answer = send(watched, parquet_of({"ham": [0.5], "spam": [0.5], **columns}))
    assert (answer.status_code, words in answer.json()["error"]["message"]) == (422, True), answer.text


def long(place: str, count: int, size: int) -> bytes:
    """A file whose rows all have one long text: some kilobytes."""
    texts = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["x" * size])
    others = {"id": pa.array([f"d{n}" for n in range(count)]), "ham": [0.5] * count, "spam": [0.5] * count}
    body = parquet_of(others | {place: texts}, compression="zstd", store_schema=False)
    assert len(body) < 60_000
    return body


def test_long_texts_of_a_dictionary_are_refused_by_row_within_little_memory(watched: Client) -> None:
    before = psutil.Process().memory_info().rss
    answer = send(watched, long("tag", 2000, 900_000)).json()
    assert (answer["rows"], answer["failed"]) == (2000, 2000)
    assert answer["problems"][0]["message"] == "tag has 900,000 bytes; the limit is 4,096"
    assert psutil.Process().memory_info().rss < before + 100 * 2**20


def test_a_file_that_would_fill_the_memory_is_refused(watched: Client) -> None:
    started = time.process_time()  # of this process, the service's part included: other processes do not count
    answer = send(watched, long("id", 2000, 900_000))
    assert (
        answer.status_code == 422 and "more than 512 MiB of memory, the limit. Send it in several files" in answer.text
    )
    assert time.process_time() - started < 20


@pytest.mark.parametrize("name", ["id", "tag", "model", "version"])
@pytest.mark.parametrize("as_dictionary", [True, False])
def test_texts_that_are_not_utf8_are_refused_by_row(watched: Client, name: str, as_dictionary: bool) -> None:
    ids = pa.array([f"{name}{as_dictionary}{n}" for n in range(3)])
    texts = pa.array([b"mail", b"7\xff", b"x" * 5000]).view(pa.string())
    columns = {"id": ids, "ham": [0.5] * 3, "spam": [0.5] * 3}
    columns[name] = texts.dictionary_encode() if as_dictionary else texts
    if name == "id":
        columns[name] = pa.array([f"own{as_dictionary}".encode(), b"7\xff", b"x" * 5000]).view(pa.string())
    assert problems(watched, columns) == {
        1: f"{name} is not UTF-8: byte 1 is 0xff; write it as UTF-8",
        2: f"{name} has 5,000 bytes; the limit is 4,096",
    }


@pytest.mark.parametrize(
    "times",
    [
        pa.array([20_000, 2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32()),
        pa.array([20_000 * 86_400_000, 2**62 // 86_400_000 * 86_400_000, -86_400_000], pa.int64()).cast(pa.date64()),
        pa.array([20_000 * 86_400, 2**52, -(2**52)], pa.timestamp("s")),
        pa.array([20_000 * 86_400_000, 2**63 - 1, -(2**63)], pa.timestamp("ms", "UTC")),
        pa.array([20_000 * 86_400_000_000 + 999, 2**63 - 1, -(2**63)], pa.timestamp("us")),
        pa.array([20_000 * 86_400.0, np.inf, np.nan]),
        pa.array([20_000 * 86_400, 2**64 - 1, 2**63], pa.uint64()),
    ],
    ids=str,
)
def test_times_out_of_range_are_refused_by_row(watched: Client, times: pa.Array) -> None:
    ids = [f"{times.type}{n}".replace("[", "-").replace("]", "") for n in range(3)]
    found = problems(watched, {"id": ids, "ham": [0.5] * 3, "spam": [0.5] * 3, "time": times})
    assert list(found) == [1, 2] and all(message.startswith("time is ") for message in found.values())
    stored = watched.run(watched.app.state.runtime.store.read_answers("mail", ids))
    assert stored[ids[0]].created_ms == 20_000 * 86_400_000


@pytest.mark.full
def test_wide_lists_come_in_smaller_blocks_and_empty_files_have_no_rows(watched: Client) -> None:
    none = {name: pa.array([], pa.string() if name == "id" else pa.float64()) for name in ("id", "ham", "spam")}
    assert send(watched, parquet_of(none)).json()["rows"] == 0
    count, classes = 30, 40_000
    lists = pa.FixedSizeListArray.from_arrays(np.full(count * classes, 1 / classes), classes)
    body = parquet_of({"id": [f"wide{n}" for n in range(count)], "probabilities": lists})
    assert send(watched, body, version="wide").json()["stored"] == count
