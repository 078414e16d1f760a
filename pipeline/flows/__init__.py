"""Prefect over DVC's own graph: Prefect schedules, routes and shows; DVC owns graph, cache and lineage."""

from __future__ import annotations

from pathlib import Path

from trueodds.bundle import PublishedModels, open_models


def models_of(home: Path) -> PublishedModels:
    """Open the models that the service serves: TRUEODDS_MODELS, or models/ in the checkout."""
    return open_models(home=home)
