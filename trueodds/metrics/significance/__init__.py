"""Tests of the null hypothesis that a model is calibrated."""
