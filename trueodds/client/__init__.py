"""The service from Python: predictions, their true labels, and the report (extra `client`: httpx).

`Client` blocks and `AsyncClient` is awaited; what they ask, how answers are read and when a request is sent again is
written once, without I/O, in `calls` and `attempts`.
"""

from trueodds.client.answers import CallError, LabelSummary, ModelVersion, ObservationSummary, Predictions
from trueodds.client.clients import AsyncClient, Client

__all__ = ["AsyncClient", "CallError", "Client", "LabelSummary", "ModelVersion", "ObservationSummary", "Predictions"]
