"""Coverage and width of `trueodds.metrics.score_interval` for a known expected NLL and Brier score.

    python -m benchmarks.intervals.scores --runs 1000        # about a minute on one core

Nets A (100 classes, accuracy .79), B (10 classes, .95) and D (10 classes, .996) are those of benchmarks/shapes.py.
Another net always has confidence .999 in 10 classes. n = 50 to 5,000 rows. Each net is calibrated, over-confident by a
temperature of 1.5, or calibrated with one label in a hundred replaced by a random class. The population is a pool of
20,000 rows. A run draws n of them with replacement and then their labels, so the pool's expectation is the truth
without simulation error.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.shapes import pool_logits
from trueodds.metrics import CalibrationSums, score_interval, softmax
from trueodds.metrics.intervals.proper_scores import Score

Array = npt.NDArray[np.float64]

LEVEL, POOL, SEED = 0.95, 20_000, 7
SIZES = (50, 200, 1_000, 5_000)
PROMISE = 0.93
NETS = ("A", "B", "D", ".999")
NOISE = 0.01
RESULT = RESULTS / "score_coverage.json"


@dataclass(frozen=True)
class Population:
    """A pool of rows: the predicted and the true probability of each class, and each label's scores."""

    net: str
    truth: str
    probabilities_NC: Array
    cumulated_NC: Array
    scores_NC: dict[Score, Array]
    expected: dict[Score, float]
    accuracy: float

    def draw(self, n: int, rng: np.random.Generator) -> CalibrationSums:
        row_N = rng.integers(0, len(self.probabilities_NC), n)
        label_N = (self.cumulated_NC[row_N] < rng.random((n, 1))).sum(axis=1)
        drawn_NC = self.probabilities_NC[row_N]
        top_N = drawn_NC.argmax(axis=1)
        nll_N, brier_N = (self.scores_NC[score][row_N, label_N] for score in get_args(Score))
        return CalibrationSums.from_top(drawn_NC.max(axis=1), top_N == label_N, nll_N=nll_N, brier_N=brier_N)


@dataclass
class Outcome:
    """Results of one setting; `plain` is always Student's interval."""

    net: str
    truth: str
    score: Score
    expected: float
    n: int
    errors: float
    """Expected number of wrong rows."""
    runs: int
    covered: float
    too_high: float
    """Share of runs in which the whole interval lies above the truth."""
    too_low: float
    width: float
    covered_plain: float
    width_plain: float


def populations(net: str) -> list[Population]:
    """Return the three populations of one net."""
    if net == ".999":
        logits_NC = np.tile(np.log([0.999, *[0.001 / 9] * 9]), (100, 1))
    else:
        logits_NC = pool_logits(net, POOL, SEED)
    said_NC = softmax(logits_NC)
    noisy_NC = (1 - NOISE) * said_NC + NOISE / said_NC.shape[1]
    truths = {"calibrated": said_NC, "T = 1.5": softmax(logits_NC / 1.5), "1% of labels random": noisy_NC}
    nll_NC = -np.log(said_NC)
    brier_NC = np.clip(np.vecdot(said_NC, said_NC)[:, None] - 2 * said_NC + 1, 0.0, 2.0)
    scores: dict[Score, Array] = {"nll": nll_NC, "brier": brier_NC}
    found = []
    for name, truth_NC in truths.items():
        cumulated_NC = truth_NC.cumsum(axis=1)
        cumulated_NC[:, -1] = 1.0  # the last class takes what rounding leaves
        expected = {score: float((truth_NC * values_NC).sum(axis=1).mean()) for score, values_NC in scores.items()}
        accuracy = float(truth_NC[np.arange(len(truth_NC)), said_NC.argmax(axis=1)].mean())
        found.append(Population(net, name, said_NC, cumulated_NC, scores, expected, accuracy))
    return found


