"""A consumer between a cluster and a running service: what it stores, keeps, refuses and commits."""

from __future__ import annotations

import json
import signal
import threading
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet
import pytest

from tests.client.relay import Refuse, Relay
from tests.service.hooks import until
from tests.streams.cluster import PROMPT, Consuming, Kafka
from trueodds.client.keys import Keys
from trueodds.client.streams import StreamError, consumption
from trueodds.client.streams.broker import Cluster, DeadLetters, GroupMember
from trueodds.client.streams.consumption import ConsumerPlan, Consumption
from trueodds.client.streams.messages import ANSWERS, DECISIONS, LABELS, Door
from trueodds.client.streams.sender import Sender
from trueodds.client.streams.telemetry import Telemetry
from trueodds.errors import UserError

PAIR = {
    "request": {"model": "jev", "state": "Buy now", "questions": {"spam": {"type": "noul", "instructions": "Spam?"}}},
    "response": {"model": "jev-2", "answers": {"spam": {"type": "noul", "noul": 0.9}}},
}


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that fill no further, and labels that wait, are looked at often: no test here is about these times."""
    monkeypatch.setattr(consumption, "POLL", 0.05)
    monkeypatch.setattr(consumption, "RETRY", 0.1)


class Running:
    """A consumer in a thread of this process."""

    def __init__(
        self,
        kafka: Kafka,
        url: str,
        doors: dict[str, Door],
        plan: ConsumerPlan,
        dead: str | None = None,
        group: str = "",
        settings: dict[str, str] | None = None,
    ) -> None:
        self.lines, self.error = list[str](), list[UserError]()
        self.group, self._stop = group or f"group-{uuid.uuid4().hex[:8]}", threading.Event()
        given = {"group.id": self.group} | PROMPT | (settings or {})
        cluster = Cluster(kafka.address, given, self.lines.append)
        stop = self._stop.is_set
        sender = Sender(url, Keys(), {}, self.lines.append, stop, pause=0.1)
        letters = DeadLetters(cluster, dead) if dead else None
        self.telemetry, member = Telemetry(doors), GroupMember(cluster)
        self.consumption = Consumption(member, sender, doors, letters, plan, self.telemetry, self.lines.append, stop)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.consumption.run()
        except UserError as error:
            self.error.append(error)

    def state(self) -> str:
        """What a test that fails says of this consumer."""
        ended = f"ended by {self.error}" if self.error else "running" if self._thread.is_alive() else "ended"
        return "\n".join([f"group {self.group}, {ended}:", *self.lines])

    def end(self, seconds: float = 300) -> None:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), self.state()
        if self.error:
            raise self.error[0]

    def stop(self) -> None:
        self._stop.set()
        self.end()


def answer(model: str, id_: str) -> dict[str, Any]:
    return {"id": id_, "probabilities": {"ham": 0.9, "spam": 0.1}, "model": model, "version": "1"}


def stored(http: httpx.Client, model: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The stored answers of a model by id; an id that is there twice is an error."""
    file = folder / f"{uuid.uuid4().hex}.parquet"
    file.write_bytes(http.get("/predictions", params={"model": model, "format": "parquet"}).raise_for_status().content)
    rows = pyarrow.parquet.read_table(file).to_pylist()
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_rows_are_stored_once_and_what_is_refused_is_kept(
    kafka: Kafka, service: httpx.Client, url: str, folder: Path
) -> None:
    answers, decisions, labels, dead = map(kafka.topic, ("answers", "decisions", "labels", "dead"))
    model = "once"
    two = b"\n".join(json.dumps(answer(model, f"n-{n}")).encode() for n in range(2))
    listed = {"observations": [{"id": "l-1", "probabilities": [0.2, 0.8]}], "model": model, "version": "1"}
    bare = {name: value for name, value in answer(model, "").items() if name != "id"}
    twice = b'{"id": "b-2", "id": "b-3"}'
    bad = [b"no json", None, answer(model, "b-1") | {"tag": 3}, twice]
    before = int(1000 * time.time())
    kafka.publish(answers, [answer(model, "a-1"), two, listed | {"classes": ["ham", "spam"]}, bare, *bad])
    kafka.publish(decisions, [PAIR | {"id": "p-1"}, PAIR])
    truth = [{"id": "a-1", "label": "ham"}, {"labels": [{"id": "n-0", "label": "spam"}, {"id": "n-1", "label": "ham"}]}]
    kafka.publish(labels, [*truth, {"id": "p-1", "label": True, "question": "spam"}, {"id": "nobody", "label": "ham"}])

    doors = {answers: ANSWERS, decisions: DECISIONS, labels: LABELS}
    plan = ConsumerPlan(until_end=True, label_wait=0.5)
    consumer = Running(kafka, url, doors, plan, dead)
    consumer.end()

    found = stored(service, model, folder)
    made = next(id_ for id_ in found if id_.startswith("kafka:"))
    assert made.startswith(f"kafka:{answers}:3:")
    assert set(found) == {"a-1", "n-0", "n-1", "l-1", made}
    assert all(before - 1000 <= row["time"].timestamp() * 1000 <= time.time() * 1000 for row in found.values())
    assert {id_: row["label"] for id_, row in found.items() if row["label"]} == {
        "a-1": "ham",
        "n-0": "spam",
        "n-1": "ham",
    }
    pairs = stored(service, "spam", folder)
    assert len(pairs) == 2
    assert pairs["p-1"]["label"] == "true"

    letters = {one.value(): dict(one.headers() or []) for one in kafka.read(dead, 5)}
    assert set(letters) == {b"no json", None, json.dumps(bad[2]).encode(), twice, b'{"id": "nobody", "label": "ham"}'}
    codes = {value: headers["trueodds-code"] for value, headers in letters.items()}
    assert (codes[None], codes[b"no json"], codes[b'{"id": "nobody", "label": "ham"}']) == (
        b"no_value",
        b"invalid_row",
        b"unknown_id",
    )
    place = letters[twice]
    assert (place["trueodds-topic"], place["trueodds-partition"]) == (answers.encode(), b"3")
    assert (kafka.committed(answers, consumer.group), kafka.committed(labels, consumer.group)) == (8, 4)
    text = consumer.telemetry.text()
    assert f'trueodds_consumer_messages_total{{topic="{answers}"}} 8.0' in text
    assert f'trueodds_consumer_rows_total{{outcome="stored",topic="{answers}"}} 5.0' in text
    assert f'trueodds_consumer_dead_letters_total{{code="unknown_id",topic="{labels}"}} 1.0' in text
    assert f'trueodds_consumer_lag{{partition="3",topic="{answers}"}}' in text

    again = Running(kafka, url, doors, plan, dead)  # another group reads everything once more
    again.end()
    assert stored(service, model, folder) == found
    assert f'trueodds_consumer_rows_total{{outcome="already_known",topic="{answers}"}} 5.0' in again.telemetry.text()


