"""Coverage and width of `trueodds.metrics.classwise_ece_interval` for a known class-wise ECE of the population.

    python -m benchmarks.intervals.classwise --runs 150        # about six minutes on one core

Nets A (100 classes, accuracy .79), B (10 classes, .95), C (two classes, .71) and D (10 classes, .996: errors are rare)
are those of benchmarks/shapes.py with a random top class. Each is calibrated, over-confident (its temperature should be
1.5), under-confident (.7), wrong about one class (two in five of its rows belong to another), or wrong about all
classes' frequencies. The population is a pool of 20,000 rows. A run draws n of them with replacement and then their
labels, so the pool's class-wise ECE is the truth without simulation error. Samples of 5,000 rows and more have a
quarter of the runs.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, Run, options_parser
from benchmarks.shapes import pool_logits
from trueodds.metrics import classwise_ece_interval, softmax

Array = npt.NDArray[np.float64]

BINS, LEVEL, POOL, SEED = 15, 0.95, 20_000, 7
SIZES = {"A": (500, 2_000, 10_000), "B": (200, 1_000, 10_000), "C": (100, 1_000, 10_000), "D": (50, 500, 5_000)}
LARGE = 5_000
WORDS = {"A": "100 classes", "B": "10 classes", "C": "2 classes", "D": "10 classes, rare errors"}
PROMISE = 0.93
RESULT = RESULTS / "classwise_coverage.json"


@dataclass(frozen=True)
class Population:
    """A pool of rows: the predicted and the true probability of each class."""

    net: str
    truth: str
    said_NC: Array
    chance_NC: Array

    @property
    def classwise_ece(self) -> float:
        classes = self.said_NC.shape[1]
        bin_NC = np.clip(np.ceil(self.said_NC * BINS) - 1, 0, BINS - 1).astype(np.intp)
        gap = np.bincount((np.arange(classes) * BINS + bin_NC).ravel(), (self.chance_NC - self.said_NC).ravel())
        return float(np.abs(gap).sum() / self.said_NC.size)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Array, npt.NDArray[np.intp]]:
        row_N = rng.integers(0, len(self.said_NC), n)
        end_NC = self.chance_NC[row_N, :-1].cumsum(axis=1)  # the last class takes what rounding leaves
        return self.said_NC[row_N], (end_NC < rng.random((n, 1))).sum(axis=1)


@dataclass
class Outcome:
    """Results of one setting."""

    net: str
    truth: str
    classwise_ece: float
    n: int
    runs: int
    covered: float
    too_high: float
    """Share of runs in which the whole interval lies above the truth."""
    too_low: float
    width: float
    bias_estimate: float
    bias_plug_in: float
    seconds: float
    """Seconds for one interval."""


def populations(net: str) -> list[Population]:
    """Return the five populations of one net."""
    rng, logits_NC = np.random.default_rng(SEED), pool_logits(net, POOL, SEED)
    likeliest_N, row_N = rng.integers(0, logits_NC.shape[1], POOL), np.arange(POOL)
    logits_NC[row_N, likeliest_N], logits_NC[:, 0] = logits_NC[:, 0].copy(), logits_NC[row_N, likeliest_N].copy()
    said_NC = softmax(logits_NC)
    confused_NC = said_NC.copy()
    confused_NC[:, :2] += 0.4 * said_NC[:, :1] * [-1, 1]
    truths = {
        "calibrated": said_NC,
        "over-confident": softmax(logits_NC / 1.5),
        "under-confident": softmax(logits_NC / 0.7),
        "one class": confused_NC,
        "frequencies": softmax(logits_NC + rng.normal(0, 0.7, logits_NC.shape[1])),
    }
    return [Population(net, truth, said_NC, chance_NC) for truth, chance_NC in truths.items()]


def measure(population: Population, n: int, runs: int, seed: int) -> Outcome:
    """Return coverage and mean width over `runs` new samples."""
    rng = np.random.default_rng([seed, n, *population.net.encode(), *population.truth.encode()])
    truth, limits, seconds = population.classwise_ece, [], 0.0
    for _ in range(runs):
        rows = population.draw(n, rng)
        started = time.process_time()
        interval = classwise_ece_interval(*rows, bins=BINS, level=LEVEL)
        seconds += time.process_time() - started
        limits.append((interval.lower, interval.upper, interval.estimate, interval.ece))
    lower, upper, estimate, plug_in = np.array(limits).T
    return Outcome(
        net=population.net,
        truth=population.truth,
        classwise_ece=truth,
        n=n,
        runs=runs,
        covered=float(((lower <= truth) & (truth <= upper)).mean()),
        too_high=float((lower > truth).mean()),
        too_low=float((upper < truth).mean()),
        width=float((upper - lower).mean()),
        bias_estimate=float((estimate - truth).mean()),
        bias_plug_in=float((plug_in - truth).mean()),
        seconds=round(seconds / runs, 3),
    )


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the lowest coverage, and the errors of plug-in value and estimate."""
    lowest = min(outcomes, key=lambda o: o.covered)
    return {
        "settings": len(outcomes),
        "lowest_coverage": lowest.covered,
        "lowest_setting": f"{lowest.truth}, n = {lowest.n}",
        "lowest_standard_error": float(np.sqrt(lowest.covered * (1 - lowest.covered) / lowest.runs)),
        "settings_at_93_percent": float(np.mean([o.covered >= PROMISE for o in outcomes])),
        "mean_coverage": float(np.mean([o.covered for o in outcomes])),
        "mean_width": float(np.mean([o.width for o in outcomes])),
        "mean_bias_of_estimate": float(np.mean([o.bias_estimate for o in outcomes])),
        "mean_bias_of_plug_in": float(np.mean([o.bias_plug_in for o in outcomes])),
    }


def markdown(record: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    lines = [
        "| samples | settings | lowest coverage at a nominal 95% | mean coverage | mean width | the estimate is off by"
        " | the plug-in value by |"
    ]
    lines.append("|---" * 7 + "|")
    for name, group in record["summary"].items():
        lowest = f"{group['lowest_coverage']:.1%} +- {group['lowest_standard_error']:.1%} ({group['lowest_setting']})"
        biases = f"{group['mean_bias_of_estimate']:+.4f} | {group['mean_bias_of_plug_in']:+.4f}"
        mean = f"{group['mean_coverage']:.1%} | {group['mean_width']:.4f}"
        lines.append(f"| {name} | {group['settings']} | {lowest} | {mean} | {biases} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=int, default=150, help="samples per setting of fewer than 5,000 rows")
    parser.add_argument("--nets", default="ABCD", help="which of the nets")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.runs < 1 or not set(options.nets) <= set(SIZES):
        parser.error(f"--runs is {options.runs}, --nets {options.nets!r}; allowed are runs >= 1 and letters of ABCD")
    run, outcomes = Run(), list[Outcome]()
    for net in options.nets:
        for population in populations(net):
            for n in SIZES[net]:
                runs = options.runs if n < LARGE else -(-options.runs // 4)
                outcomes.append(o := measure(population, n, runs, options.seed))
                words = f"{o.net} {o.truth:15} n = {o.n:6}: {o.classwise_ece:.5f} covered {o.covered:.3f}"
                sides = f"too high {o.too_high:.3f} too low {o.too_low:.3f} width {o.width:.5f} {o.seconds} s"
                run.say(f"{words} {sides}")
    run.finish(
        options.out,
        markdown,
        bins=BINS,
        level=LEVEL,
        summary={WORDS[net]: summary([o for o in outcomes if o.net == net]) for net in options.nets},
        settings=[asdict(o) for o in outcomes],
    )


if __name__ == "__main__":
    main()
