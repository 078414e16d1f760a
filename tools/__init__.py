"""Tools of the repository itself; nothing of the product imports them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The repository."""
PACKAGES = ("trueodds", "pipeline", "service")
"""The packages of the product."""
