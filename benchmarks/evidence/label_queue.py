"""The label queue: what happens to weighted figures if labelling stops early, or if answers are skipped.

    python -m benchmarks.evidence.label_queue        # about two minutes on one core

Of 10,000 answers, about 600 are drawn for the goal "ece", each on its own, and labelled in random order. Shapes A, C
and D (benchmarks/shapes.py): sharp, dull and with rare errors; the truth is softmax(z / 1.5). "half": labelling stops
after half of the queue. "at random": a fifth of the queue is skipped. "wrong": half of the wrong answers are skipped,
and no other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.markdown import table
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.shapes import chance_at, pool_logits
from trueodds.metrics import draw_labels, inverse_probability_ece, label_propensities
from trueodds.sums.bins import CELLS, cell_of

Array = npt.NDArray[np.float64]
RESULT = RESULTS / "label_queue.json"
ANSWERS, BUDGET, BINS, TRUTH = 10_000, 600, 15, 1.5
LABELLINGS = ("all", "half", "at random", "wrong")
SEED = 46


@dataclass
class Labelling:
    shape: str
    labelling: str
    runs: int
    labels: float
    """Mean number of labels."""
    covered: float
    """Share of the samples whose weighted interval covers the ECE of all answers."""
    bias: float
    """Mean of the weighted accuracy minus that of all answers."""


def measure(shape: str, labelling: str, runs: int) -> Labelling:
    """Label samples in one way."""
    logits_NC = pool_logits(shape, ANSWERS, SEED)
    confidence_N, chance_N = chance_at(logits_NC, 1.0), chance_at(logits_NC, TRUTH)
    bin_N = cell_of(confidence_N) // (CELLS // BINS)
    ece = float(np.abs(np.bincount(bin_N, chance_N - confidence_N)).sum()) / ANSWERS
    propensity_N = label_propensities(confidence_N, BUDGET)
    rng = np.random.default_rng(SEED)
    covered, accuracy, labels = [], [], []
    for run in range(runs):
        drawn = rng.permutation(draw_labels(propensity_N, method="poisson", seed=run))
        right = rng.random(len(drawn)) < chance_N[drawn]
        known = {
            "all": np.ones(len(drawn), np.bool_),
            "half": np.arange(len(drawn)) < len(drawn) // 2,
            "at random": rng.random(len(drawn)) < 0.8,
            "wrong": right | (rng.random(len(drawn)) < 0.5),
        }[labelling]
        estimate = inverse_probability_ece(confidence_N[drawn[known]], right[known], propensity_N[drawn[known]])
        covered.append(estimate.interval.lower <= ece <= estimate.interval.upper)
        accuracy.append(estimate.accuracy)
        labels.append(int(known.sum()))
    bias = float(np.mean(accuracy) - chance_N.mean())
    return Labelling(shape, labelling, runs, float(np.mean(labels)), float(np.mean(covered)), bias)


def markdown(result: dict[str, Any]) -> str:
    """Format the result as a table."""
    rows = [
        (
            row["shape"],
            row["labelling"],
            f"{row['labels']:.0f}",
            f"{row['covered']:.1%}",
            f"{100 * row['bias']:+.1f}",
        )
        for row in result["labellings"]
    ]
    head = ("shape", "labelled", "labels", "interval covers", "bias of the accuracy, points")
    return table(head, rows)


def main() -> None:
    """Measure all settings."""
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(2), default=100, help="samples of each setting (default: 100)")
    arguments = parser.parse_args()
    run, rows = Run(), list[Labelling]()
    for shape in ("A", "C", "D"):
        for labelling in LABELLINGS:
            rows.append(measure(shape, labelling, arguments.runs))
            run.say(shape, labelling, f"covered {rows[-1].covered:.1%}, bias {rows[-1].bias:+.4f}")
    sound, wrong = ([row for row in rows if (row.labelling == "wrong") == is_wrong] for is_wrong in (False, True))
    summary = {
        "runs": arguments.runs,
        "lowest_covered": min(row.covered for row in sound),
        "largest_bias": max(abs(row.bias) for row in sound),
        "least_covered_wrong": min(row.covered for row in wrong),
        "largest_bias_wrong": max(abs(row.bias) for row in wrong),
    }
    run.finish(arguments.out, markdown, summary=summary, labellings=[asdict(row) for row in rows])


if __name__ == "__main__":
    main()
