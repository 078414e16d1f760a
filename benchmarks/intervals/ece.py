"""Coverage and width of `trueodds.metrics.ece_interval` for a known ECE of the population.

    python -m benchmarks.intervals.ece --runs 400        # about three minutes on one core

Confidence shapes: A (100 classes, accuracy .79), B (10 classes, .95), C (two classes, .71) with n = 500, 5,000 and
50,000 rows; D (10 classes, .996: errors are rare) with n = 10, 50 and 500. Each is calibrated, wrong by a temperature
(population ECE .02 and .1), wrong with alternating sign from bin to bin (the same), or wrong between .5 and .8 only.
The population is a pool of 400,000 rows. A run draws n of them with replacement and then their labels, so the pool's
ECE is the truth without simulation error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from benchmarks.record import RESULTS, Run, options_parser
from benchmarks.shapes import SHAPES, chance_at, pool_logits
from trueodds.metrics import CalibrationSums, ece_interval
from trueodds.metrics.intervals import calibration_error

Array = npt.NDArray[np.float64]

BINS, LEVEL, POOL = 15, 0.95, 400_000
SIZES = {"A": (500, 5_000, 50_000), "B": (500, 5_000, 50_000), "C": (500, 5_000, 50_000), "D": (10, 50, 500)}
PROMISE = 0.93
GROUPS = {"common errors (A, B, C)": "ABC", "rare errors (D)": "D"}
RESULT = RESULTS / "interval_coverage.json"


@dataclass(frozen=True)
class Population:
    """A pool of rows: the confidence and the probability of being right."""

    shape: str
    truth: str
    confidence: Array
    chance: Array

    @property
    def ece(self) -> float:
        bin_M = np.minimum(np.ceil(self.confidence * BINS) - 1, BINS - 1).astype(np.intp)
        gap_B = np.bincount(bin_M, self.chance - self.confidence, BINS)
        return float(np.abs(gap_B).sum() / len(bin_M))

    def draw(self, n: int, rng: np.random.Generator) -> CalibrationSums:
        row_N = rng.integers(0, len(self.confidence), n)
        return CalibrationSums.from_top(self.confidence[row_N], rng.random(n) < self.chance[row_N])


@dataclass
class Outcome:
    """Results of one setting; `plain` is the interval without the limits for rare errors."""

    shape: str
    truth: str
    ece: float
    n: int
    runs: int
    covered: float
    too_high: float
    """Share of runs in which the whole interval lies above the truth."""
    too_low: float
    width: float
    covered_plain: float
    width_plain: float
    bias_estimate: float
    bias_plug_in: float


def solved(make: Callable[[float], Population], target: float, low: float, high: float) -> Population:
    """Return the population whose strength parameter gives the target ECE."""
    return make(brentq(lambda strength: make(strength).ece - target, low, high, xtol=1e-6))


def populations(shape: str, rows: int = POOL, seed: int = 7) -> list[Population]:
    """Return the six populations of one shape."""
    logits_NC = pool_logits(shape, rows, seed)
    confidence = chance_at(logits_NC, 1.0)
    sign = np.where(np.minimum(np.ceil(confidence * BINS), BINS) % 2 == 0, 1.0, -1.0)

    def tempered(target: float) -> Population:
        # Population ECE needs a temperature to .1% only: solve on a tenth of the rows, keep the ECE of all of them.
        few_NC, few = logits_NC[: max(rows // 10, 1)], confidence[: max(rows // 10, 1)]
        temperature = brentq(
            lambda t: Population(shape, "", few, chance_at(few_NC, t)).ece - target, 1.0, 20.0, xtol=1e-4
        )
        return Population(shape, f"T, ECE {target:g}", confidence, chance_at(logits_NC, temperature))

    def alternating(target: float) -> Population:
        return solved(
            lambda gap: Population(
                shape, f"alternating, ECE {target:g}", confidence, np.clip(confidence + sign * gap, 0.0, 1.0)
            ),
            target,
            0.0,
            1.0,
        )

    local = confidence - 0.1 * ((confidence > 0.5) & (confidence <= 0.8))
    return [
        Population(shape, "calibrated", confidence, confidence),
        tempered(0.02),
        tempered(0.1),
        alternating(0.02),
        alternating(0.1),
        Population(shape, "local", confidence, local),
    ]


def measure(population: Population, n: int, runs: int, seed: int) -> Outcome:
    """Return coverage and mean width over `runs` new samples."""
    rng = np.random.default_rng([seed, n, *population.shape.encode(), *population.truth.encode()])
    truth = population.ece
    rows = []
    for _ in range(runs):
        sums = population.draw(n, rng)
        found = ece_interval(sums, bins=BINS, level=LEVEL)
        plain = found
        if min(sums.total("correct"), n - sums.total("correct")) < calibration_error.RARE:
            with mock.patch.object(calibration_error, "RARE", 0):
                plain = ece_interval(sums, bins=BINS, level=LEVEL)
        rows.append((found.lower, found.upper, plain.lower, plain.upper, found.estimate, found.ece))
    lower, upper, plain_lower, plain_upper, estimate, plug_in = np.array(rows).T
    return Outcome(
        shape=population.shape,
        truth=population.truth,
        ece=truth,
        n=n,
        runs=runs,
        covered=float(((lower <= truth) & (truth <= upper)).mean()),
        too_high=float((lower > truth).mean()),
        too_low=float((upper < truth).mean()),
        width=float((upper - lower).mean()),
        covered_plain=float(((plain_lower <= truth) & (truth <= plain_upper)).mean()),
        width_plain=float((plain_upper - plain_lower).mean()),
        bias_estimate=float((estimate - truth).mean()),
        bias_plug_in=float((plug_in - truth).mean()),
    )


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the lowest coverage, the share of settings that reach the nominal coverage, and mean widths."""
    lowest = min(outcomes, key=lambda o: o.covered)
    return {
        "settings": len(outcomes),
        "lowest_coverage": lowest.covered,
        "lowest_setting": f"{lowest.shape}, {lowest.truth}, n = {lowest.n}",
        "lowest_standard_error": float(np.sqrt(lowest.covered * (1 - lowest.covered) / lowest.runs)),
        "settings_at_93_percent": float(np.mean([o.covered >= PROMISE for o in outcomes])),
        "mean_coverage": float(np.mean([o.covered for o in outcomes])),
        "mean_width": float(np.mean([o.width for o in outcomes])),
        "without_exact_limits": {
            "lowest_coverage": min(o.covered_plain for o in outcomes),
            "settings_at_93_percent": float(np.mean([o.covered_plain >= PROMISE for o in outcomes])),
            "mean_width": float(np.mean([o.width_plain for o in outcomes])),
        },
    }


