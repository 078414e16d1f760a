"""Prefect flows over DVC's graph. Prefect schedules, routes and displays runs; DVC owns graph, cache and lineage."""
