"""Kills: consumers and the service die in the middle of many messages; nothing is lost, and nothing is there twice."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet
import pytest

import trueodds
from tests.service.hooks import until
from tests.service.test_process import server
from tests.streams.cluster import REAL, Consuming, Kafka, cluster

pytestmark = pytest.mark.full
ROWS = 6000


@pytest.fixture(scope="module", params=["mock", "real"])
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """The mock cluster of librdkafka, and a real one."""
    if request.param == "real" and not REAL:
        pytest.skip("needs a Kafka cluster: set TRUEODDS_KAFKA to its address, such as 127.0.0.1:9092")
    with cluster(REAL if request.param == "real" else "") as kafka:
        yield kafka


def free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return int(some.getsockname()[1])


def rows_of(http: httpx.Client, folder: Path) -> list[dict[str, Any]]:
    file = folder / "found.parquet"
    query = {"model": "mail", "format": "parquet"}
    file.write_bytes(http.get("/predictions", params=query, timeout=60).raise_for_status().content)
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(file).to_pylist()
    return rows


def publish(kafka: Kafka, answers: str, labels: str) -> dict[str, str]:
    """Publish answers, half of them without an id, and labels of the others. Return the labels."""
    known = {f"m-{n}": "ham" if n % 3 else "spam" for n in range(ROWS // 2)}
    numbers = {"probabilities": {"ham": 0.7, "spam": 0.3}}
    kafka.publish(answers, [numbers | ({"id": f"m-{n // 2}"} if n % 2 else {}) for n in range(ROWS)])
    kafka.publish(labels, [{"id": id_, "label": label} for id_, label in known.items()])
    return known


def check(kafka: Kafka, http: httpx.Client, folder: Path, known: dict[str, str], answers: str) -> None:
    rows = rows_of(http, folder)
    ids = [row["id"] for row in rows]
    assert len(ids) == len(set(ids)) == ROWS
    own = [id_ for id_ in ids if not id_.startswith("m-")]
    assert len(own) == ROWS // 2
    assert all(id_.startswith(f"kafka:{answers}:") for id_ in own)
    assert {row["id"]: row["label"] for row in rows if row["label"]} == known
    with trueodds.Client(str(http.base_url).rstrip("/")) as client:
        assert client.report(model="mail").labelled == len(known)  # in the sums, too
    assert kafka.committed(answers, "kills") == ROWS


def state(kafka: Kafka, topics: Iterable[str], group: str, consumers: Iterable[Consuming]) -> str:
    """Describe a group that makes no progress: what it has committed in each partition, and what its members said."""
    offsets = [f"{topic}: committed {kafka.offsets(topic, group)}" for topic in topics]
    return "\n".join([*offsets, *(consumer.state for consumer in consumers)])


def test_nothing_is_lost_and_nothing_is_twice(kafka: Kafka, folder: Path) -> None:
    """Two consumers in a group; one or the other is killed and started again, and then the service is killed."""
    answers, labels, dead = map(kafka.topic, ("answers", "labels", "dead"))
    known = publish(kafka, answers, labels)
    port, choice = str(free_port()), random.Random(0)
    url = f"http://127.0.0.1:{port}"
    topics = ["--answers", answers, "--labels", labels, "--dead-letters", dead, "--group", "kills"]
    options = [*topics, "--model", "mail", "--version", "1", "--batch", "100"]

    def begin() -> Consuming:
        return Consuming(kafka, url, *options, folder=folder)

    consumers, kills = [begin(), begin()], 0
    with server(folder, "--port", port) as (_, process):
        for _ in range(3):
            time.sleep(choice.uniform(2, 6))
            victim = choice.randrange(2)
            consumers[victim].kill()
            kills += 1
            consumers[victim] = begin()
        time.sleep(choice.uniform(3, 6))
        process.kill()
        process.wait()
        time.sleep(1)
    assert kills == 3
    with server(folder, "--port", port) as (http, _):
        until(
            lambda: kafka.committed(answers, "kills") == ROWS and kafka.committed(labels, "kills") == ROWS // 2,
            lambda: state(kafka, (answers, labels), "kills", consumers),
        )
        check(kafka, http, folder, known, answers)
        for consumer in consumers:
            consumer.process.terminate()
            assert consumer.end() == 0, consumer.state
    assert kafka.read(dead, 1, seconds=3) == []


def test_a_second_consumer_takes_its_share_and_a_stop_gives_it_back(kafka: Kafka, folder: Path) -> None:
    """Partitions go to and fro while messages arrive, without a kill."""
    answers = kafka.topic("answers")
    options = ["--answers", answers, "--group", answers, "--model", "mail", "--version", "1", "--metrics-port", "0"]
    numbers = {"probabilities": {"ham": 0.7, "spam": 0.3}}

    def partitions(consumer: Consuming) -> int:
        address = consumer.wait_for("metrics: ").removeprefix("metrics: ")
        return httpx.get(address, timeout=10).text.count(f'topic="{answers}"}} ') - 1  # one is of the messages

    with server(folder) as (http, _):
        url = str(http.base_url).rstrip("/")
        first = Consuming(kafka, url, *options, folder=folder)
        kafka.publish(answers, [numbers for _ in range(1000)])
        first.wait_for("1,000 messages")
        second = Consuming(kafka, url, *options, folder=folder)
        second.wait_for("lag 0 in 2 partitions")
        kafka.publish(answers, [numbers for _ in range(2000)])
        until(
            lambda: kafka.committed(answers, answers) == 3000, lambda: state(kafka, [answers], answers, [first, second])
        )
        first.wait_for("in 2 partitions")
        second.process.terminate()
        assert second.end() == 0, second.state
        kafka.publish(answers, [numbers for _ in range(2000)])
        until(
            lambda: kafka.committed(answers, answers) == 5000, lambda: state(kafka, [answers], answers, [first, second])
        )
        first.process.terminate()
        assert first.end() == 0, first.state
        rows = rows_of(http, folder)
        assert len({row["id"] for row in rows}) == len(rows) == 5000
