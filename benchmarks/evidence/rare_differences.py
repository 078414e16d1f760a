"""Coverage of the interval of a paired difference, where few rows differ or few rows decide.

    python -m benchmarks.evidence.rare_differences        # two minutes on one core
    python -m benchmarks.evidence.rare_differences --quick

Each row of two models has a difference: of the error (-1, 0 or 1), of the size of its set (classes), of the NLL or of
the Brier score. In the populations of scores, the confidences of one model are calibrated. Those of the other are the
same in log-odds, times a factor. The mean difference is known, or is that of a million rows. Its 95% interval by
`of_rows` is compared with Student's alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, Run, conclude, options_parser, whole_from
from trueodds.evaluation.paired_differences import BRIER, NLL, RowScores, score_difference
from trueodds.metrics.significance.differences import Difference, of_estimates, of_rows

Array = npt.NDArray[np.float64]

RESULT = RESULTS / "rare_differences.json"
ROWS = (10, 50, 200, 1_000)
LEVEL, MANY = 0.95, 1_000_000
CLASSES = 10


@dataclass(frozen=True)
class Lattice:
    """Differences with a few values: `values` with their probabilities, otherwise `rest`."""

    name: str
    values: tuple[tuple[float, float], ...]
    bound: float
    rest: float = 0.0

    def draw(self, rows: int, rng: np.random.Generator) -> tuple[Array, Difference]:
        """Draw the differences of the rows, and test their mean."""
        d_N = self._differences(rows, rng)
        return d_N, of_rows(d_N[None], LEVEL, bound=self.bound)

    def mean(self) -> float:
        """Return the expected difference."""
        return sum(value * p for value, p in self.values) + self.rest * (1 - sum(p for _, p in self.values))

    def _differences(self, rows: int, rng: np.random.Generator) -> Array:
        values = [*(value for value, _ in self.values), self.rest]
        shares = [p for _, p in self.values]
        return rng.choice(values, rows, p=[*shares, 1 - sum(shares)])


@dataclass(frozen=True)
class Scores:
    """Differences of NLL or Brier score. `error` is the mean error, `factor` multiplies the log-odds."""

    measure: str
    error: float
    factor: float

    @property
    def name(self) -> str:
        """Name in the table."""
        kind = "NLL" if self.measure == NLL else "Brier score"
        return f"{kind}, {self.error:.0%} wrong, log-odds x {self.factor:g}"

    def draw(self, rows: int, rng: np.random.Generator) -> tuple[Array, Difference]:
        """Draw the differences of the rows, and test their mean."""
        ours, theirs = self._pair(rows, rng)
        return self._differences(ours, theirs), score_difference([(ours, theirs)], self.measure, LEVEL)

    def mean(self) -> float:
        """Return the mean difference of a million rows."""
        return float(self._differences(*self._pair(MANY, np.random.default_rng(1))).mean())

    def _pair(self, rows: int, rng: np.random.Generator) -> tuple[RowScores, RowScores]:
        confidence_N = np.clip(1 - rng.beta(1, 1 / self.error - 1, rows), 1e-9, 1 - 1e-9)
        correct_N = rng.random(rows) < confidence_N
        other_N = 1 / (1 + (1 / confidence_N - 1) ** self.factor)
        return RowScores.of_confidence(other_N, correct_N), RowScores.of_confidence(confidence_N, correct_N)

    def _differences(self, ours: RowScores, theirs: RowScores) -> Array:
        return ours.nll_N - theirs.nll_N if self.measure == NLL else ours.brier_N - theirs.brier_N


POPULATIONS: tuple[Lattice | Scores, ...] = (
    Lattice("error, .1% better and .1% worse", ((1, 0.001), (-1, 0.001)), 1),
    Lattice("error, .3% worse", ((1, 0.003),), 1),
    Lattice("error, 5% worse and 2% better", ((1, 0.05), (-1, 0.02)), 1),
    Lattice("error, 20% better and 20% worse", ((1, 0.2), (-1, 0.2)), 1),
    Lattice("size, one class more in 95%", ((0, 0.05),), CLASSES, rest=1),
    Lattice("size, two classes less in 2%, one more in half", ((-2, 0.02), (1, 0.5)), CLASSES),
    *(
        Scores(measure, error, factor)
        for measure in (NLL, BRIER)
        for error, factor in ((0.01, 2), (0.01, 0.5), (0.05, 1.2), (0.3, 2), (0.3, 1.1))
    ),
)


def measure(population: Lattice | Scores, rows: int, runs: int, seed: int, mean: float) -> dict[str, Any]:
    """Return the coverage of both intervals, and how often interval and p-value disagree about 0."""
    rng = np.random.default_rng([seed, rows, POPULATIONS.index(population)])
    ours = students = few = disagree = 0
    for _ in range(runs):
        d_N, found = population.draw(rows, rng)
        lower, upper = (-np.inf, np.inf) if found.lower is None or found.upper is None else (found.lower, found.upper)
        alone = of_estimates(d_N[:1] * 0 + d_N.mean(), float(d_N.var(ddof=1)) / rows, rows - 1, LEVEL)
        assert found.p_value is not None and alone.lower is not None and alone.upper is not None
        ours += lower <= mean <= upper
        students += alone.lower <= mean <= alone.upper
        few += found.differing is not None
        disagree += (lower <= 0 <= upper) != (found.p_value > 1 - LEVEL)
    shares = {"coverage": ours, "students": students, "few": few, "disagree": disagree}
    return {"population": population.name, "rows": rows, "runs": runs} | {k: n / runs for k, n in shares.items()}


def summary(measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarise for docs/explanation/claims.md."""
    of_few = [row for row in measured if row["few"] > 0.5]
    return {
        "populations": len(POPULATIONS),
        "runs": measured[0]["runs"],
        "fewest_rows": min(ROWS),
        "most_rows": max(ROWS),
        "lowest_coverage": min(row["coverage"] for row in measured),
        "lowest_coverage_of_few": min(row["coverage"] for row in of_few),
        "lowest_coverage_of_students": min(row["students"] for row in measured),
        "disagree": max(row["disagree"] for row in measured),
    }


def markdown(found: dict[str, Any]) -> str:
    """Return the table for docs/explanation/results.md."""
    rows = sorted({row["rows"] for row in found["measured"]})
    cells: dict[str, dict[int, str]] = {}
    for row in found["measured"]:
        cells.setdefault(row["population"], {})[row["rows"]] = f"{row['coverage']:.1%} ({row['students']:.1%})"
    lines = [f"| difference | {' | '.join(f'{n:,} rows' for n in rows)} |", f"|---|{'---:|' * len(rows)}"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(of[n] for n in rows)} |" for name, of in cells.items())])


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--runs", type=whole_from(10), default=400, help="samples of a setting (default: 400)")
    parser.add_argument("--quick", action="store_true", help="20 samples, printed and not written")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    runs, run = 20 if options.quick else options.runs, Run()
    measured = []
    for population in POPULATIONS:
        mean = population.mean()
        for rows in ROWS:
            measured.append(measure(population, rows, runs, options.seed, mean))
            run.say(measured[-1])
    conclude(
        None if options.quick else RESULT,
        markdown,
        packages=("numpy", "scipy"),
        seconds=round(time.process_time(), 1),
        summary=summary(measured),
        measured=measured,
    )


if __name__ == "__main__":
    main()
