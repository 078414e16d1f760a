"""Names of a bundle's files, and the error for a bundle that must not be served. This module imports no package."""

from __future__ import annotations

import hashlib
from pathlib import Path

from trueodds.errors import UserError

MODEL = "model.onnx"
"""File of a bundle with the graph, from inputs to logits."""
CALIBRATOR = "calibrator.json"
"""File of a bundle with the fitted calibrator, from logits to probabilities."""
SETS = "conformal.json"
"""File of a bundle with the calibration scores of its conformal sets, if it has sets."""
CARD = "card.json"
"""File of a bundle with its card: the input, the classes, the test numbers, and the hashes of the other files."""
MODEL_CARD = "MODEL_CARD.md"
"""File of a bundle with the card as a page for people."""
NO_BUNDLE = "NO_BUNDLE.txt"
"""File that explains why a folder for a bundle is empty."""


class BundleError(UserError, ValueError):
    """The bundle must not be served. The message says what is wrong and where."""


def version_of(card: bytes) -> str:
    """Return the version of a bundle with this card: the first 12 hex digits of the card's SHA-256."""
    return hashlib.sha256(card).hexdigest()[:12]


def why_none(folder: Path) -> str:
    """Return the reason why a folder holds no bundle; "" if none is given."""
    path = folder / NO_BUNDLE
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""
