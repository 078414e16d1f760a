"""Prometheus metrics of a consumer, on a port of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest, start_http_server

from trueodds.client.streams import StreamError
from trueodds.client.streams.messages import Item


class Telemetry:
    """Counters of one consumer."""

    def __init__(self, topics: Iterable[str]) -> None:
        """Make the counters. Those of each topic exist from the start: a rate would miss the first event."""
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        text = "Messages whose rows the service has, or that are dead letters"
        self._messages = counter("trueodds_consumer_messages", text, ["topic"])
        text = "Rows of messages, by the service's outcome or code of refusal"
        self._rows = counter("trueodds_consumer_rows", text, ["topic", "outcome"])
        self._dead = counter("trueodds_consumer_dead_letters", "Messages that the service refused", ["topic", "code"])
        text = "Messages of a partition of this consumer that are not committed yet"
        self._lag = gauge("trueodds_consumer_lag", text, ["topic", "partition"])
        self._waiting = gauge("trueodds_consumer_waiting_labels", "Messages of labels that wait for their answers")
        self._away = gauge("trueodds_consumer_service_away", "1 while the service does not answer")
        for topic in topics:
            self._messages.labels(topic)

    def count_message(self, item: Item, *, dead: bool) -> None:
        """Count a finished message."""
        topic = item.message.topic
        self._messages.labels(topic).inc()
        for outcome, count in item.outcomes.items():
            self._rows.labels(topic, outcome).inc(count)
        for problem in item.problems:
            self._rows.labels(topic, problem.code).inc()
        if dead:
            self._dead.labels(topic, item.problems[0].code).inc()

    def state(self, lag: Mapping[tuple[str, int], int] | None, waiting: int, is_away: bool) -> None:
        """Set the gauges. Without a lag, the last one stays."""
        if lag is not None:
            self._lag.clear()  # other members may have the partitions now
            for (topic, partition), number in lag.items():
                self._lag.labels(topic, str(partition)).set(number)
        self._waiting.set(waiting)
        self._away.set(is_away)

    def text(self) -> str:
        """Return the metrics as Prometheus reads them."""
        return generate_latest(self.registry).decode()

    def serve(self, host: str, port: int) -> int:
        """Serve the metrics at /metrics. Return the port.

        Raises:
            StreamError: The port cannot be used.
        """
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise StreamError(
                f"--metrics-port {port} of {host}: {error.strerror or error}; choose another one"
            ) from None
        return int(server.server_port)
