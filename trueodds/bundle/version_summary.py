"""Summary of a published version for a list, without the packages that check a whole bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from trueodds.bundle.bundle_files import CALIBRATOR, CARD, version_of
from trueodds.files import sha256

ENTRIES = {
    *("format", "name", "classes", "positive", "ordered", "multilabel", "input", "method", "training", "metrics"),
    *("risk_coverage", "act_alone", "sets", "notes", "data_sha256", "code_sha256", "files", "golden", "reference"),
}
"""Entries of a card that this release knows, but for the distribution of a registered calibrator."""


@dataclass(frozen=True)
class VersionSummary:
    """Calibrator, method, test numbers and promise of a version."""

    calibrator: str
    """Name of the calibrator."""
    method: str
    """Training method."""
    numbers: dict[str, float]
    """ECE and NLL of the test rows after calibration, as far as the card has them."""
    act_alone: str
    """The promise to act alone in a few words; "" if there is none."""

    @classmethod
    def of(cls, card: Mapping[str, Any], calibrator: str) -> Self:
        """Summarise a card, as JSON has it, and its calibrator, by its name."""
        after, promise = card["metrics"].get("after", {}), card.get("act_alone")
        if card.get("multilabel"):
            after = after.get("whole", {})
        numbers = {name: float(after[key]) for key, name in (("ece", "ECE"), ("nll", "NLL")) if after.get(key)}
        acts = "" if promise is None else promise_text(promise["threshold"], promise["risk"])
        return cls(calibrator, card["method"], numbers, acts)

    @classmethod
    def of_files(cls, folder: Path, version: str) -> Self | None:
        """Summarise the files of a version by their hashes.

        The version contains the hash of its card, and the card the hashes of the other files. Files with these hashes
        are those that a writer has checked. `None` means that the whole check has to decide: a hash differs, a file is
        missing, another release has written the card, or another distribution has the calibrator.

        Args:
            folder: Folder of the version.
            version: The version.

        Raises:
            OSError: A file cannot be read.
        """
        try:
            card = (folder / CARD).read_bytes()
            if version_of(card) != version:
                return None
            tree = json.loads(card)
            if not tree.keys() <= ENTRIES or any(sha256(folder / file) != own for file, own in tree["files"].items()):
                return None
            return cls.of(tree, json.loads((folder / CALIBRATOR).read_bytes())["calibrator"])
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, LookupError, AttributeError):
            return None


def promise_text(threshold: float | None, risk: float) -> str:
    """Return a promise to act alone in a few words.

    >>> promise_text(0.93, 0.05)
    'acts alone from 0.93 on (at most 5% wrong)'
    """
    where = "by thresholds of tags" if threshold is None else f"from {threshold:.6g} on"
    return f"acts alone {where} (at most {100 * risk:.3g}% wrong)"
