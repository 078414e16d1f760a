"""Python client of the service: predictions, true labels, the report and administration (extra `client`).

`Client` blocks; the methods of `AsyncClient` are awaited. Both share the code that builds requests, reads answers and
decides on retries. It is in `calls` and `attempts` and does no I/O.
"""

from trueodds.client.clients import AsyncClient, Client
from trueodds.client.decisions import DecidedQuestion, DecisionSummary
from trueodds.client.labelled import Labelled
from trueodds.client.responses import (
    NO_ANSWER,
    CallError,
    DeleteSummary,
    JudgeSummary,
    LabelSummary,
    ModelVersion,
    ObservationSummary,
    Predictions,
    PublishedModel,
    Versions,
    VoidSummary,
)

__all__ = [
    "NO_ANSWER",
    "AsyncClient",
    "CallError",
    "Client",
    "DecidedQuestion",
    "DecisionSummary",
    "DeleteSummary",
    "JudgeSummary",
    "LabelSummary",
    "Labelled",
    "ModelVersion",
    "ObservationSummary",
    "Predictions",
    "PublishedModel",
    "Versions",
    "VoidSummary",
]
