"""Settings of the cluster: what a file may say, and that no message holds a secret."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.streams.cluster import PARTITIONS, PROMPT, Kafka
from trueodds.client.streams.broker import Cluster, DeadLetters, GroupMember, headers_of, read_options
from trueodds.client.streams.messages import ANSWERS, Item, Message
from trueodds.client.streams.offsets import Offsets
from trueodds.errors import ConfigError


def options(folder: Path, text: str) -> dict[str, str]:
    (folder / "kafka.properties").write_text(text)
    return read_options(folder / "kafka.properties")


def test_reads_options(tmp_path: Path) -> None:
    text = "# of production\nsasl.username = me\nsasl.password=a=b #c\n\n security.protocol = SASL_SSL\n"
    found = {"sasl.username": "me", "sasl.password": "a=b #c", "security.protocol": "SASL_SSL"}
    assert options(tmp_path, text) == found
    assert read_options(None) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sasl.password hunter2", "line 1 has another form"),
        ("\na b = hunter2", "line 2 has another form"),
        ("client.id = a\nclient.id = b", "gives client.id again"),
        ("enable.auto.commit = true", "decides when an offset is committed"),
    ],
)
def test_refuses_other_lines_without_their_values(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        options(tmp_path, text)
    assert "hunter2" not in str(error.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_options(tmp_path / "none")


@pytest.mark.parametrize("line", ["sasl.passwort", "security.protocol", "ssl.key.pem", "sasl.oauthbearer.config"])
def test_an_option_that_librdkafka_refuses_shows_no_secret(line: str) -> None:
    given = {
        "sasl.password": "hunter2",
        "ssl.key.password": "hunter3",
        line: "hunter2",
        "socket.nagle.disable": "hunter3",
    }
    for make in (GroupMember, lambda cluster: DeadLetters(cluster, "dead")):
        with pytest.raises(ConfigError, match="--kafka-config") as error:
            make(Cluster("127.0.0.1:9", given, print))
        assert "hunter" not in str(error.value)


def test_an_option_of_consumers_does_not_disturb_the_producer(capfd: pytest.CaptureFixture[str]) -> None:
    given = {
        "session.timeout.ms": "6000",
        "fetch.min.bytes": "1",
        "partition.assignment.strategy": "cooperative-sticky",
    }
    cluster = Cluster("127.0.0.1:9", given, print)
    DeadLetters(cluster, "dead")
    GroupMember(cluster).close()
    assert capfd.readouterr().err == ""


def test_the_group_is_that_of_the_file_or_ours() -> None:
    assert Cluster("a:1", {}, print).group == "trueodds"
    assert Cluster("a:1", {"group.id": "theirs"}, print).group == "theirs"
    assert not Cluster("a:1", {}, print).begins_at_end
    assert Cluster("a:1", {"auto.offset.reset": "latest"}, print).begins_at_end


def test_headers_keep_those_of_the_message() -> None:
    first = Item(Message("t", 1, 2, b"x", headers=(("trace", b"1"), ("empty", None))), ANSWERS, Offsets())
    first.refuse(0, "invalid_row", "bad " + "é" * 3000)
    headers = dict(headers_of(first))
    reason = (headers.pop("trueodds-reason") or b"").decode()
    assert reason == ("bad " + "é" * 3000)[:2000]
    place = {"trueodds-topic": b"t", "trueodds-partition": b"1", "trueodds-offset": b"2"}
    assert headers == {"trace": b"1", "empty": None, "trueodds-code": b"invalid_row", **place}
    again = Item(Message("dead", 0, 7, b"x", headers=tuple(headers_of(first))), ANSWERS, Offsets())
    again.refuse(0, "a", "first")
    again.refuse(4, "b", "second")
    assert [name for name, _ in headers_of(again)].count("trueodds-offset") == 1
    assert dict(headers_of(again))["trueodds-reason"] == b"2 rows; first"


def test_a_paused_partition_that_goes_and_comes_back_is_read(kafka: Kafka) -> None:
    """Paused while the service is away, taken by a second member meanwhile, and back when that member has gone."""
    topic = kafka.topic("answers")
    settings = {"group.id": topic} | PROMPT | {"session.timeout.ms": "2000", "heartbeat.interval.ms": "100"}
    cluster = Cluster(kafka.address, settings, print)
    has: list[set[int]] = [set(), set()]
    members = [GroupMember(cluster)]

    def join(number: int) -> None:
        members[number].subscribe(
            [topic],
            lambda places: has[number].update(partition for _, partition in places),
            lambda places: has[number].difference_update(partition for _, partition in places),
            lambda places: has[number].difference_update(partition for _, partition in places),
        )

    def read_until(enough: Callable[[], bool]) -> list[Message]:
        found, deadline = list[Message](), time.monotonic() + 300
        while not enough():
            assert time.monotonic() < deadline, has
            for member in members:
                found += member.read(100, 0.05)[0]
        return found

    join(0)
    read_until(lambda: len(has[0]) == PARTITIONS)
    members[0].pause([topic])
    members.append(GroupMember(cluster))
    join(1)
    read_until(lambda: len(has[0]) == len(has[1]) == PARTITIONS // 2)
    members[0].resume([topic])
    members.pop().close()
    read_until(lambda: len(has[0]) == PARTITIONS)
    kafka.publish(topic, [b"x" for _ in range(2 * PARTITIONS)])
    read = set[tuple[int, int]]()
    deadline = time.monotonic() + 60
    while len(read) < 2 * PARTITIONS and time.monotonic() < deadline:
        read |= {(message.partition, message.offset) for message in members[0].read(100, 0.1)[0]}
    members[0].close()
    assert read == {(partition, offset) for partition in range(PARTITIONS) for offset in range(2)}
