"""Evaluation of a model and its calibrators on labelled test rows."""
