"""Which epoch's weights a run ends with."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn


class Selection:
    """Whose weights a run ends with: the last epoch's (`last`), or the first's of least `rule`, a column of history."""

    def __init__(self, rule: str) -> None:
        self.rule, self.epoch, self.least = rule, 0, math.inf
        self._weights: dict[str, Tensor] = {}

    def offer(self, net: nn.Module, row: dict[str, float]) -> None:
        """One finished epoch: its net, and its row of history."""
        if self.rule == "last":
            self.epoch = int(row["epoch"])
        elif row[self.rule] < self.least:
            self.epoch, self.least = int(row["epoch"]), row[self.rule]
            self._weights = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}

    def take(self, net: nn.Module) -> None:
        """Give `net` the chosen weights."""
        if self._weights:
            net.load_state_dict(self._weights)

    def notes(self, epochs: int) -> list[str]:
        """Notes for a reader about the choice: that validation rows made it, if they did."""
        if self.rule == "last":
            return []
        return [
            f"The validation rows chose the weights: epoch {self.epoch} of {epochs}, the first of least {self.rule}"
            f" ({self.least:.4g}). The calibrator was fitted on the same rows."
        ]

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "least": self.least, "weights": self._weights}

    def restore(self, state: dict[str, Any]) -> None:
        self.epoch, self.least, self._weights = state["epoch"], state["least"], state["weights"]
