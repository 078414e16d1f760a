"""Claims that a benchmark proves, each with its condition, its figure, its command, and where it fails.

claims.yaml has their texts. It contains no numbers: a text has a figure's name in braces, and `figures` has the path to
the figure in the result file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from tools.tables.results import COMMANDS, Key, figure

FILE = Path(__file__).parent / "claims.yaml"


@dataclass(frozen=True)
class Claim:
    """One claim. `condition`, `figure` and `failure` are templates for its figures."""

    claim: str
    condition: str
    figure: str
    failure: str
    result: str
    """File in benchmarks/results, without its suffix."""
    figures: Mapping[str, Key]
    """Path to each figure in the result file."""
    section: str
    """Anchor in docs/explanation/results.md of the section with the whole table."""
    short: bool = False
    """Whether README.md shows it."""

    @property
    def command(self) -> str:
        """Return the command that reproduces the result."""
        return COMMANDS[self.result]

    @cached_property
    def values(self) -> dict[str, float]:
        """Return the figures by name, from the result file."""
        return {name: figure(self.result, key) for name, key in self.figures.items()}

    def text(self, template: str) -> str:
        """Return a text of this claim with its figures filled in."""
        return template.format(**self.values)


CLAIMS = tuple(Claim(**one) for one in yaml.safe_load(FILE.read_text(encoding="utf-8")))