def markdown(found: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    alone = "the lower limit alone is too high, the upper too low, in up to"
    lines = [f"| samples | settings | lowest coverage at a nominal 95% | mean coverage | mean width | {alone} |"]
    lines.append("|---" * 6 + "|")
    for name, group in found["summary"].items():
        settings = [o for o in found["settings"] if o["shape"] in GROUPS[name]]
        high, low = (max(o[side] for o in settings) for side in ("too_high", "too_low"))
        lowest = f"{group['lowest_coverage']:.1%} +- {group['lowest_standard_error']:.1%} ({group['lowest_setting']})"
        mean = f"{group['mean_coverage']:.1%} | {group['mean_width']:.4f}"
        lines.append(f"| {name} | {group['settings']} | {lowest} | {mean} | {high:.1%}, {low:.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=int, default=300, help="samples per setting")
    parser.add_argument("--shapes", default="ABCD", help="which of the shapes")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.runs < 1 or not set(options.shapes) <= set(SHAPES):
        parser.error(
            f"--runs is {options.runs}, --shapes {options.shapes!r}; allowed are runs >= 1 and letters of ABCD"
        )
    run = Run()
    outcomes: list[Outcome] = []
    for shape in options.shapes:
        for population in populations(shape):
            for n in SIZES[shape]:
                outcomes.append(o := measure(population, n, options.runs, options.seed))
                sides = f"covered {o.covered:.3f} too high {o.too_high:.3f} too low {o.too_low:.3f}"
                run.say(f"{shape} {o.truth:22} n = {n:6}: {sides} width {o.width:.4f} plain {o.width_plain:.4f}")
    summaries = {
        name: summary(members)
        for name, letters in GROUPS.items()
        if (members := [o for o in outcomes if o.shape in letters])
    }
    run.finish(options.out, markdown, bins=BINS, level=LEVEL, summary=summaries, settings=[asdict(o) for o in outcomes])


if __name__ == "__main__":
    main()
