"""Base class of anytime-valid tests. Their evidence is an e-value that holds at every moment."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from trueodds.sums.inputs import check_alpha


class AnytimeTest(ABC):
    """A test that may be checked at any time: P(ever E >= 1/alpha) <= alpha while the null holds (Ville 1939).

    The largest E so far therefore stays valid evidence.
    """

    peak: float
    """Largest log E so far, in nats. Evidence never decreases."""

    @property
    @abstractmethod
    def log_e(self) -> float:
        """log E in nats, after every label so far."""

    @property
    def p_value(self) -> float:
        """Anytime-valid p-value, 1 / the largest E: the smallest alpha at which the test has alarmed so far."""
        return math.exp(min(0.0, -self.peak))

    def is_alarmed(self, alpha: float = 0.05) -> bool:
        """Return whether E has ever reached 1/alpha.

        At most a share alpha of all models for which the null holds ever alarm.

        Args:
            alpha: Significance level, inside (0, 1).

        Raises:
            ValueError: alpha is outside (0, 1).
        """
        check_alpha(alpha)
        return self.peak >= -math.log(alpha)
