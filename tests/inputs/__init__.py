"""Kinds of input."""