def students(sums: CalibrationSums, score: Score) -> tuple[float, float]:
    """Return mean +- t s / sqrt(n), cut at 0."""
    n, mean = sums.n, sums.total(score) / sums.n
    variance = max(sums.total(f"{score}_squared") / n - mean**2, 0.0)
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * float(np.sqrt(variance / (n - 1)))
    return max(mean - half, 0.0), mean + half


def measure(population: Population, n: int, runs: int, seed: int) -> list[Outcome]:
    """Return coverage and mean width of both scores over `runs` new samples."""
    rng = np.random.default_rng([seed, n, *population.net.encode(), *population.truth.encode()])
    rows: dict[Score, list[tuple[float, ...]]] = {score: [] for score in get_args(Score)}
    for _ in range(runs):
        sums = population.draw(n, rng)
        for score, limits in rows.items():
            found = score_interval(sums, score=score, level=LEVEL)
            limits.append((found.lower, found.upper, *students(sums, score)))
    outcomes = []
    for score, limits in rows.items():
        truth = population.expected[score]
        lower, upper, plain_lower, plain_upper = np.array(limits).T
        outcomes.append(
            Outcome(
                net=population.net,
                truth=population.truth,
                score=score,
                expected=truth,
                n=n,
                errors=n * (1 - population.accuracy),
                runs=runs,
                covered=float(((lower <= truth) & (truth <= upper)).mean()),
                too_high=float((lower > truth).mean()),
                too_low=float((upper < truth).mean()),
                width=float((upper - lower).mean()),
                covered_plain=float(((plain_lower <= truth) & (truth <= plain_upper)).mean()),
                width_plain=float((plain_upper - plain_lower).mean()),
            )
        )
    return outcomes


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the lowest coverages, of Student's interval too, and the ratio of the widths."""
    lowest = min(outcomes, key=lambda o: o.covered)
    return {
        "settings": len(outcomes),
        "lowest_coverage": lowest.covered,
        "lowest_setting": f"{lowest.score}, {lowest.net}, {lowest.truth}, n = {lowest.n}",
        "lowest_standard_error": float(np.sqrt(lowest.covered * (1 - lowest.covered) / lowest.runs)),
        "settings_at_93_percent": float(np.mean([o.covered >= PROMISE for o in outcomes])),
        "lowest_coverage_of_students": min(o.covered_plain for o in outcomes),
        "median_width_over_students": float(np.median([o.width / o.width_plain for o in outcomes])),
    }


def markdown(found: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    lines = ["| samples | settings | lowest coverage at a nominal 95% | Student's alone | width, Student's = 1 |"]
    lines.append("|---" * 5 + "|")
    for name, group in found["summary"].items():
        lowest = f"{group['lowest_coverage']:.1%} +- {group['lowest_standard_error']:.1%} ({group['lowest_setting']})"
        plain = f"{group['lowest_coverage_of_students']:.1%} | {group['median_width_over_students']:.2f}"
        lines.append(f"| {name} | {group['settings']} | {lowest} | {plain} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(1), default=1000, help="samples per setting")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run, outcomes = Run(), list[Outcome]()
    for net in NETS:
        for population in populations(net):
            for n in SIZES:
                outcomes += measure(population, n, options.runs, options.seed)
                for o in outcomes[-2:]:
                    words = f"{o.net:4} {o.truth:19} n = {o.n:5} {o.score:5} {o.errors:7.1f} errors"
                    both = f"covered {o.covered:.3f} ({o.covered_plain:.3f}) width {o.width:.4f} ({o.width_plain:.4f})"
                    run.say(f"{words}: {both}")
    groups = {
        "fewer than 20 errors expected": (0, 20),
        "20 to 100 errors": (20, 100),
        "more than 100 errors": (100, np.inf),
    }
    summaries = {name: summary([o for o in outcomes if low <= o.errors < high]) for name, (low, high) in groups.items()}
    run.finish(options.out, markdown, level=LEVEL, summary=summaries, settings=[asdict(o) for o in outcomes])


if __name__ == "__main__":
    main()
