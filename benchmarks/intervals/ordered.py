"""Ordered classes: coverage of the intervals, false marks of "at least level k", and false alarms of its evidence.

    python -m benchmarks.intervals.ordered --runs 200        # about four minutes on one core

A population draws a score s ~ N(m, 1) for each row. The model's probabilities are P(level >= k) = sigma((s - t_k) / w),
with cuts t_k at equal shares of the scores. Models are sharp (w = .1) or dull (2), with 3 or 10 levels. For `rare`, the
cuts are far above the scores: 1% of the scores are above the lowest cut, and the w is halved. The truth is calibrated
or over-confident: lower than predicted by .2 and with twice the w. A run draws n scores and then their levels.

False marks and false alarms are counted for calibrated models only. An alarm watches 20,000 labels, block by block.
`path` is the share of such streams in which the anytime limits hold after 50, 200, 1,000, 5,000 and 20,000 labels.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtri

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds import metrics
from trueodds.metrics import OrderedEProcess, OrderedSums
from trueodds.sums.ordered import ordered_rows

Array = npt.NDArray[np.float64]

LEVEL, ALPHA = 0.95, 0.05
SIZES = (200, 20_000)
LOOKS = (50, 200, 1_000, 5_000, 20_000)
WIDTHS = {"sharp": 0.1, "dull": 2.0}
TRUTHS = ("calibrated", "over-confident")
POOL, SEED = 50_000, 5
MARKED = 0.5
"""Share of the samples of calibrated models whose thresholds are tested; a test takes most of the time."""
PROMISE = 0.93
RESULT = RESULTS / "ordered.json"


@dataclass(frozen=True)
class Population:
    """Model and truth of one setting."""

    levels: int
    width: str
    rare: bool
    truth: str

    @property
    def name(self) -> str:
        return f"{self.levels} levels, {self.width}{', rare' * self.rare}, {self.truth}"

    def probabilities(self, score_N: Array) -> tuple[Array, Array]:
        """Return the predicted and the true probabilities of each level."""
        w = WIDTHS[self.width] * (0.5 if self.rare else 1.0)
        shift, wider = {"calibrated": (0.0, 1.0), "over-confident": (0.2, 2.0)}[self.truth]
        cuts_K = cuts(self.levels, self.rare)
        said_NK = expit((score_N[:, None] - cuts_K) / w)
        true_NK = expit((score_N[:, None] - shift - cuts_K) / (w * wider))
        return of_levels(said_NK), of_levels(true_NK)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Array, npt.NDArray[np.intp]]:
        said_NC, true_NC = self.probabilities(rng.normal(size=n))
        return said_NC, (true_NC.cumsum(axis=1)[:, :-1] < rng.random((n, 1))).sum(axis=1)

    def expected(self) -> tuple[float, float]:
        """Return the expected RPS and the expected bias of the level."""
        said_NC, true_NC = self.probabilities(ndtri((np.arange(POOL) + 0.5) / POOL))
        scores = [ordered_rows(said_NC, np.full(POOL, y)).rps_N @ true_NC[:, y] for y in range(self.levels)]
        return float(sum(scores)) / POOL, float(((said_NC - true_NC) @ np.arange(self.levels)).mean())


def cuts(levels: int, rare: bool) -> Array:
    """Return the cuts between levels: at equal shares of the scores, or with 1% of the scores above the lowest."""
    if rare:
        return np.linspace(ndtri(0.99), ndtri(0.99) + 1.5, levels - 1)
    found: Array = ndtri(np.arange(1, levels) / levels)
    return found


def of_levels(at_least_NK: Array) -> Array:
    """Return the probability of each level, from those of "at least level k"."""
    padded_NC = np.pad(at_least_NK, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
    return padded_NC[:, :-1] - padded_NC[:, 1:]


@dataclass
class Outcome:
    """Coverage in one setting."""

    population: str
    n: int
    runs: int
    rps: float
    bias: float
    rps_covered: float
    rps_width: float
    bias_covered: float
    bias_width: float
    anytime_covered: float
    anytime_width: float
    false_marks: float | None
    """Share of runs with any mark; only for calibrated models."""


def measure(population: Population, n: int, runs: int) -> Outcome:
    """Return coverage and widths over `runs` samples."""
    rng = np.random.default_rng([SEED, n, *population.name.encode()])
    rps, bias = population.expected()
    limits, marks = list[list[tuple[float, float]]](), list[bool]()
    for _ in range(runs):
        sums = OrderedSums.from_probabilities(*population.draw(n, rng))
        score = metrics.rps_interval(sums, level=LEVEL)
        found = [metrics.level_bias(sums, level=LEVEL, anytime=anytime) for anytime in (False, True)]
        limits.append([(score.lower, score.upper), *((one.lower, one.upper) for one in found)])
        if population.truth == "calibrated" and len(marks) < MARKED * runs:
            marks.append(any(one.more_than_chance for one in metrics.at_least(sums)))
    lower_R3, upper_R3 = np.array(limits).transpose(2, 0, 1)
    truth_3 = np.array([rps, bias, bias])
    covered_3 = ((lower_R3 - 1e-9 <= truth_3) & (truth_3 <= upper_R3 + 1e-9)).mean(axis=0)
    width_3 = (upper_R3 - lower_R3).mean(axis=0)
    return Outcome(
        population=population.name,
        n=n,
        runs=runs,
        rps=rps,
        bias=bias,
        rps_covered=float(covered_3[0]),
        rps_width=float(width_3[0]),
        bias_covered=float(covered_3[1]),
        bias_width=float(width_3[1]),
        anytime_covered=float(covered_3[2]),
        anytime_width=float(width_3[2]),
        false_marks=float(np.mean(marks)) if marks else None,
    )


def stream(population: Population, runs: int) -> dict[str, Any]:
    """Return the share of streams of 20,000 labels that alarm, the median number of labels, and path coverage."""
    rng = np.random.default_rng([SEED, *population.name.encode()])
    fired, held = list[float](), 0
    for _ in range(runs):
        p_NC, label_N = population.draw(LOOKS[-1], rng)
        rows = ordered_rows(p_NC, label_N)
        _, log_e_B = OrderedEProcess.start(population.levels).advance_each(rows.at_least_NK, rows.reached_NK)
        over_B = np.flatnonzero(log_e_B >= -np.log(ALPHA))
        fired.append(20.0 * (over_B[0] + 1) if len(over_B) else np.inf)
        truth = population.expected()[1]
        found = [metrics.level_bias(OrderedSums.from_probabilities(p_NC[:n], label_N[:n]), anytime=True) for n in LOOKS]
        held += all(one.lower <= truth <= one.upper for one in found)
    median = float(np.median(fired))
    return {
        "population": population.name,
        "runs": runs,
        "alarmed": float(np.isfinite(fired).mean()),
        "median_labels": median if np.isfinite(median) else None,
        "path": held / runs,
    }


def markdown(record: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md."""
    lines = [
        "| rows | RPS covered, lowest | bias covered, lowest | anytime bias, lowest | width: RPS, bias, anytime"
        " | any false mark, mean |",
        "|---" * 6 + "|",
    ]
    for n in SIZES:
        of_n = [one for one in record["settings"] if one["n"] == n]
        lowest = " | ".join(
            f"{min(one[name] for one in of_n):.1%}" for name in ("rps_covered", "bias_covered", "anytime_covered")
        )
        widths = ", ".join(
            f"{np.mean([one[name] for one in of_n]):.3f}" for name in ("rps_width", "bias_width", "anytime_width")
        )
        marks = [one["false_marks"] for one in of_n if one["false_marks"] is not None]
        lines.append(f"| {n:,} | {lowest} | {widths} | {np.mean(marks):.1%} (highest {max(marks):.1%}) |")
    lines += ["", "| streams of 20,000 labels | alarmed | median labels | anytime limits held |", "|---" * 4 + "|"]
    for one in record["streams"]:
        median = "" if one["median_labels"] is None else f"{one['median_labels']:,.0f}"
        lines.append(f"| {one['population']} | {one['alarmed']:.1%} | {median} | {one['path']:.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument(
        "--runs", type=whole_from(20), default=200, help="samples per setting; of 20,000 rows a quarter"
    )
    options = parser.parse_args()
    run, settings, streams = Run(), list[Outcome](), list[dict[str, Any]]()
    for levels, rare, width, truth in product((3, 10), (False, True), WIDTHS, TRUTHS):
        population = Population(levels, width, rare, truth)
        for n, share in zip(SIZES, (1, 4), strict=True):
            settings.append(o := measure(population, n, options.runs // share))
            covered = f"{o.rps_covered:.3f} {o.bias_covered:.3f} {o.anytime_covered:.3f}"
            words = f"{o.population} n = {n} rps {o.rps:.4f} bias {o.bias:+.4f}"
            run.say(f"{words} covered {covered} marks {o.false_marks}")
        streams.append(stream(population, options.runs // (4 if truth == "calibrated" else 20)))
        run.say(streams[-1])
    run.finish(
        options.out,
        markdown,
        level=LEVEL,
        settings_at_93_percent={
            name: float(np.mean([getattr(one, name) >= PROMISE for one in settings]))
            for name in ("rps_covered", "bias_covered", "anytime_covered")
        },
        settings=[asdict(one) for one in settings],
        streams=streams,
    )


if __name__ == "__main__":
    main()
