"""A Kafka cluster for tests: librdkafka's mock cluster, or the real one at the address in TRUEODDS_KAFKA.

The mock cluster speaks Kafka's protocol on a port of this machine, with groups, rebalances and offsets. It lives in
this process, so that consumers in other processes can be killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition, cimpl
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
"""Partitions of a topic; the mock cluster gives each topic as many."""
QUIET = {"log_level": 2}
PROMPT = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "max.poll.interval.ms": "20000",
    "fetch.wait.max.ms": "20",
    "fetch.error.backoff.ms": "20",
}
"""Options of consumers in tests.

A commit waits behind a fetch of an empty partition, by default for half a second. If the process of the mock cluster
stands still for more than a second during a rebalance, the cluster drops the members' requests to join. A consumer asks
again `max.poll.interval.ms` + 3 s later, by default after 303 s.
"""
REAL = os.environ.get("TRUEODDS_KAFKA", "")
"""Address of a real cluster for tests."""


@dataclass
class Kafka:
    """A cluster, and a producer for it."""

    address: str
    is_real: bool
    producer: Producer

    def topic(self, name: str) -> str:
        """Create a topic that no other test has."""
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        if self.is_real:
            admin = AdminClient({"bootstrap.servers": self.address})
            for done in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
                done.result(30)
        else:
            self.producer.list_topics(topic, timeout=60)  # the mock cluster creates it
        return topic

    def publish(self, topic: str, values: Iterable[Any], key: Callable[[int], str] | None = None) -> None:
        """Publish values: bytes as they are, anything else as JSON. Return when the cluster has them."""
        errors = list[str]()
        for number, value in enumerate(values):
            data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            options = {"key": key(number)} if key else {"partition": number % PARTITIONS}
            while True:
                try:
                    self.producer.produce(
                        topic,
                        data,
                        on_delivery=lambda error, _: errors.append(str(error)) if error else None,
                        **options,
                    )
                    break
                except BufferError:
                    self.producer.poll(0.1)
            self.producer.poll(0)
        assert self.producer.flush(60) == 0
        assert not errors, errors[:3]

    def read(self, topic: str, count: int, seconds: float = 300) -> list[Message]:
        """Read `count` messages of a topic from its beginning."""
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "reader", "auto.offset.reset": "earliest"} | QUIET | PROMPT
        )
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        messages, deadline = list[Message](), time.monotonic() + seconds
        while len(messages) < count and time.monotonic() < deadline:
            messages += [one for one in consumer.consume(count - len(messages), 0.2) if one.error() is None]
        consumer.close()
        return messages

    def committed(self, topic: str, group: str) -> int:
        """Sum the offsets that a group has committed."""
        return sum(self.offsets(topic, group))

    def offsets(self, topic: str, group: str) -> list[int]:
        """Return the offset that a group has committed in each partition, 0 where it has none."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group, **QUIET})
        places = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=60)
        consumer.close()
        return [max(place.offset, 0) for place in places]


@contextmanager
def cluster(real: str = "") -> Iterator[Kafka]:
    """Start a mock cluster, or use a real one."""
    if real:
        yield Kafka(real, True, Producer({"bootstrap.servers": real, **QUIET, "linger.ms": 5}))
        return
    with mock_cluster() as address:
        yield Kafka(address, False, Producer({"bootstrap.servers": address, **QUIET, "linger.ms": 1}))


@contextmanager
def mock_cluster() -> Iterator[str]:
    """Start librdkafka's mock cluster. A new group has its members at once, not after the usual three seconds.

    That time cannot be set by `test.mock.num.brokers` of a producer, so this calls librdkafka itself (rdkafka_mock.h).
    """
    library = ctypes.CDLL(cimpl.__file__)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    functions: list[tuple[str, Any, list[Any]]] = [
        ("conf_new", pointer, []),
        ("conf_set", number, [pointer, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]),
        ("new", pointer, [number, pointer, ctypes.c_char_p, ctypes.c_size_t]),
        ("destroy", None, [pointer]),
        ("mock_cluster_new", pointer, [pointer, number]),
        ("mock_cluster_bootstraps", ctypes.c_char_p, [pointer]),
        ("mock_cluster_destroy", None, [pointer]),
        ("mock_group_initial_rebalance_delay_ms", None, [pointer, ctypes.c_int32]),
    ]
    kafka = {name: getattr(library, f"rd_kafka_{name}") for name, _, _ in functions}
    for name, result, arguments in functions:
        kafka[name].restype = result
        kafka[name].argtypes = arguments
    options, error = kafka["conf_new"](), ctypes.create_string_buffer(500)
    kafka["conf_set"](options, b"log_level", b"2", error, len(error))
    client = kafka["new"](0, options, error, len(error))
    assert client, error.value
    brokers = kafka["mock_cluster_new"](client, 1)
    kafka["mock_group_initial_rebalance_delay_ms"](brokers, 0)
    yield kafka["mock_cluster_bootstraps"](brokers).decode()
    kafka["mock_cluster_destroy"](brokers)
    kafka["destroy"](client)


class Consuming:
    """A consumer in a process of its own."""

    def __init__(self, kafka: Kafka, url: str, *options: str, config: str = "", folder: Path) -> None:
        file = folder / f"kafka-{uuid.uuid4().hex[:8]}.properties"
        file.write_text("".join(f"{name} = {value}\n" for name, value in PROMPT.items()) + config)
        command = [sys.executable, "-m", "trueodds", "consume", "--kafka", kafka.address, "--url", url]
        command += ["--kafka-config", str(file), "--every", "0.2s", *options]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = list[str]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def state(self) -> str:
        """What a test that fails says of this consumer."""
        status = self.process.poll()
        return f"consumer {self.process.pid}, {'running' if status is None else f'exit status {status}'}:\n{self.text}"

    def wait_for(self, words: str, seconds: float = 300) -> str:
        """Wait for a line with these words, and return it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := next((line for line in self.lines if words in line), ""):
                return found
            assert self.process.poll() is None or any(words in line for line in self.lines), self.state
            time.sleep(0.05)
        raise AssertionError(f"no {words!r} in {seconds} s: {self.state}")

    def end(self, seconds: float = 300) -> int:
        """Wait for the end, and return the exit status."""
        status = self.process.wait(seconds)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def kill(self) -> None:
        self.process.kill()
        self.end()
