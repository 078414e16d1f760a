"""The state of a run, as the Prefect server knows it."""

from __future__ import annotations

from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectException


def was_cancelled(run: str) -> bool:
    """Whether the run is cancelled or being so; False where the server does not say."""
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(run)).state
    except (ValueError, httpx.HTTPError, PrefectException):  # no run's id, no server, no such run
        return False
    return state is not None and (state.is_cancelled() or state.is_cancelling())
