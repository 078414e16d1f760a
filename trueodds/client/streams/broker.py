"""The Kafka cluster: a member of a consumer group, a producer of dead letters, and their settings (extra `kafka`).

Only this module imports confluent_kafka. Values of settings that may be secret never appear in a message.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its __init__ has no __all__

from trueodds.client.streams import StreamError
from trueodds.client.streams.messages import Item, Message
from trueodds.errors import ConfigError, nearest
from trueodds.texts import quotes

T = TypeVar("T", Consumer, Producer, AdminClient)
Place: TypeAlias = tuple[str, int]
"""Topic and number of a partition."""

OWN = {"enable.auto.commit": False, "enable.auto.offset.store": False, "enable.partition.eof": True}
"""Options that decide when an offset is committed. No file may change them."""
DEFAULTS = {"group.id": "trueodds", "auto.offset.reset": "earliest"}
"""Defaults that differ from those of librdkafka: a new group reads what is there already."""
SECRET = re.compile(r"password|secret|\.pem$|oauthbearer\.config|sasl\.jaas", re.IGNORECASE)
"""Names of options whose values are secret."""
CONSUMER_ONLY = re.compile(
    r"group\.|session\.timeout|heartbeat\.|max\.poll|auto\.offset|auto\.commit|fetch\.|partition\.assignment|queued\."
    r"|isolation|check\.crcs|enable\.(auto|partition)|offset\.store|consume\."
)
"""Options that a producer does not have."""
SECONDS = 10.0
"""Time limit in seconds of a question to the cluster."""
REASON = 2000
"""Longest reason in a header, in characters."""
_LOST = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._STATE,
    KafkaError._NO_OFFSET,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError.FENCED_INSTANCE_ID,
}
"""Errors of a commit by a consumer that no longer has the partitions. Their next consumer reads the messages again."""
_BEGIN: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_END: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
"""Errors that waiting does not mend."""


class ClusterAwayError(Exception):
    """Error: the cluster does not answer a question now."""


def read_options(path: Path | None) -> dict[str, str]:
    """Read a file of librdkafka options: a line `name = value` for each, `#` before comments.

    Raises:
        ConfigError: The file cannot be read, a line has another form, or an option belongs to the consumer itself. The
            message holds no value.
    """
    if path is None:
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--kafka-config {path} cannot be read: {error}") from None
    options: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in text.partition("="))
        where = f"--kafka-config {path}, line {number}"
        if not equals or not re.fullmatch(r"[A-Za-z0-9._]+", name):
            raise ConfigError(f"{where} has another form; expected `name = value`, such as sasl.mechanism = PLAIN")
        if name in options:
            raise ConfigError(f"{where} gives {name} again; give it once")
        if name in OWN:
            raise ConfigError(f"{where} sets {name}, which decides when an offset is committed; leave it out")
        options[name] = value
    return options


class Cluster:
    """Settings of a cluster, for the consumer and for the producer of dead letters."""

    def __init__(self, servers: str, options: Mapping[str, str], say: Callable[[str], None]) -> None:
        """Combine the settings.

        Args:
            servers: Addresses of brokers: `HOST:PORT`, or several with commas between them.
            options: Options of librdkafka.
            say: Receives messages for the user.
        """
        self._options = {**DEFAULTS, **options, "bootstrap.servers": servers}
        self._secrets = [value for name, value in options.items() if SECRET.search(name) and value]
        self._say, self._said = say, ""
        self.servers = servers
        self.refusal: KafkaError | None = None
        """Error that waiting does not mend, such as a wrong password."""

    @property
    def group(self) -> str:
        """Name of the consumer group."""
        return self._options["group.id"]

    @property
    def begins_at_end(self) -> bool:
        """Whether a new group reads only messages that come after it."""
        return self._options["auto.offset.reset"] in ("latest", "largest", "end")

    def words(self, error: object) -> str:
        """Return an error in words, without secrets."""
        cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
        text = cause.str() if isinstance(cause, KafkaError) else str(cause)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def consumer(self) -> Consumer:
        """Make the consumer. For errors see `_make`."""
        return self._make(Consumer, {**self._options, **OWN})

    def admin(self) -> AdminClient:
        """Make the client for questions about topics. For errors see `_make`."""
        return self._make(AdminClient, self._of_no_group())

    def _of_no_group(self) -> dict[str, str]:
        return {name: value for name, value in self._options.items() if not CONSUMER_ONLY.match(name)}

    def producer(self) -> Producer:
        """Make the producer of dead letters. For errors see `_make`."""
        options = self._of_no_group()
        # The largest message is the broker's affair: a dead letter is a little larger than its message.
        return self._make(Producer, {"message.max.bytes": 1_000_000_000, "enable.idempotence": True, **options})

    def _make(self, kind: type[T], options: Mapping[str, object]) -> T:
        """Make a client of the cluster.

        Raises:
            ConfigError: An option is unknown, or its value is not allowed.
        """
        settings: dict[str, Any] = {**options, "error_cb": self._note, "logger": _quiet()}
        try:
            return kind(settings)
        except KafkaException as error:
            raise ConfigError(f"--kafka-config: {self.words(error)}; see librdkafka's CONFIGURATION.md") from None

    def check(self) -> None:
        """Check that the cluster takes us.

        Raises:
            StreamError: It refuses, for example because of a wrong password.
        """
        if self.refusal is not None:
            raise StreamError(f"{self.servers} refuses: {self.words(self.refusal)}; check --kafka-config")

    def say(self, text: str) -> None:
        """Tell the user something, unless it was told last."""
        if text != self._said:
            self._said = text
            self._say(text)

    def _note(self, error: KafkaError) -> None:
        """Note an error that librdkafka reports. It tries again by itself."""
        if error.code() in _REFUSED:
            self.refusal = error
        elif error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
            self.say(f"{self.servers} does not answer ({self.words(error)}). Waiting for it")


class GroupMember:
    """A consumer of the group. Its methods belong to one thread."""

    def __init__(self, cluster: Cluster) -> None:
        """Make the consumer; it joins the group with `subscribe`."""
        self._cluster, self._consumer, self._admin = cluster, cluster.consumer(), cluster.admin()

    def wait_for_topics(self, topics: Iterable[str], is_stopped: Callable[[], bool]) -> bool:
        """Wait until the cluster answers, and check that it has the topics. Return False after a stop.

        Raises:
            StreamError: A topic does not exist, or the cluster refuses.
        """
        while not is_stopped():
            self._consumer.poll(0)  # serves the callback of errors
            self._cluster.check()
            try:
                known = self._admin.list_topics(timeout=2).topics
            except KafkaException as error:
                self._cluster.say(
                    f"{self._cluster.servers} does not answer ({self._cluster.words(error)}). Waiting for it"
                )
                continue
            for topic in topics:
                if topic not in known:
                    names = sorted(name for name in known if not name.startswith("__"))
                    raise StreamError(
                        f"{self._cluster.servers} has no topic {topic!r}; its topics are {quotes(names) or 'none'}."
                        f"{nearest(topic, names)} Create it first"
                    )
            return True
        return False

    def subscribe(
        self,
        topics: Iterable[str],
        on_assign: Callable[[list[Place]], None],
        on_revoke: Callable[[list[Place]], None],
        on_lose: Callable[[list[Place]], None],
    ) -> None:
        """Join the group. The callbacks run inside `read` and `close`; `on_lose` may commit nothing.

        A partition that goes to another member is resumed first. librdkafka would keep its pause, and `resume` reaches
        only partitions of this member: if the partition came back, nobody would read it.
        """

        def give(callback: Callable[[list[Place]], None], places: list[TopicPartition]) -> None:
            self._consumer.resume(places)
            callback(_places(places))

        self._consumer.subscribe(
            list(topics),
            on_assign=lambda _, places: on_assign(_places(places)),
            on_revoke=lambda _, places: give(on_revoke, places),
            on_lost=lambda _, places: give(on_lose, places),
        )

    def read(self, most: int, seconds: float) -> tuple[list[Message], dict[Place, int]]:
        """Read up to `most` messages, and the ends of partitions that were reached.

        Raises:
            StreamError: The cluster refuses, or the client cannot go on.
        """
        messages, ends = list[Message](), dict[Place, int]()
        for read in self._consumer.consume(most, seconds):
            error = read.error()
            topic, partition, offset = read.topic() or "", read.partition() or 0, read.offset() or 0
            if error is None:
                kind, time_ms = read.timestamp()
                known = kind != confluent_kafka.TIMESTAMP_NOT_AVAILABLE and time_ms >= 0
                messages.append(
                    Message(
                        topic, partition, offset, read.value(), read.key(), time_ms if known else None, _headers(read)
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[topic, partition] = offset
            elif error.fatal() or error.code() in _REFUSED:
                raise StreamError(f"{self._cluster.servers}: {self._cluster.words(error)}")
            else:
                self._cluster.say(f"{self._cluster.servers}: {self._cluster.words(error)}. Trying again")
        self._cluster.check()
        return messages, ends

    def pause(self, topics: Iterable[str]) -> None:
        """Read no more messages of topics until `resume`, or until the partitions go to another member and come back.

        The consumer keeps its place in the group as long as `read` is called.
        """
        self._consumer.pause(self._own_places(topics))

    def resume(self, topics: Iterable[str]) -> None:
        """Read messages of topics again."""
        self._consumer.resume(self._own_places(topics))

    def _own_places(self, topics: Iterable[str]) -> list[TopicPartition]:
        named = set(topics)
        return [place for place in self._consumer.assignment() if place.topic in named]

    def commit(self, positions: Mapping[Place, int]) -> bool:
        """Commit offsets. Return False if they could not be committed; their messages may then be read again."""
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        if not offsets:
            return True
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as error:
            cause = error.args[0]
            if not (isinstance(cause, KafkaError) and cause.code() in _LOST):
                self._cluster.say(f"the offsets could not be committed ({self._cluster.words(error)}). Trying again")
            return False
        return all(place.error is None for place in done)

    def ends(self, topics: Iterable[str]) -> dict[Place, int]:
        """Return the end of every partition of topics that holds messages.

        Raises:
            ClusterAwayError: The cluster does not answer.
        """
        try:
            known = self._admin.list_topics(timeout=SECONDS).topics
        except KafkaException as error:
            raise ClusterAwayError(self._cluster.words(error)) from None
        places = [TopicPartition(topic, n) for topic in topics if topic in known for n in known[topic].partitions]
        first = self._offsets_at(places, _BEGIN)
        return {place: end for place, end in self._offsets_at(places, _END).items() if end > first[place]}

    def own_ends(self, topics: Iterable[str]) -> dict[Place, int]:
        """Return the end of every partition that this member has. For errors see `ends`."""
        return self._offsets_at(self._own_places(topics), _END)

    def _offsets_at(self, places: list[TopicPartition], which: OffsetSpec) -> dict[Place, int]:
        """Ask for an offset of partitions, on a connection that no fetch keeps busy."""
        if not places:
            return {}
        try:
            asked = self._admin.list_offsets(dict.fromkeys(places, which), request_timeout=SECONDS)
            return {(place.topic, place.partition): answer.result(SECONDS).offset for place, answer in asked.items()}
        except (KafkaException, TimeoutError) as error:
            raise ClusterAwayError(self._cluster.words(error)) from None

    def committed_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the committed offset of partitions, whichever member has them. Those without one are left out.

        Raises:
            ClusterAwayError: The cluster does not answer.
        """
        asked = [TopicPartition(*place) for place in places]
        try:
            found = self._consumer.committed(asked, timeout=SECONDS) if asked else []
        except KafkaException as error:
            raise ClusterAwayError(self._cluster.words(error)) from None
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


