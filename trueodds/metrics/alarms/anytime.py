"""A test that may be looked at whenever one likes: its evidence is an e-value that holds at every moment."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from trueodds.sums.inputs import check_alpha


class AnytimeTest(ABC):
    """P(ever E >= 1/alpha) <= alpha while the null holds, so the largest E so far is evidence for good (Ville 1939)."""

    peak: float
    """The largest log E so far, in nats; evidence once shown stays."""

    @property
    @abstractmethod
    def log_e(self) -> float:
        """log E in nats, after every label so far."""

    @property
    def p_value(self) -> float:
        """The smallest alpha at which this has alarmed so far, valid at every moment: 1 / the largest E."""
        return math.exp(min(0.0, -self.peak))

    def alarmed(self, alpha: float = 0.05) -> bool:
        """Whether E has ever reached 1/alpha; of all models for which the null holds at most alpha ever do.

        Raises:
            ValueError: alpha outside (0, 1).
        """
        check_alpha(alpha)
        return self.peak >= -math.log(alpha)
