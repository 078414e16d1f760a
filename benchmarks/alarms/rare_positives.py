"""The verdict and the alarm about p(positive) when positives are rare, compared with the previous rules.

    python -m benchmarks.alarms.rare_positives              # two minutes on one core
    python -m benchmarks.alarms.rare_positives --runs 400   # tables and streams per setting

p(positive) is drawn from a gamma distribution (shape 1/2), or from a beta distribution for means from .2, with the mean
that prevalence and factor require, and at most .99. Each label is positive with probability p / factor. There are five
times as many sound streams. Green: the verdict of `trueodds.reports.verdict.is_within`, at one look. Before: an ECE of
p(positive) within .02 whose lower end is within twice the tolerance times the prevalence, and the alarm on the top
class's ECE alone.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, Run, options_parser
from trueodds import metrics
from trueodds.metrics import CalibrationSums, EProcess, PositiveEProcess
from trueodds.metrics.alarms.sequential import BLOCK
from trueodds.processes.choices import TOLERANCE
from trueodds.reports.figures import Figures
from trueodds.reports.schemas import Labelling, PositiveFigures
from trueodds.reports.verdict.rules import is_within
from trueodds.sums.answers import AnswerSums
from trueodds.sums.positive import PositiveClass, sums_of_top

Array = npt.NDArray[np.float64]

PREVALENCES = (0.001, 0.005, 0.02, 0.1, 0.3, 0.5)
FACTORS = (1.0, 1.1, 1.2, 1.5, 2.0, 4.0)
SIZES = (200, 2_000, 20_000, 100_000)
STREAM, CHUNK = 100_000, 20_000
RUNS, OF_SOUND = 8, 5
WRONG_RATIO = 1.5
ALPHA = 0.05
RESULT = RESULTS / "rare_positives.json"


@dataclass
class Verdicts:
    """Verdicts as shares of the tables. `ratio` is the true expected / observed for the p that were drawn."""

    prevalence: float
    factor: float
    ratio: float
    labels: int
    positives: float
    runs: int
    green: float
    green_before: float
    more_than_chance: float
    """Share with p < .05."""


@dataclass
class Alarms:
    """Shares of the streams that alarm within 100,000 labels, and the median label of their alarms."""

    prevalence: float
    factor: float
    ratio: float
    labels: int
    runs: int
    fired: float
    """Share in which either alarm fires, each at half the level."""
    fired_before: float
    """Share in which the top class's alarm fires alone, at the whole level."""
    median: float | None
    median_positives: float | None


def drawn(rng: np.random.Generator, prevalence: float, factor: float, count: int) -> Array:
    """Draw p(positive) with mean prevalence x factor, except for the cut at 0.99."""
    mean = min(prevalence * factor, 0.9)
    if mean < 0.2:
        return np.minimum(rng.gamma(0.5, 2 * mean, count), 0.99)
    return np.clip(rng.beta(4 * mean, 4 * (1 - mean), count), 0.001, 0.99)


