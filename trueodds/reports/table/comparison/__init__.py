"""Comparison of models on the same labelled rows: scores, calibration and conformal sets."""
