"""Send answers and labels of Kafka topics to a running service.

A message holds what a request to /observe, /observe/decisions or /feedback would hold: a JSON object, a JSON object
with a list of rows, or JSON lines. Offsets are committed after the service has stored the rows. A message that is read
twice counts once, because rows have ids; a row without one gets an id made of topic, partition and offset. Several
consumers with one --group share the partitions.

A message that the service refuses goes to --dead-letters, unchanged, with the reason in its headers. Without that topic
the consumer ends. A label whose answer is unknown is sent again until --label-wait is over and every answer that was
in the topics is stored. Ctrl-C or SIGTERM ends the consumer; it commits first.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trueodds.cli import Subparsers
from trueodds.cli.arguments import positive_seconds, seconds_of, whole_number
from trueodds.processes.choices import SERVICE, URL
from trueodds.processes.stopping import Stop

if TYPE_CHECKING:
    from trueodds.client.streams.messages import Door

EXAMPLES = """examples:
  trueodds consume --kafka kafka:9092 --answers answers --labels labels --dead-letters dead
  trueodds consume --kafka kafka:9092 --answers answers --model mail --version 7 --classes ham,spam --kafka-config file
  trueodds consume --kafka kafka:9092 --decisions decisions --labels labels --metrics-port 9108"""
SHARED = {
    "model": "model of answers and labels that name none",
    "version": "version of answers that name none",
    "classes": "names of the classes, separated by commas, in the order of the numbers",
    "positive": "positive class of a binary model",
    "act-alone": "promise to act alone, such as threshold=.93,risk=.05,confidence=.95",
    "resolution": "step of rounded probabilities, such as 0.01, or exact",
    "set-level": "level of the answers' conformal sets (`set`), such as 0.9",
    "set-rows": "with --set-level: number of calibration rows of the sets' threshold",
    "confidence-source": "source of the confidence of answers that name none",
    "tag": "tag of answers that name none",
}
"""Values for all answers of a topic, as /observe takes them."""
OF_DECISIONS = ("act-alone", "resolution", "tag")
"""Those that /observe/decisions takes too."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("consume", description=__doc__, epilog=EXAMPLES)
    add = parser.add_argument
    add("--kafka", required=True, metavar="HOST:PORT", help="address of a broker; several are separated by commas")
    add("--answers", metavar="TOPIC", help="topic of answers, as /observe takes them")
    add("--decisions", metavar="TOPIC", help="topic of requests with responses, as /observe/decisions takes them")
    add("--labels", metavar="TOPIC", help="topic of true labels, as /feedback takes them")
    add("--dead-letters", metavar="TOPIC", help="topic for messages that the service refuses")
    add("--group", metavar="NAME", help="consumer group (default: that of --kafka-config, else trueodds)")
    words = "file with options of librdkafka, a line `name = value` each, such as those of SASL and TLS"
    add("--kafka-config", type=Path, metavar="FILE", help=words)
    words = f"URL of the service (default: {URL}; {SERVICE})"
    add("--url", default=os.environ.get(SERVICE) or URL, metavar="URL", help=words)
    words = "file with the key of /observe and, if that differs, of /feedback in a second line"
    add("--key-file", type=Path, metavar="FILE", help=words)
    for name, words in SHARED.items():
        add(f"--{name}", metavar=name.upper().replace("-", "_"), help=words)
    add("--ordered", action="store_true", help="the classes are levels, the lowest first")
    words = "largest number of messages in a batch (default: 1000)"
    add("--batch", type=whole_number(1, 100_000, "1 to 100000 messages"), default=1000, metavar="N", help=words)
    words = "time for which a label waits for its answer (default: 60s)"
    add("--label-wait", type=seconds_of, default=60.0, metavar="TIME", help=words)
    words = "end when the messages that are there at the start are finished"
    add("--until-end", action="store_true", help=words)
    add("--every", type=positive_seconds, default=10.0, metavar="TIME", help="time between two lines (default: 10s)")
    words = "serve Prometheus metrics on this port, at /metrics (default: none)"
    add("--metrics-port", type=whole_number(0, 65535, "a port, 0 to 65535"), metavar="PORT", help=words)
    words = "address of that port (default: 127.0.0.1)"
    add("--metrics-host", default="127.0.0.1", metavar="HOST", help=words)


def run(arguments: argparse.Namespace) -> int:
    """Consume. Return the exit status: 0 also after a stop."""
    from trueodds.client.keys import Keys
    from trueodds.client.streams.broker import Cluster, DeadLetters, GroupMember, read_options
    from trueodds.client.streams.consumption import ConsumerPlan, Consumption
    from trueodds.client.streams.sender import Sender, StoppedError
    from trueodds.client.streams.telemetry import Telemetry

    def say(line: str) -> None:
        print(line, flush=True)

    doors = _doors(arguments)
    options, stop = read_options(arguments.kafka_config), Stop()
    if arguments.group:
        options["group.id"] = arguments.group
    cluster = Cluster(arguments.kafka, options, say)
    sender = Sender(arguments.url, Keys.of_file(arguments.key_file), _queries(arguments), say, stop)
    telemetry = Telemetry(doors)
    dead_letters = DeadLetters(cluster, arguments.dead_letters) if arguments.dead_letters else None
    plan = ConsumerPlan(arguments.batch, arguments.label_wait, arguments.every, arguments.until_end, arguments.model)
    member = GroupMember(cluster)
    consumption = Consumption(
        member, sender, doors, dead_letters, plan, telemetry, say, stop, begins_at_end=cluster.begins_at_end
    )
    if arguments.metrics_port is not None:
        port = telemetry.serve(arguments.metrics_host, arguments.metrics_port)
        say(f"metrics: http://{arguments.metrics_host}:{port}/metrics")
    say(f"{', '.join(doors)} of {cluster.servers} to {sender.url}, as group {cluster.group}")
    try:
        sender.check(list(doors.values()))
        consumption.run()
    except StoppedError:
        pass
    if stop():
        say("stopped; everything that is stored is committed")
    return 0


def _doors(arguments: argparse.Namespace) -> dict[str, Door]:
    """Return the routes by topic."""
    from trueodds.client.streams.messages import ANSWERS, DECISIONS, LABELS
    from trueodds.errors import ConfigError

    named = {"--answers": ANSWERS, "--decisions": DECISIONS, "--labels": LABELS}
    given = {name: vars(arguments)[name[2:]] for name in named if vars(arguments)[name[2:]]}
    if not given:
        raise ConfigError("no topic is given; name at least one of --answers, --decisions and --labels")
    topics = [*given.values(), *([arguments.dead_letters] if arguments.dead_letters else [])]
    if twice := next((topic for topic in topics if topics.count(topic) > 1), None):
        raise ConfigError(f"the topic {twice!r} is given twice; each purpose needs a topic of its own")
    return {topic: named[name] for name, topic in given.items()}


def _queries(arguments: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Return the parameters of each route."""
    from trueodds.client.streams.messages import ANSWERS, DECISIONS

    values = {name: vars(arguments)[name.replace("-", "_")] for name in SHARED}
    given = {name: value for name, value in values.items() if value is not None}
    answers = {name.replace("-", "_"): value for name, value in given.items()}
    decisions = {name.replace("-", "_"): value for name, value in given.items() if name in OF_DECISIONS}
    return {ANSWERS.path: answers | ({"ordered": "true"} if arguments.ordered else {}), DECISIONS.path: decisions}
