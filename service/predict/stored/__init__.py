"""Stored predictions: looked up, deleted, exported as a table, and archived."""
