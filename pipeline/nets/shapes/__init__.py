"""Shapes of the nets, one file per family: their options and named sizes, without torch."""
