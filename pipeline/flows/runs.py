"""Reads the state of a run from the Prefect server."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import PrefectException


def was_cancelled(run: str) -> bool:
    """Return whether the run is cancelled or being cancelled; False if the server does not answer."""
    found = _read(run)
    return found is not None and found.state is not None and (found.state.is_cancelled() or found.state.is_cancelling())


def creation_time(run: str) -> datetime | None:
    """Return when the run was requested; None if the server does not answer."""
    found = _read(run)
    return None if found is None else found.created


def _read(run: str) -> FlowRun | None:
    """Read the run, or return None."""
    try:
        with get_client(sync_client=True) as client:
            return client.read_flow_run(UUID(run))
    except (ValueError, httpx.HTTPError, PrefectException):  # not the id of a run, no server, no such run
        return None