def test_without_a_topic_for_dead_letters_the_consumer_ends_before_the_message(
    kafka: Kafka, service: httpx.Client, url: str, folder: Path
) -> None:
    topic = kafka.topic("answers")
    kafka.publish(topic, [answer("strict", f"s-{n}") for n in range(8)])
    kafka.publish(topic, [b"no json"])
    kafka.publish(topic, [answer("strict", "after")])
    consumer = Running(kafka, url, {topic: ANSWERS}, ConsumerPlan(until_end=True))
    with pytest.raises(StreamError, match=r"\[0\] at offset 2: not JSON.*--dead-letters"):
        consumer.end()
    assert kafka.committed(topic, consumer.group) == 8  # the message, and what follows it, are read again


def test_labels_wait_for_their_answers_and_keep_their_order(
    kafka: Kafka, service: httpx.Client, url: str, folder: Path
) -> None:
    answers, labels, dead = map(kafka.topic, ("answers", "labels", "dead"))
    kafka.publish(labels, [{"id": "w-1", "label": "spam"}, {"id": "w-2", "label": "ham"}], key=lambda _: "one")
    kafka.publish(labels, [{"id": "w-1", "label": "ham", "correct": True}], key=lambda _: "one")
    kafka.publish(labels, [{"id": "w-3", "label": "ham", "model": "wait"}], key=lambda _: "other")
    consumer = Running(kafka, url, {answers: ANSWERS, labels: LABELS}, ConsumerPlan(every=0.2, label_wait=30), dead)
    until(lambda: any("4 with labels waiting" in line for line in consumer.lines), consumer.state)
    assert kafka.committed(labels, consumer.group) == 0
    kafka.publish(answers, [answer("wait", "w-0")])
    until(
        lambda: consumer.consumption.messages == 2, consumer.state
    )  # the service knows the model now and holds the last label
    kafka.publish(answers, [answer("wait", "w-1")])
    until(lambda: consumer.consumption.messages == 5, consumer.state)
    kafka.publish(answers, [answer("wait", "w-2")])
    until(lambda: consumer.consumption.messages == 7, consumer.state)
    consumer.stop()
    found = stored(service, "wait", folder)
    assert {id_: (row["label"], row["corrected"]) for id_, row in found.items()} == {
        "w-0": (None, None),
        "w-1": ("ham", True),
        "w-2": ("ham", False),
    }
    assert kafka.committed(labels, consumer.group) == 4
    assert consumer.consumption.dead == 0


