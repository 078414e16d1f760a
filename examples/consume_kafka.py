"""Read answers and labels from Kafka: publish some, let `trueodds consume` send them to a service, read the report.

    python examples/consume_kafka.py                       everything on this machine
    python examples/consume_kafka.py --kafka HOST:PORT     with the topics `answers` and `labels` of your cluster
    python examples/consume_kafka.py --stay FILE           only a small cluster with messages; FILE gets its address

The small cluster is the one that librdkafka brings for tests. It needs no Java and forgets everything when it ends.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

import trueodds

ANSWERS = 400


def cluster(address: str | None) -> tuple[Producer, str]:
    """Return a producer for a cluster, and its address. Without an address a small cluster starts in this process."""
    if address is not None:
        return Producer({"bootstrap.servers": address}), address
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 2})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    return producer, f"{broker.host}:{broker.port}"


def publish(producer: Producer) -> None:
    """Publish answers of a model that is too sure of itself, and their true labels; one message is broken."""
    draw = random.Random(0)
    for number in range(ANSWERS):
        confidence = draw.uniform(0.5, 1)
        id_ = f"m-{number}"
        answer = {"id": id_, "probabilities": {"ham": confidence, "spam": 1 - confidence}}
        truth = "ham" if draw.random() < confidence - 0.1 else "spam"
        # The id is the key, so that all labels of an answer are in one partition, in their order.
        producer.produce("answers", json.dumps(answer), key=id_)
        producer.produce("labels", json.dumps({"id": id_, "label": truth}), key=id_)
    producer.produce("answers", "not JSON")
    producer.list_topics("dead-letters", timeout=10)  # the small cluster creates it; yours may have to be told
    producer.flush()


def serve(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a service that only watches. Return the process and its address."""
    command = [sys.executable, "-m", "trueodds", "serve", "--port", "0", "--models", str(folder / "none")]
    command += ["--store", str(folder / "watch.sqlite"), "--url-file", str(folder / "url")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not (folder / "url").exists():
        if process.poll() is not None:
            raise SystemExit(f"The service did not start. To see why, run: {' '.join(command)}")
        time.sleep(0.05)
    return process, (folder / "url").read_text().strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Read answers and labels from Kafka.")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="your cluster (default: a small one in this process)")
    parser.add_argument("--stay", type=Path, metavar="FILE", help="only publish, and stay until this process is ended")
    arguments = parser.parse_args()
    producer, address = cluster(arguments.kafka)
    publish(producer)
    if arguments.stay:
        arguments.stay.write_text(address)
        signal.pause()
    with tempfile.TemporaryDirectory() as folder:
        process, url = serve(Path(folder))
        try:
            command = [sys.executable, "-m", "trueodds", "consume", "--kafka", address, "--url", url, "--until-end"]
            command += ["--answers", "answers", "--labels", "labels", "--dead-letters", "dead-letters"]
            subprocess.run([*command, "--model", "mail", "--version", "7"], check=True)
            print(trueodds.Client(url).report(model="mail"))
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
