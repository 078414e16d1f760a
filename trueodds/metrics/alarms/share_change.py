"""Evidence that the share of ones in a stream has changed, valid at every moment (universal inference)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from trueodds.metrics.alarms.stored import StoredState

FIRST, PER_DOUBLING = 16, 4
"""First possible moment of a change, and moments per doubling of the stream from there on."""


def moment(k: int) -> int:
    """Return the number of values before the k-th possible change: 16, 20, 23, 27, 32, 39, ..."""
    return math.ceil(FIRST * 2 ** (k / PER_DOUBLING))


@dataclass(frozen=True)
class ShareChange(StoredState):
    """Test of "the share of ones is constant" against "it changed once".

    Let KT(n, k) = Beta(k + 1/2, n - k + 1/2) / Beta(1/2, 1/2) be the Jeffreys mixture's likelihood of n values with k
    ones. A change after m values has the likelihood Q_m = KT(m, k_m) KT(n - m, k - k_m). The evidence is

        E = (sum_{m < n} w_m Q_m + (1 - sum_{m < n} w_m) KT(n, k)) / max_p p^k (1 - p)^(n - k)

    over geometrically spaced moments m with weights w_j = 1 / ((j + 1)(j + 2)). The numerator is the probability of the
    stream under one mixture law. The denominator is at least its probability under any constant share. So if the
    values are independent with a constant share, whatever it is, P(ever E >= 1/alpha) <= alpha.

    References:
        Wasserman, Ramdas and Balakrishnan (2020), Universal inference. Ramdas, Ruf, Larsson and Koolen (2022), Testing
        exchangeability: fork-convexity, supermartingales and e-processes, section 5.

    Examples:
        >>> change = ShareChange.start().advance([False] * 500).advance([True, False, False, False] * 25)
        >>> change.log_e > math.log(20), change.is_rise
        (True, True)
    """

    form: ClassVar[str] = "share-change"

    values: int
    ones: int
    ones_before: tuple[int, ...]
    """Number of ones before each possible change that has passed."""

    @classmethod
    def start(cls) -> Self:
        """Return the test before the first value."""
        return cls(0, 0, ())

    def advance(self, values: npt.ArrayLike) -> Self:
        """Return the test after more values, True for a one."""
        counts = np.cumsum(np.asarray(values, np.int64))
        before, count = list(self.ones_before), self.values + len(counts)
        while (m := moment(len(before))) <= count:
            before.append(self.ones + (int(counts[m - self.values - 1]) if m > self.values else 0))
        return type(self)(count, self.ones + (int(counts[-1]) if len(counts) else 0), tuple(before))

    @property
    def log_e(self) -> float:
        """Natural logarithm of the evidence E."""
        if not self.values:
            return 0.0
        n, k = self.values, self.ones
        logs, left = list[float](), 1.0
        for m, weight, before in self._changes():
            logs.append(math.log(weight) + _log_kt(m, before) + _log_kt(n - m, k - before))
            left -= weight
        logs.append(math.log(left) + _log_kt(n, k))
        highest = max(logs)
        best = sum(c * math.log(c / n) for c in (k, n - k) if c)
        return highest + math.log(math.fsum(math.exp(log - highest) for log in logs)) - best

    @property
    def shares(self) -> tuple[float, float] | None:
        """Shares of ones before and after the most likely change; None before the first possible one."""
        n, k = self.values, self.ones
        changes = [
            (math.log(w) + _log_kt(m, b) + _log_kt(n - m, k - b), b / m, (k - b) / (n - m))
            for m, w, b in self._changes()
        ]
        return max(changes)[1:] if changes else None

    @property
    def is_rise(self) -> bool:
        """Whether the share is higher after the most likely change."""
        return self.shares is not None and self.shares[1] > self.shares[0]

    def _changes(self) -> list[tuple[int, float, int]]:
        """Return number of values before, weight, and number of ones before, for each change that has passed."""
        passed = ((moment(j), 1 / ((j + 1) * (j + 2)), before) for j, before in enumerate(self.ones_before))
        return [change for change in passed if change[0] < self.values]

    def to_json(self) -> dict[str, Any]:
        return {"form": self.form, "values": self.values, "ones": self.ones, "ones_before": list(self.ones_before)}

    @classmethod
    def _restore(cls, tree: dict[str, Any]) -> Self:
        before = tuple(tree["ones_before"])
        numbers = (tree["values"], tree["ones"], *before)
        if not all(type(number) is int for number in numbers) or not 0 <= tree["ones"] <= tree["values"]:
            raise ValueError(f"expected counts, not {numbers!r:.100}")
        moments = [moment(j) for j in range(len(before) + 1)]
        sound = all(0 <= ones <= m for ones, m in zip(before, moments, strict=False)) and list(before) == sorted(before)
        if (
            not sound
            or before[-1:] > (tree["ones"],)
            or not (moments[-1] > tree["values"] >= (moments[-2:-1] or [0])[0])
        ):
            raise ValueError(
                f"{len(before)} moments have passed after {tree['values']} values, or their ones are wrong"
            )
        return cls(tree["values"], tree["ones"], before)


def _log_kt(n: int, k: int) -> float:
    return math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5) - math.lgamma(n + 1) - math.log(math.pi)
