"""The tables of README.md and docs/*.md that come from results and code: `make docs` writes them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
"""The repository."""
