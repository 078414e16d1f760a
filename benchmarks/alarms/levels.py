"""The alarm on levels: false alarms where probabilities are rounded or recalibrated, and labels until a real error.

    python -m benchmarks.alarms.levels --runs 10        # a minute on one core

A population draws a score s ~ N(0, 1) for each row. The model's probabilities are P(level >= k) = sigma((s - t_k) / w)
with cuts t_k at equal shares of the scores: sharp (w = .1) or dull (2), with 3 or 10 levels. For `rare`, 1% of the
scores are above the lowest cut, and the w is halved. Levels are drawn from these probabilities, or from those of
s - .5 (`shifted`). The service sees the probabilities in one of these ways:

- "exact";
- "rounded": in steps of .01, read as `as_distributions` does;
- "recalibrated": over-confident (logits times 1.6) and rounded, then corrected by `ordered_temperature` that was fitted
  on 2,000 other labels, or by `temperature` if a level is not among these.

A stream has 20,000 labels, in the alarm's blocks of 20. Two tests page, so each has half the significance level. For
recalibrated models the calibrator keeps an error: the table has the largest ECE of a threshold over five calibrators.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

import trueodds
from benchmarks.intervals.ordered import WIDTHS, cuts, of_levels
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds.calibrators import FitError
from trueodds.metrics import EProcess, OrderedEProcess
from trueodds.metrics.alarms.sequential import BLOCK
from trueodds.sums.ordered import at_least
from trueodds.sums.rounding import as_distributions

Array = npt.NDArray[np.float64]

LABELS, FITTED, ALPHA, STEP, SEED = 20_000, 2_000, 0.025, 0.01, 7
WAYS = ("exact", "rounded", "recalibrated")
TRUTHS = {"calibrated": 0.0, "shifted": 0.5}
OVER = 1.6
"""Factor of the logits of the over-confident model that is recalibrated."""
RESULT = RESULTS / "levels.json"


@dataclass(frozen=True)
class Population:
    """Model and truth of one setting."""

    levels: int
    width: str
    rare: bool

    @property
    def name(self) -> str:
        return f"{self.levels} levels, {self.width}{', rare' * self.rare}"

    def probabilities(self, score_N: Array) -> Array:
        """Return the probabilities of each level."""
        w = WIDTHS[self.width] * (0.5 if self.rare else 1.0)
        return of_levels(expit((score_N[:, None] - cuts(self.levels, self.rare)) / w))

    def draw(self, n: int, shift: float, rng: np.random.Generator) -> tuple[Array, npt.NDArray[np.intp]]:
        """Draw the probabilities of n rows, and their levels from those of the scores less `shift`."""
        score_N = rng.normal(size=n)
        true_NC = self.probabilities(score_N - shift)
        return self.probabilities(score_N), (true_NC.cumsum(axis=1)[:, :-1] < rng.random((n, 1))).sum(axis=1)


def rounded(p_NC: Array) -> Array:
    """Return rows in steps of .01 as the service reads them."""
    return as_distributions(np.rint(p_NC / STEP) * STEP, STEP)


def as_seen(population: Population, way: str, rng: np.random.Generator) -> Any:
    """Return the function from the true probabilities to those that the alarm gets."""
    if way == "exact":
        return lambda p_NC: p_NC
    if way == "rounded":
        return rounded

    def over(p_NC: Array) -> Array:
        sharper: Array = softmax(OVER * np.log(np.maximum(p_NC, 1e-12)), axis=1)
        return np.log(rounded(sharper))

    p_NC, level_N = population.draw(FITTED, 0.0, rng)
    try:
        calibrator = trueodds.fit(over(p_NC), level_N, "ordered_temperature", resolution=STEP)
    except FitError:
        calibrator = trueodds.fit(over(p_NC), level_N, "temperature", resolution=STEP)
    return lambda p_NC: calibrator(over(p_NC))


def largest_ece(population: Population, seen: Any, rng: np.random.Generator) -> float:
    """Return the largest ECE of a threshold, in 15 ranges of 50,000 rows, by their true probabilities."""
    p_NC = population.probabilities(rng.normal(size=50_000))
    said_NK, true_NK = at_least(seen(p_NC)), at_least(p_NC)
    found = []
    for said_N, true_N in zip(said_NK.T, true_NK.T, strict=True):
        bin_N = np.minimum((said_N * 15).astype(int), 14)
        found.append(np.abs(np.bincount(bin_N, said_N - true_N)).sum() / len(said_N))
    return float(max(found))


def measure(population: Population, way: str, truth: str, runs: int) -> dict[str, Any]:
    """Return the share of streams in which the levels and the confidence alarm, and their median numbers of labels."""
    rng = np.random.default_rng([SEED, *population.name.encode(), *way.encode(), *truth.encode()])
    fired = {"levels": list[float](), "confidence": list[float]()}
    errors = list[float]()
    for _ in range(runs):
        seen = as_seen(population, way, rng)
        p_NC, level_N = population.draw(LABELS, TRUTHS[truth], rng)
        said_NC = seen(p_NC)
        reached_NK = level_N[:, None] > np.arange(population.levels - 1)
        top_N = said_NC.argmax(axis=1)
        _, of_levels_B = OrderedEProcess.start(population.levels).advance_each(at_least(said_NC), reached_NK)
        _, of_top_B = EProcess.start("ece").advance_each(said_NC.max(axis=1), top_N == level_N)
        for name, log_e_B in (("levels", of_levels_B), ("confidence", of_top_B)):
            over_B = np.flatnonzero(log_e_B >= -np.log(ALPHA))
            fired[name].append(float(BLOCK * (over_B[0] + 1)) if len(over_B) else np.inf)
        if truth == "calibrated" and len(errors) < 5:
            errors.append(largest_ece(population, seen, rng))
    found: dict[str, Any] = {"population": population.name, "way": way, "truth": truth, "runs": runs}
    for name, after in fired.items():
        median = float(np.median(after))
        found[f"{name}_alarmed"] = float(np.isfinite(after).mean())
        found[f"{name}_median_labels"] = median if np.isfinite(median) else None
    return found | {"largest_ece": max(errors) if errors else None}


def markdown(record: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    lines = [
        "| probabilities | truth | levels alarmed: mean, highest | largest ECE of a threshold | levels: median labels"
        " | confidence: median labels |",
        "|---" * 6 + "|",
    ]
    for way in WAYS:
        for truth in TRUTHS:
            of_way = [one for one in record["settings"] if (one["way"], one["truth"]) == (way, truth)]
            alarmed = [one["levels_alarmed"] for one in of_way]
            errors = [one["largest_ece"] for one in of_way if one["largest_ece"] is not None]
            medians = ["", ""]
            if truth == "shifted":
                medians = [
                    _range([one[f"{name}_median_labels"] for one in of_way]) for name in ("levels", "confidence")
                ]
            largest = f"{max(errors):.4f}" if errors else ""
            lines.append(
                f"| {way} | {truth} | {np.mean(alarmed):.1%}, {max(alarmed):.1%} | {largest} | {' | '.join(medians)} |"
            )
    return "\n".join(lines)


def _range(medians: list[float | None]) -> str:
    known = [one for one in medians if one is not None]
    none = len(medians) - len(known)
    return f"{min(known):,.0f} to {max(known):,.0f}{f', none in {none}' if none else ''}" if known else "none"


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(10), default=20, help="streams per setting of a calibrated model")
    options = parser.parse_args()
    run, settings = Run(), list[dict[str, Any]]()
    for levels, rare, width, way, truth in product((3, 10), (False, True), WIDTHS, WAYS, TRUTHS):
        runs = options.runs // (1 if truth == "calibrated" else 4)
        settings.append(one := measure(Population(levels, width, rare), way, truth, runs))
        run.say(one)
    run.finish(options.out, markdown, alpha=ALPHA, settings=settings)


if __name__ == "__main__":
    main()
