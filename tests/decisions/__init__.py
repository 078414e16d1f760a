"""Tests of the reader of decision models' requests and responses."""
