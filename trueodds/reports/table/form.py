"""Form of a table of answers: facts that its file does not state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trueodds.processes.choices import LABEL
from trueodds.sums.rounding import Resolution

Scale = Literal["probabilities", "logits"]


@dataclass(frozen=True, kw_only=True)
class Form:
    """Facts about a table that its file does not state."""

    label: str = LABEL
    """Column of the labels."""
    scale: Scale | None = None
    """Kind of the classes' numbers. None: as the array's name says, else probabilities."""
    classes: tuple[str, ...] = ()
    """Names of the classes in the order of their numbers. For a table, the columns that are classes."""
    positive: str | None = None
    """Class whose probability a single column holds, if the column's name is not a class."""
    first_label: int | None = None
    """Number of the first class, 0 or 1, if labels are numbers. None: the labels show it."""
    labels: Path | None = None
    """File of the labels that belong to an array."""
    resolution: Resolution | None = None
    """Resolution of the probabilities. None: as the rows show it."""
