"""Metrics for labels that are selected or few: weighting them, and warnings about their limits."""
