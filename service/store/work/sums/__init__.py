"""Sums by hour, day and month: what each commit adds to them, how they are read and how they are merged."""
