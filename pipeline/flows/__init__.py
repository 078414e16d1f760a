"""Prefect over DVC's own graph: Prefect schedules, routes and shows; DVC owns graph, cache and lineage."""

from __future__ import annotations

import os
from pathlib import Path


def models_of(home: Path) -> Path:
    """Where the service looks: TRUEODDS_MODELS, or models/ in the checkout."""
    return home / os.environ.get("TRUEODDS_MODELS", "models")
