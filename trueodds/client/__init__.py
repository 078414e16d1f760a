"""The service from Python: predictions, their true labels, the report, and what an administrator does (extra `client`).

`Client` blocks and `AsyncClient` is awaited. The requests of each call, how answers are read and when a request is sent
again are written once, without I/O, in `calls` and `attempts`.
"""

from trueodds.client.answers import (
    NO_ANSWER,
    CallError,
    DeleteSummary,
    LabelSummary,
    ModelVersion,
    ObservationSummary,
    Predictions,
    PublishedModel,
    Versions,
    VoidSummary,
)
from trueodds.client.clients import AsyncClient, Client
from trueodds.client.labelled import Labelled

__all__ = [
    "NO_ANSWER",
    "AsyncClient",
    "CallError",
    "Client",
    "DeleteSummary",
    "LabelSummary",
    "Labelled",
    "ModelVersion",
    "ObservationSummary",
    "Predictions",
    "PublishedModel",
    "Versions",
    "VoidSummary",
]