class DeadLetters:
    """Topic that receives the messages that the service refuses, unchanged, with the reason in their headers."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        """Make the producer."""
        self.topic = topic
        self._cluster, self._producer = cluster, cluster.producer()

    def send(self, items: Iterable[Item]) -> None:
        """Send messages, and return when the cluster has them.

        Raises:
            StreamError: The cluster refuses one. None of them may then be committed.
        """
        failures = list[str]()

        def note_delivery(place: str, error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(
                    f"the dead letter of {place} cannot be stored in {self.topic}: {self._cluster.words(error)}"
                )

        for item in items:
            message = item.message
            while True:
                try:
                    self._producer.produce(
                        self.topic,
                        message.value,
                        message.key,
                        headers=[*headers_of(item)],
                        on_delivery=partial(note_delivery, message.place),
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        while self._producer.flush(1):
            self._cluster.check()
        if failures:
            raise StreamError(failures[0])


def headers_of(item: Item) -> list[tuple[str, bytes | None]]:
    """Return the headers of a dead letter: its own, then why it is one and where it was."""
    first, message = item.problems[0], item.message
    return [
        *(header for header in message.headers if not header[0].startswith("trueodds-")),
        ("trueodds-reason", item.reason[:REASON].encode(errors="replace")),
        ("trueodds-code", first.code.encode()),
        ("trueodds-topic", message.topic.encode()),
        ("trueodds-partition", str(message.partition).encode()),
        ("trueodds-offset", str(message.offset).encode()),
    ]


def _headers(message: confluent_kafka.Message) -> tuple[tuple[str, bytes | None], ...]:
    headers: Any = message.headers() or ()
    return tuple((name, value) for name, value in headers)


def _places(partitions: Iterable[TopicPartition]) -> list[Place]:
    return [(one.topic, one.partition) for one in partitions]


def _quiet() -> logging.Logger:
    """Return a logger that drops librdkafka's own lines: they may hold settings, and `error_cb` has what matters."""
    quiet = logging.getLogger("trueodds.librdkafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    return quiet
