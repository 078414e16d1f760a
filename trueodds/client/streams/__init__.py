"""Reads answers and labels from Kafka topics and sends them to a running service (extra `kafka`).

    broker (Kafka) -> messages (bytes to rows) -> sending (HTTP) -> a running service
                                       consuming: batches, offsets, waiting labels, dead letters

An offset is committed only after the service has stored the rows. A message may be sent twice, and its ids make it
count once.
"""

from __future__ import annotations

from trueodds.errors import UserError


class StreamError(UserError, RuntimeError):
    """Error of a consumer that cannot go on: its options, its broker, or a message without a place for dead letters."""
