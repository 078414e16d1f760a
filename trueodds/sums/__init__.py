"""Calibration sums per cell of confidence, from which all metrics are computed."""
