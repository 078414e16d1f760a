"""Prefect flows over DVC's graph. Prefect schedules, routes and displays runs; DVC owns graph, cache and lineage."""

from __future__ import annotations

from pathlib import Path

from trueodds.bundle import PublishedModels, open_models


def models_of(home: Path) -> PublishedModels:
    """Open the models that the service reads: TRUEODDS_MODELS, or models/ in the checkout."""
    return open_models(home=home)
