"""The state of a run, as the Prefect server knows it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import PrefectException


def was_cancelled(run: str) -> bool:
    """Whether the run is cancelled or being so; False where the server does not say."""
    found = _read(run)
    return found is not None and found.state is not None and (found.state.is_cancelled() or found.state.is_cancelling())


def created(run: str) -> datetime | None:
    """When somebody asked for the run; None where the server does not say."""
    found = _read(run)
    return None if found is None else found.created


def _read(run: str) -> FlowRun | None:
    try:
        with get_client(sync_client=True) as client:
            return client.read_flow_run(UUID(run))
    except (ValueError, httpx.HTTPError, PrefectException):  # no run's id, no server, no such run
        return None
