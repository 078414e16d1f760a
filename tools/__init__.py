"""Tools of the repository. No package of the product imports them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""Root folder of the repository."""
PACKAGES = ("trueodds", "pipeline", "service")
"""The packages of the product."""
