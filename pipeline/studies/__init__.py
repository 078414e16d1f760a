"""Studies: many runs that vary some parameters, each run once, and a table that separates effects from chance."""

from pathlib import Path

OUT = Path("studies")
"""Default folder for tables, figures and pages."""
PAPERS = Path(__file__).parent / "papers"
"""Folder with the studies of the papers' tables and figures: <paper>/<table or figure>.yaml."""


def names() -> list[str]:
    """List the studies of papers."""
    return sorted(path.relative_to(PAPERS).with_suffix("").as_posix() for path in PAPERS.glob("*/*.yaml"))
