"""A claim: its texts, and where the figures in them stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tools.tables.results import COMMANDS, Key, figure


@dataclass(frozen=True)
class Claim:
    """One claim. `condition`, `figure` and `failure` are formatted with the figures that `keys` names."""

    claim: str
    condition: str
    figure: str
    failure: str
    result: str
    """The file in benchmarks/results, without its suffix."""
    keys: Mapping[str, Key]
    section: str
    """The anchor in docs/results.md under which the whole table stands."""
    short: bool = False
    """Whether README.md shows it."""

    @property
    def command(self) -> str:
        """The command that makes the result anew."""
        return COMMANDS[self.result]

    @cached_property
    def figures(self) -> dict[str, float]:
        """The figures by name, from the result file."""
        return {name: figure(self.result, key) for name, key in self.keys.items()}

    def text(self, template: str) -> str:
        """A text of this claim with its figures."""
        return template.format(**self.figures)
