"""Writes the tables of README.md and docs that come from results and code; `make docs` calls it."""
