"""Stored predictions: looked up, removed, and taken elsewhere as a table."""
