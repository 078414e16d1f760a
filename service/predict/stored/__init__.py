"""Stored predictions: looked up, deleted, and exported as a table."""
