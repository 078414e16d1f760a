"""Prefect over DVC's own graph: Prefect schedules, routes and shows; DVC owns graph, cache and lineage."""
