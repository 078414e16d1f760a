"""Measurements of a run, epoch by epoch."""
