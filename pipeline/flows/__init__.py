"""Prefect over DVC's own graph: Prefect schedules, routes and shows; DVC owns graph, cache and lineage."""

from __future__ import annotations

from pathlib import Path

from trueodds.bundle.model_folder import models_folder


def models_of(home: Path) -> Path:
    """Where the service looks: TRUEODDS_MODELS, or models/ in the checkout."""
    return home / models_folder()