def test_no_label_is_given_up_before_the_answers_in_the_topics_are_stored(
    kafka: Kafka, service: httpx.Client, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer of labels alone, beside a slow one of answers in the same group of topics."""
    answers, labels, dead = map(kafka.topic, ("answers", "labels", "dead"))
    kafka.publish(labels, [{"id": "late", "label": "ham"}])
    kafka.publish(answers, [answer("slow", f"o-{n}") for n in range(40)])
    kafka.publish(answers, [answer("slow", "late")])
    original, seen = Sender.send, list[int]()

    def send(self: Sender, items: Any) -> None:
        if any(item.door is ANSWERS for item in items):
            time.sleep(0.1)
            seen.append(len(items))
        original(self, items)

    monkeypatch.setattr(Sender, "send", send)
    plan = ConsumerPlan(batch=5, label_wait=0, until_end=True)  # without the rule, the label would be given up at once
    consumer = Running(kafka, url, {answers: ANSWERS, labels: LABELS}, plan, dead)
    consumer.end()
    assert len(seen) >= 8
    assert consumer.consumption.dead == 0
    assert stored(service, "slow", folder)["late"]["label"] == "ham"


def test_too_many_waiting_labels_hold_the_labels_back(
    kafka: Kafka, service: httpx.Client, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "MOST_WAITING", 20)
    answers, labels, dead = map(kafka.topic, ("answers", "labels", "dead"))
    kafka.publish(labels, [{"id": f"h-{n}", "label": "ham"} for n in range(100)])
    original, reads = GroupMember.read, list[int]()

    def read(self: GroupMember, most: int, seconds: float) -> Any:
        reads.append(most)
        return original(self, most, seconds)

    monkeypatch.setattr(GroupMember, "read", read)
    consumer = Running(kafka, url, {answers: ANSWERS, labels: LABELS}, ConsumerPlan(batch=10, label_wait=60), dead)
    until(lambda: any("reading no more labels" in line for line in consumer.lines), consumer.state)
    held = len(reads)
    until(lambda: len(reads) > held + 10, consumer.state)
    assert "waiting_labels 2" in consumer.telemetry.text()  # 20 and at most a batch more
    kafka.publish(answers, [answer("hold", f"h-{n}") for n in range(100)])
    until(lambda: consumer.consumption.messages == 200, consumer.state)
    consumer.stop()
    assert all(row["label"] == "ham" for row in stored(service, "hold", folder).values())


def test_labels_that_are_held_back_are_read_after_a_member_came(
    kafka: Kafka, service: httpx.Client, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With cooperative-sticky, partitions that stay with this member keep their pause while others go and come."""
    monkeypatch.setattr(consumption, "MOST_WAITING", 20)
    topic, labels, dead = map(kafka.topic, ("answers", "labels", "dead"))
    kafka.publish(labels, [{"id": f"c-{n}", "label": "ham"} for n in range(100)])
    settings = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": "100"}
    doors = {topic: ANSWERS, labels: LABELS}
    consumer = Running(kafka, url, doors, ConsumerPlan(batch=10, label_wait=60), dead, settings=settings)
    until(lambda: any("reading no more labels" in line for line in consumer.lines), consumer.state)
    read = {id_ for one in consumer.consumption._waiting for id_ in one.item.ids}
    first = sorted(read)[: len(read) - 15]
    kafka.publish(topic, [answer("cooperative", id_) for id_ in first])
    until(lambda: len(consumer.consumption._waiting) == 15, consumer.state)
    taken: list[int] = []
    other = GroupMember(Cluster(kafka.address, {"group.id": consumer.group} | PROMPT | settings, print))
    other.subscribe([topic], lambda places: taken.append(len(places)), lambda _: None, lambda _: None)
    until(lambda: other.read(1, 0.05) and taken, consumer.state)
    other.close()
    kafka.publish(topic, [answer("cooperative", f"c-{n}") for n in range(100) if f"c-{n}" not in first])
    until(lambda: consumer.consumption.messages == 200, consumer.state)
    consumer.stop()
    assert all(row["label"] == "ham" for row in stored(service, "cooperative", folder).values())


def test_a_service_that_is_away_keeps_its_consumer_in_the_group(
    kafka: Kafka, service: httpx.Client, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "PAUSE_AFTER", 0.1)
    topic = kafka.topic("answers")
    with Relay(url) as relay:
        relay.plan = [Refuse(503, "1") for _ in range(2)]
        consumer = Running(kafka, relay.url, {topic: ANSWERS}, ConsumerPlan())
        kafka.publish(topic, [answer("away", f"w-{n}") for n in range(20)])
        until(lambda: any("no offset is committed" in line for line in consumer.lines), consumer.state)
        until(lambda: "service_away 1.0" in consumer.telemetry.text(), consumer.state)
        assert kafka.committed(topic, consumer.group) == 0
        kafka.publish(topic, [answer("away", f"x-{n}") for n in range(20)])
        until(lambda: consumer.consumption.messages == 40, consumer.state)
        consumer.stop()
    assert len(stored(service, "away", folder)) == 40
    assert kafka.committed(topic, consumer.group) == 40
    assert "service_away 0.0" in consumer.telemetry.text()


def test_the_command_says_where_it_is_and_ends_in_order(
    kafka: Kafka, service: httpx.Client, url: str, folder: Path
) -> None:
    topic = kafka.topic("answers")
    kafka.publish(topic, [answer("command", f"c-{n}") for n in range(12)])
    options = ["--answers", topic, "--group", topic, "--metrics-port", "0"]
    consumer = Consuming(kafka, url, *options, config="sasl.password = hunter2\n", folder=folder)
    address = consumer.wait_for("metrics: ").removeprefix("metrics: ")
    consumer.wait_for("12 messages")
    with urllib.request.urlopen(address, timeout=10) as read:
        assert f'trueodds_consumer_messages_total{{topic="{topic}"}} 12.0' in read.read().decode()
    consumer.process.send_signal(signal.SIGTERM)
    assert consumer.end() == 0
    assert consumer.lines[-1] == "stopped; everything that is stored is committed"
    assert "hunter2" not in consumer.text
    assert kafka.committed(topic, topic) == 12


def test_sets_of_lines_and_of_bodies_are_stored_and_their_coverage_is_reported(
    kafka: Kafka, service: httpx.Client, url: str, folder: Path
) -> None:
    """Rows with sets get their level from the options, and a body with its own level from itself."""
    answers, labels, dead = map(kafka.topic, ("answers", "labels", "dead"))
    rows = [answer("lines", f"s-{n}") | {"set": ["ham"] if n % 4 else []} for n in range(40)]
    own = {"set_level": 0.8, "set_rows": 99, "classes": {"names": ["ham", "spam"], "ordered": True}}
    bodies = [
        {"observations": [{"id": f"b-{n}", "probabilities": [0.9, 0.1], "set": ["ham"], "time": 1}], "model": "bodies"}
        | (own if n < 4 else {"set_level": 0.8, "set_rows": 99})
        for n in range(8)
    ]
    bare = answer("lines", "bare")
    level = answer("lines", "level") | {"set": ["ham"], "set_level": 0.9}
    other = {"observations": [answer("lines", "other") | {"set": ["ham"]}], "set_level": 0.7}
    # The first answer of each version says which sets it has.
    kafka.publish(answers, rows, key=lambda _: "one")
    kafka.publish(answers, [*bodies, bare, level, other], key=lambda _: "one")
    truth = [{"id": f"s-{n}", "label": "ham", "model": "lines"} for n in range(40)]
    kafka.publish(labels, [*truth, *({"id": f"b-{n}", "label": "ham", "model": "bodies"} for n in range(8))])
    options = ["--answers", answers, "--labels", labels, "--dead-letters", dead, "--until-end", "--version", "1"]
    options += ["--set-level", "0.9", "--set-rows", "500", "--confidence-source", "native", "--ordered"]
    consumer = Consuming(kafka, url, *options, folder=folder)
    assert consumer.end() == 0, consumer.state

    def sets(model: str) -> dict[str, Any]:
        report = service.get("/calibration-report", params={"model": model}).raise_for_status().json()
        level: dict[str, Any] = report["sets"]["levels"][0]
        return level

    until(lambda: (sets("lines")["labels"], sets("bodies")["labels"]) == (40, 8), lambda: str(sets("lines")))
    found = {model: sets(model) for model in ("lines", "bodies")}
    assert {model: (one["level"], one["hits"], one["labels"]) for model, one in found.items()} == {
        "lines": (0.9, 30, 40),
        "bodies": (0.8, 8, 8),
    }
    assert found["lines"]["floor"] == pytest.approx(0.877, abs=5e-4)  # of 500 rows
    assert service.get("/predictions/s-0", params={"model": "lines"}).json()["set"] == []
    letters = {one.value(): str(dict(one.headers() or [])["trueodds-reason"]) for one in kafka.read(dead, 3)}
    assert "the row has no set" in letters[json.dumps(bare).encode()]
    assert "set_level is not a key of a row" in letters[json.dumps(level).encode()]
    assert "but the call gives sets of level 0.7" in letters[json.dumps(other).encode()]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "no topic is given; name at least one of --answers, --decisions and --labels"),
        (["--answers", "one", "--labels", "one"], "the topic 'one' is given twice"),
        (["--answers", "one", "--dead-letters", "one"], "the topic 'one' is given twice"),
        (["--answers", "one", "--classes", "ham"], "at least two different names"),
        (["--answers", "one", "--set-rows", "99"], "set_rows is given without set_level"),
        (["--answers", "one", "--set-level", "90"], "set_level is 90.0; allowed is (0, 1)"),
    ],
)
def test_wrong_options_are_named(kafka: Kafka, url: str, options: list[str], words: str, capsys: Any) -> None:
    from trueodds.cli import COMMANDS, main

    assert main("trueodds", COMMANDS, ["consume", "--kafka", kafka.address, "--url", url, *options]) == 1
    assert words in capsys.readouterr().err


def test_a_topic_that_is_not_there_is_named_with_the_nearest(kafka: Kafka, url: str) -> None:
    topic = kafka.topic("answers")
    consumer = Running(kafka, url, {topic[:-1]: ANSWERS}, ConsumerPlan())
    with pytest.raises(StreamError, match=f"has no topic '{topic[:-1]}'.*Did you mean '{topic}'"):
        consumer.end()


@pytest.mark.full
def test_a_cluster_that_is_away_is_waited_for(url: str) -> None:
    kafka = Kafka("127.0.0.1:9", True, None)  # type: ignore[arg-type]  # nothing listens there
    consumer = Running(kafka, url, {"answers": ANSWERS}, ConsumerPlan())
    until(lambda: any("127.0.0.1:9 does not answer" in line for line in consumer.lines), consumer.state)
    consumer.stop()
