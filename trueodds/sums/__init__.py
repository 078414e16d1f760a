"""Calibration sums per cell of confidence, and the rows they are made of: all that a metric may read."""
