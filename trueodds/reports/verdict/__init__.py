"""Verdict of a report and its wording."""
