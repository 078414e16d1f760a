"""Decisions from probabilities: thresholds, costs, and the confidence from which answers may act alone."""
