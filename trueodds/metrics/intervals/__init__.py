"""Intervals and noise floors: how far chance alone can move a figure."""
