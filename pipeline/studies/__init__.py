"""Studies: many runs that vary some parameters, each run once, and a table that separates effects from chance."""

from pathlib import Path

OUT = Path("studies")
"""Default folder for tables, figures and pages."""
