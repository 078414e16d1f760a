"""The answers about the service's health."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class Health(BaseModel):
    """Whether the process is up, or which version answers."""

    status: Literal["live", "ready"]
    model: str | None = None
    version: str | None = None
    problem: str | None = None
    """What is wrong though it answers."""
