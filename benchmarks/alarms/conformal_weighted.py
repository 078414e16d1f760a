"""Coverage of conformal sets from labels with known propensities: how often its interval covers.

    python -m benchmarks.alarms.conformal_weighted        # about two minutes on one core

Worlds are those of benchmarks/alarms/conformal.py. Each of 10 calibrations of 1,000 rows gives the thresholds of level
.9 (lac, or class). Their true coverage is that on a pool of 20,000 fresh rows. Each run draws answers from the pool,
and labels each with its propensity:

- plain: all propensities are equal;
- doubtful, sure: answers below, or above, the median confidence are labelled 10 times as often as the others;
- class: answers of one predicted class are labelled 20 times as often;
- ece: `trueodds sample` draws the labels for the ECE;
- wrong: as doubtful, but the labels are given as a plain sample. This is where it fails.

The interval is that of the live report for one look, with a nominal coverage of 95%. "unweighted" is the exact binomial
interval of the same labels.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from benchmarks.alarms.conformal import LEVEL, WORLDS, draw, hits
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds.calibrators import conformal
from trueodds.calibrators.conformal.live_sets import WeightedCounts
from trueodds.metrics import binomial_interval, label_propensities
from trueodds.processes.choices import SetMethod
from trueodds.reports.verdict.set_coverage import weighted_interval

Array = npt.NDArray[np.float64]

RESULT = RESULTS / "conformal_weighted.json"
CALIBRATIONS, ROWS, POOL, ANSWERS = 10, 1_000, 20_000, 3_000
LABELS = (60, 300)
DESIGNS = ("plain", "doubtful", "sure", "class", "ece", "wrong")
NOMINAL, SEED = 0.95, 2024
SMALL_P = 0.05
"""Significance level of "covers too seldom", for all settings together."""


@dataclass
class Setting:
    """Intervals of one design of labels in a world."""

    world: str
    method: str
    design: str
    labels: int
    """Expected number of labels."""
    runs: int
    truth: float
    """Mean coverage of the sets on all answers."""
    covered: float
    """Share of the runs whose weighted interval holds the true coverage."""
    covered_plain: float
    """The same for the unweighted interval."""
    width: float
    """Mean width of the weighted interval."""


def propensities(design: str, p_NC: Array, labels: int) -> Array:
    """Return the propensities of answers, of which about `labels` are labelled."""
    confidence_N = p_NC.max(axis=1)
    if design == "ece":
        return np.asarray(label_propensities(confidence_N, labels, goal="ece"))
    is_often_N = confidence_N < np.median(confidence_N)
    if design == "sure":
        is_often_N = ~is_often_N
    elif design == "class":
        is_often_N = p_NC.argmax(axis=1) == 0
    times = {"plain": 1, "class": 20}.get(design, 10)
    odds_N = np.where(is_often_N, float(times), 1.0)
    return np.asarray(np.minimum(labels * odds_N / odds_N.sum(), 1.0))


def measure(world: str, method: SetMethod, design: str, labels: int, runs: int) -> Setting:
    """Count the runs whose interval holds the true coverage."""
    rng = np.random.default_rng([SEED, labels, *world.encode(), *method.encode(), *design.encode()])
    counted, truths, widths = np.zeros(2), [], []
    per_calibration = max(1, runs // CALIBRATIONS)
    for calibration in range(CALIBRATIONS):
        p_NC, label_N = draw(world, ROWS + POOL, rng)
        rule = conformal.fit(p_NC[:ROWS], label_N[:ROWS], method, level=LEVEL).at(LEVEL)
        pool_NC = p_NC[ROWS:]
        hit_N, _ = hits(rule, pool_NC, label_N[ROWS:], f"{calibration}")
        truth = float(hit_N.mean())
        truths.append(truth)
        for _ in range(per_calibration):
            of_N = rng.integers(0, POOL, ANSWERS)
            propensity_N = propensities(design, pool_NC[of_N], labels)
            is_labelled_N = rng.random(ANSWERS) < propensity_N
            if not is_labelled_N.any():
                continue
            hit_L, propensity_L = hit_N[of_N[is_labelled_N]], propensity_N[is_labelled_N]
            if design == "wrong":
                propensity_L = np.full(len(hit_L), labels / ANSWERS)
            _, lower, upper = weighted_interval(WeightedCounts().take(1 / propensity_L, hit_L), NOMINAL)
            plain = [float(end) for end in binomial_interval(int(hit_L.sum()), len(hit_L), level=NOMINAL)]
            counted += lower <= truth <= upper, plain[0] <= truth <= plain[1]
            widths.append(upper - lower)
    covered, covered_plain = (counted / len(widths)).tolist()
    return Setting(
        world=world,
        method=method,
        design=design,
        labels=labels,
        runs=len(widths),
        truth=float(np.mean(truths)),
        covered=covered,
        covered_plain=covered_plain,
        width=float(np.mean(widths)),
    )


def markdown(found: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md from the JSON."""
    head = "labels chosen | labels | lowest of the settings | mean | unweighted, lowest | mean width"
    lines = [f"| {head} |", "|---" * 6 + "|"]
    for design in DESIGNS:
        for labels in LABELS:
            rows = [row for row in found["settings"] if (row["design"], row["labels"]) == (design, labels)]
            covered = [row["covered"] for row in rows]
            plain, width = min(row["covered_plain"] for row in rows), np.mean([row["width"] for row in rows])
            cells = f"{min(covered):.1%}", f"{np.mean(covered):.1%}", f"{plain:.1%}", f"{width:.3f}"
            lines.append(f"| {design} | {labels} | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(settings: list[dict[str, Any]]) -> dict[str, float]:
    """Return the numbers of docs/explanation/claims.md."""
    sound = [row for row in settings if row["design"] != "wrong"]
    chosen = [row for row in sound if row["design"] != "plain"]
    seldom = [
        row
        for row in sound
        if binom.cdf(round(row["covered"] * row["runs"]), row["runs"], NOMINAL) < SMALL_P / len(sound)
    ]
    return {
        "settings": len(sound),
        "runs": max(row["runs"] for row in sound),
        "lowest": min(row["covered"] for row in sound),
        "mean": float(np.mean([row["covered"] for row in sound])),
        "lowest_many": min(row["covered"] for row in sound if row["labels"] == LABELS[-1]),
        "too_seldom": len(seldom),
        "lowest_plain": min(row["covered_plain"] for row in chosen),
        "lowest_wrong": min(row["covered"] for row in settings if row["design"] == "wrong"),
    }


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(CALIBRATIONS), default=200, help="runs per setting")
    options = parser.parse_args()
    run, settings = Run(), list[dict[str, Any]]()
    for world in WORLDS:
        for method in ("lac", "class"):
            for design in DESIGNS:
                settings += [asdict(measure(world, method, design, labels, options.runs)) for labels in LABELS]
        run.say(world, min(row["covered"] for row in settings if row["world"] == world and row["design"] != "wrong"))
    run.finish(options.out, markdown, packages=("numpy", "scipy"), summary=summary(settings), settings=settings)


if __name__ == "__main__":
    main()