def table(
    rng: np.random.Generator, prevalence: float, factor: float, count: int
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Draw p(positive), and labels that are positive with probability p / factor."""
    p_N = drawn(rng, prevalence, factor, count)
    return p_N, rng.random(count) < p_N / factor


def is_green(sums: CalibrationSums) -> tuple[bool, bool, bool]:
    """Return whether the verdict is green, whether it was green before, and whether the gaps are significant."""
    answers = AnswerSums(np.rint(sums.cells[0]).astype(np.int64), sums)
    certain: Figures = {"ece_upper": metrics.ece_interval(sums_of_top(sums)).upper}
    mass, width, ratio = (
        metrics.ece_interval(sums, binning="mass"),
        metrics.ece_interval(sums),
        metrics.calibration_ratio(sums),
    )
    low, high = metrics.binomial_interval(ratio.observed, ratio.n)
    figures = PositiveFigures(
        label="positive",
        bins=[],
        prevalence_lower=float(low),
        prevalence_upper=float(high),
        ece_lower=mass.lower,
        ece_upper=mass.upper,
        ratio_lower=ratio.lower,
        ratio_upper=ratio.upper,
    )
    sound = is_within(answers, certain, Labelling(), TOLERANCE, figures)
    rarer = min(float(high), 1 - float(low), 0.5)
    before = max(certain["ece_upper"], width.upper) <= TOLERANCE and width.lower <= 2 * TOLERANCE * rarer
    return sound, bool(before), metrics.calibration_test(sums, binning="mass").p_value < ALPHA


def verdicts(prevalence: float, factor: float, count: int, runs: int, seed: int) -> Verdicts:
    rng = np.random.default_rng([seed, count, round(1e4 * prevalence), round(100 * factor)])
    found, positives, expected, true = np.zeros(3), 0, 0.0, 0.0
    for _ in range(runs):
        p_N, positive_N = table(rng, prevalence, factor, count)
        found += is_green(PositiveClass.sums_of(p_N, positive_N))
        positives += int(positive_N.sum())
        expected, true = expected + float(p_N.sum()), true + float(p_N.sum()) / factor
    return Verdicts(prevalence, factor, expected / true, count, positives / runs, runs, *(found / runs).tolist())


def alarms(prevalence: float, factor: float, count: int, runs: int, seed: int) -> Alarms:
    rng = np.random.default_rng([seed + 1, round(1e4 * prevalence), round(100 * factor)])
    at, before = [], 0
    for _ in range(runs):
        of_p, of_top = PositiveEProcess.start(TOLERANCE), EProcess.start("ece", TOLERANCE)
        fired, fired_before = None, False
        for first in range(0, count, CHUNK):
            p_N, positive_N = table(rng, prevalence, factor, CHUNK)
            of_p, log_e_B = of_p.advance_each(p_N, positive_N)
            of_top, of_top_B = of_top.advance_each(np.maximum(p_N, 1 - p_N), (p_N > 0.5) == positive_N)
            either_B = np.maximum(log_e_B, of_top_B) >= math.log(2 / ALPHA)
            if fired is None and either_B.any():
                fired = first + float((np.argmax(either_B) + 1) * BLOCK)
            fired_before |= bool((of_top_B >= math.log(1 / ALPHA)).any())
            if fired is not None and fired_before:
                break
        at += [] if fired is None else [fired]
        before += fired_before
    median = float(np.median(at)) if at else None
    share = len(at) / runs, before / runs
    positives = None if median is None else median * prevalence
    return Alarms(prevalence, factor, factor, count, runs, *share, median, positives)


def summary(found: list[Verdicts], fired: list[Alarms]) -> dict[str, Any]:
    off = [row for row in found if row.ratio > WRONG_RATIO - 1e-9]
    calibrated = [row for row in found if row.factor == 1]
    enough = [row for row in calibrated if row.positives >= metrics.needed_positives()]
    false = [row for row in fired if row.factor == 1]
    power = [row for row in fired if row.factor >= 2 and row.labels * row.prevalence >= 100]
    four = [row for row in fired if row.factor == 4 and row.prevalence == 0.001]
    return {
        "settings": len(found),
        "tables_off": sum(row.runs for row in off),
        "green_off": float(np.mean([row.green for row in off])),
        "green_off_before": float(np.mean([row.green_before for row in off])),
        "highest_green_off": max(row.green for row in off),
        "highest_green_off_before": max(row.green_before for row in off),
        "size": float(np.mean([row.more_than_chance for row in calibrated])),
        "green_enough": float(np.mean([row.green for row in enough])),
        "positives_needed": metrics.needed_positives(),
        "highest_false_alarms": max(row.fired for row in false),
        "streams": sum(row.runs for row in false),
        "false_alarms": float(np.mean([row.fired for row in false])),
        "power_from_2": float(np.mean([row.fired for row in power])),
        "power_from_2_before": float(np.mean([row.fired_before for row in power])),
        "labels_to_alarm_at_.001_and_4": four[0].median if four else None,
    }


GROUPS = ((0.0, 100.0, "under 100"), (100.0, 324.0, "100 to 323"), (324.0, math.inf, "324 and more"))
"""Groups of tables by their average number of positives in the setting."""


def markdown(found: dict[str, Any]) -> str:
    rows = ["| p too high by | positives | tables | green | before | p < .05 |", "|---|---|---|---|---|---|"]
    for factor in FACTORS:
        for least, below, name in GROUPS:
            these = [r for r in found["verdicts"] if r["factor"] == factor and least <= r["positives"] < below]
            if these:
                shares = (np.mean([r[key] for r in these]) for key in ("green", "green_before", "more_than_chance"))
                cells = [
                    f"{factor:g}",
                    name,
                    f"{sum(r['runs'] for r in these):,}",
                    *(f"{share:.1%}" for share in shares),
                ]
                rows.append(f"| {' | '.join(cells)} |")
    rows += ["", "| prevalence | p too high by | streams | alarm | before | labels (median) | positives |"]
    rows.append("|---|---|---|---|---|---|---|")
    for r in found["alarms"]:
        median = "–" if r["median"] is None else f"{r['median']:,.0f}"
        positives = "–" if r["median_positives"] is None else f"{r['median_positives']:,.0f}"
        rows.append(
            f"| {r['prevalence']:.1%} | {r['factor']:g} | {r['runs']} | {r['fired']:.1%} | {r['fired_before']:.1%} |"
            f" {median} | {positives} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=int, default=RUNS, help="tables and streams a setting")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    run = Run()
    possible = [(prevalence, factor) for prevalence in PREVALENCES for factor in FACTORS if prevalence * factor <= 0.8]
    shown = [
        verdicts(prevalence, factor, count, arguments.runs, arguments.seed)
        for prevalence, factor in possible
        for count in SIZES
    ]
    fired = [
        alarms(prevalence, factor, STREAM, arguments.runs * (OF_SOUND if factor == 1 else 1), arguments.seed)
        for prevalence, factor in possible
    ]
    run.finish(
        arguments.out,
        markdown,
        packages=(),
        runs=arguments.runs,
        ratio=metrics.MOST_RATIO,
        wrong_ratio=WRONG_RATIO,
        level=ALPHA,
        summary=summary(shown, fired),
        verdicts=[asdict(row) for row in shown],
        alarms=[asdict(row) for row in fired],
    )


if __name__ == "__main__":
    main()
