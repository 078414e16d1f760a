"""Samples of answers to label: how many labels a design saves, and whether the weighted interval still covers.

    python -m benchmarks.evidence.label_samples        # about seven minutes on one core

Of 20,000 answers, 200 or 1,000 are drawn for labelling: plainly (every answer has the same propensity), or for the goal
"ece". Shapes A, B, C and D (benchmarks/shapes.py) and the nets W and V, whose confidences pile up at 1
(benchmarks/evidence/labelling.py). The truth is softmax(z / T): T = 1 is calibrated, 1.5 over-confident, 2.5 extremely
so, and .8 under-confident. Each run draws new labels and a new sample, and computes `inverse_probability_ece`.

A saving of s means that a plain sample needs s times as many labels for an interval as narrow. Intervals of plain
samples shrink as 1 / sqrt(n), so s is the squared ratio of the mean widths.

The goal "threshold" is measured by the standard error of the share of wrong answers from a threshold on, which lets
half of the answers act. The goal "group" is measured by the standard error of the gap of a tag with 3% of the answers.
Here s is the ratio of the mean squared errors.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.evidence.labelling import PILED
from benchmarks.markdown import table
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.shapes import SHAPES, chance_at, pool_logits
from trueodds.metrics import draw_labels, inverse_probability_ece, label_propensities
from trueodds.sums.bins import CELLS, cell_of

Array = npt.NDArray[np.float64]
RESULT = RESULTS / "label_samples.json"
ANSWERS, BUDGETS, BINS, RARE = 20_000, (200, 1_000), 15, 0.03
TEMPERATURES = (1.0, 0.8, 1.5, 2.5)
SEED = 45


@dataclass
class OfEce:
    shape: str
    temperature: float
    ece: float
    labels: int
    runs: int
    covered_plain: float
    covered: float
    width_plain: float
    width: float
    saving: float
    accuracy_z: float
    """Mean error of the weighted accuracy (Horvitz and Thompson, not scaled), in standard errors of the mean."""


@dataclass
class OfGoal:
    goal: str
    shape: str
    temperature: float
    labels: int
    runs: int
    saving: float


def population(shape: str, temperature: float) -> tuple[Array, Array]:
    """Return the confidence of each answer, and the probability that it is right."""
    if shape in PILED:
        rng = np.random.default_rng(SEED)
        logits_NC = rng.normal(0, 1.2, (ANSWERS, 10))
        logits_NC[:, 0] += np.maximum(rng.normal(*PILED[shape], ANSWERS), 0)
    else:
        logits_NC = pool_logits(shape, ANSWERS, SEED)
    return chance_at(logits_NC, 1.0), chance_at(logits_NC, temperature)


def draws(
    confidence_N: Array, right_N: Array, propensity_N: Array, runs: int, seed: int
) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]]:
    """Draw samples, spread over confidence, with their labels."""
    order_N, rng = np.argsort(confidence_N, kind="stable"), np.random.default_rng(seed)
    samples = []
    for run in range(runs):
        drawn = order_N[draw_labels(propensity_N[order_N], seed=seed + run)]
        samples.append((drawn, rng.random(len(drawn)) < right_N[drawn]))
    return samples


def of_ece(shape: str, temperature: float, labels: int, runs: int) -> OfEce:
    """Compare the intervals of the ECE."""
    confidence_N, right_N = population(shape, temperature)
    bin_N = cell_of(confidence_N) // (CELLS // BINS)
    truth = float(np.abs(np.bincount(bin_N, right_N - confidence_N)).sum()) / ANSWERS
    covered, widths, errors = [], [], []
    for goal in ("plain", "ece"):
        propensity_N = label_propensities(confidence_N, labels, goal="plain" if goal == "plain" else "ece")
        intervals = []
        for drawn, right in draws(confidence_N, right_N, propensity_N, runs, SEED + labels):
            weighted = inverse_probability_ece(confidence_N[drawn], right, propensity_N[drawn])
            intervals.append((weighted.interval.lower, weighted.interval.upper))
            if goal == "ece":
                errors.append((right / propensity_N[drawn]).sum() / ANSWERS - right_N.mean())
        lower_R, upper_R = np.array(intervals).T
        covered.append(float(((lower_R <= truth) & (truth <= upper_R)).mean()))
        widths.append(float((upper_R - lower_R).mean()))
    z = float(np.mean(errors) / (np.std(errors, ddof=1) / runs**0.5))
    return OfEce(
        shape=shape,
        temperature=temperature,
        ece=truth,
        labels=labels,
        runs=runs,
        covered_plain=covered[0],
        covered=covered[1],
        width_plain=widths[0],
        width=widths[1],
        saving=(widths[0] / widths[1]) ** 2,
        accuracy_z=z,
    )


def of_goal(goal: str, shape: str, temperature: float, labels: int, runs: int) -> OfGoal:
    """Compare the mean squared errors of the figure that a goal is about."""
    confidence_N, right_N = population(shape, temperature)
    threshold = min(float(np.median(confidence_N)), 0.9999)
    tag_N = np.where(np.random.default_rng(SEED).random(ANSWERS) < RARE, "rare", "common")
    of_N = confidence_N >= threshold if goal == "threshold" else tag_N == "rare"
    truth = float((right_N - confidence_N)[of_N].mean())
    designs = [label_propensities(confidence_N, labels, goal="plain")]
    if goal == "threshold":
        designs.append(label_propensities(confidence_N, labels, goal="threshold", threshold=threshold))
    else:
        designs.append(label_propensities(confidence_N, labels, goal="group", groups_N=tag_N.tolist()))
    squares = []
    for propensity_N in designs:
        off = []
        for drawn, right in draws(confidence_N, right_N, propensity_N, runs, SEED + labels):
            weight = of_N[drawn] / propensity_N[drawn]
            if weight.any():
                off.append(float(weight @ (right - confidence_N[drawn]) / weight.sum()) - truth)
        squares.append(float(np.mean(np.square(off))))
    return OfGoal(goal, shape, temperature, labels, runs, squares[0] / squares[1])


def summary(rows: list[OfEce], goals: list[OfGoal]) -> dict[str, Any]:
    """Return the figures of the claim."""
    near = [row for row in rows if row.ece <= 0.03]
    far = [row for row in rows if row.ece > 0.03]
    return {
        "settings": len(rows),
        "runs": rows[0].runs,
        "lowest_covered": min(row.covered for row in rows),
        "lowest_covered_plain": min(row.covered_plain for row in rows),
        "median_saving_near": float(np.median([row.saving for row in near])),
        "most_saving": max(row.saving for row in rows),
        "median_saving_far": float(np.median([row.saving for row in far])),
        "least_saving": min(row.saving for row in rows),
        "settings_without_saving": sum(row.saving < 1 for row in rows),
        "largest_z": max(abs(row.accuracy_z) for row in rows),
        **{
            f"{which}_{goal}": float(value([row.saving for row in goals if row.goal == goal]))
            for goal in ("threshold", "group")
            for which, value in (("median", np.median), ("least", np.min))
        },
    }


def markdown(result: dict[str, Any]) -> str:
    """Format the result as tables."""
    ece = [
        (
            row["shape"],
            f"{row['temperature']:g}",
            f"{row['ece']:.3f}",
            f"{row['labels']:,}",
            f"{row['covered_plain']:.1%}",
            f"{row['covered']:.1%}",
            f"{row['width_plain']:.3f}",
            f"{row['width']:.3f}",
            f"{row['saving']:.2f}",
        )
        for row in result["ece"]
    ]
    goals = [
        (row["goal"], row["shape"], f"{row['temperature']:g}", f"{row['labels']:,}", f"{row['saving']:.2f}")
        for row in result["goals"]
    ]
    head = ("shape", "T", "true ECE", "labels", "covered, plain", "covered", "width, plain", "width", "saving")
    return "\n\n".join([table(head, ece), "The other goals:", table(("goal", "shape", "T", "labels", "saving"), goals)])


def main() -> None:
    """Measure all settings."""
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(2), default=100, help="samples of each setting (default: 100)")
    arguments = parser.parse_args()
    run, rows, goals = Run(), list[OfEce](), list[OfGoal]()
    for shape in (*SHAPES, *PILED):
        for temperature in TEMPERATURES:
            rows += [of_ece(shape, temperature, labels, arguments.runs) for labels in BUDGETS]
            for goal in ("threshold", "group"):
                goals.append(of_goal(goal, shape, temperature, BUDGETS[1], 2 * arguments.runs))
            run.say(shape, temperature, f"saving {rows[-2].saving:.2f}, {rows[-1].saving:.2f}")
    run.finish(
        arguments.out,
        markdown,
        summary=summary(rows, goals),
        ece=[asdict(row) for row in rows],
        goals=[asdict(row) for row in goals],
    )


if __name__ == "__main__":
    main()
