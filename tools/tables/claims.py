"""Claims that a benchmark proves: each with its condition, its figure, its command, and where it fails.

claims.yaml has their texts. No figure is typed there: a text names it in braces, and `figures` says where in the
result file it stands.
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
    """One claim. `condition`, `figure` and `failure` are formatted with its figures."""

    claim: str
    condition: str
    figure: str
    failure: str
    result: str
    """The file in benchmarks/results, without its suffix."""
    figures: Mapping[str, Key]
    """The way to each figure in the result file."""
    section: str
    """The anchor in docs/explanation/results.md under which the whole table stands."""
    short: bool = False
    """Whether README.md shows it."""

    @property
    def command(self) -> str:
        """The command that makes the result anew."""
        return COMMANDS[self.result]

    @cached_property
    def values(self) -> dict[str, float]:
        """The figures by name, from the result file."""
        return {name: figure(self.result, key) for name, key in self.figures.items()}

    def text(self, template: str) -> str:
        """Return a text of this claim with its figures."""
        return template.format(**self.values)


CLAIMS = tuple(Claim(**one) for one in yaml.safe_load(FILE.read_text(encoding="utf-8")))
