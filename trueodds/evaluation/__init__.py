"""Labelled rows set apart for a test, and a model judged on them."""
