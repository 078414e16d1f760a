"""Few, selected or late labels: coverage of `weighted_ece`, and frequency of the warnings.

    python -m benchmarks.evidence.labelling        # about four minutes on one core

5% of 100,000 answers are labelled. Shapes: A, B and C (benchmarks/shapes.py), calibrated or at T = 1.25; and nets whose
confidences concentrate at 1, calibrated or at the temperatures that give an ECE of .057 and .078: W, with 45% of the
answers in the last of the 3,000 cells and 87% in the last of 120 equal parts, V with 75% and 89%. Selection of labels:
at random; in proportion to 1 - c; the upper half of the confidences 40 times, or those above .999 10 times as rarely;
or wrong answers twice as likely. Weights are by counts per cell (refused for V), or by the known probabilities.

The warning about selection is also measured on 400 labels of 8,000 answers: at random, by the rules above, and within
bins: the upper half of each of 15 equal bins is labelled a third as often as the lower half, and all bins equally
often.

Delays of 5,000 labels are exponential: the same for all, or shorter for wrong answers by a factor of 1.2 or 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.shapes import chance_at
from benchmarks.streams import POOL, Pool, pool
from trueodds.metrics import (
    CELLS,
    CalibrationSums,
    CrowdedCellError,
    EceInterval,
    cell_of,
    choice_of_labels,
    ece_interval,
    inverse_probability_ece,
    label_delay,
    weighted_ece,
)

Array = npt.NDArray[np.float64]

ANSWERS, LABELLED, DELAYED, FEW, BINS = 100_000, 0.05, 5_000, 8_000, 15
PILED = {"W": (10.5, 2.3), "V": (15.0, 6.0)}
"""Nets of 10 classes with logits N(0, 1.2), one class raised by max(N(mean, spread), 0)."""
PILED_ECE = (0.057, 0.078)
RESULT = RESULTS / "labelling.json"


def within_bins(c: Array) -> Array:
    """Return probabilities: in each bin the upper half is a third as likely as the lower half, all bins are equal."""
    likely, bin_M = np.empty(len(c)), np.minimum(np.ceil(c * BINS), BINS)
    for b in np.unique(bin_M):
        rows = np.flatnonzero(bin_M == b)
        upper = c[rows] > np.median(c[rows])
        likely[rows] = np.where(upper, 1.0, 3.0) / np.where(upper, 1.0, 3.0).mean()
    return likely


RULES: dict[str, Callable[[Array], Array]] = {
    "at random": np.ones_like,
    "in proportion to 1 - c": lambda c: 1 - c,
    "upper half 40 times rarer": lambda c: np.where(c > np.median(c), 1 / 40, 1.0),
    "above .999 10 times rarer": lambda c: np.where(c > 0.999, 0.1, 1.0),
}
WRONG, WITHIN = "wrong twice as likely", "within bins"


@dataclass
class Choice:
    shape: str
    truth: str
    ece: float
    fullest_cell: float
    """Share of the answers in the fullest cell."""
    labelling: str
    runs: int
    covered_plain: float
    """Coverage of the ECE of all answers by the interval that assumes a random selection of labels."""
    estimate_plain: float
    covered: float
    """Coverage with counts per cell; NaN if `weighted_ece` refuses them."""
    estimate: float
    width: float
    effective_share: float
    """Effective number of labels divided by their number."""
    covered_known: float
    """Coverage with the labelling probabilities and the counts; NaN if labels are not selected."""
    width_known: float
    covered_known_alone: float
    """Coverage with the labelling probabilities, without the counts."""
    warned: float


@dataclass
class Warned:
    shape: str
    labelling: str
    runs: int
    warned: float
    """Share of runs in which 400 labels of 8,000 answers raise the warning."""


@dataclass
class Late:
    shape: str
    truth: str
    factor: float
    runs: int
    warned: float


def piled(shape: str, rows: int = POOL) -> Pool:
    """Draw answers of net W or V."""
    rng = np.random.default_rng(11)
    logits_NC = rng.normal(0, 1.2, (rows, 10))
    logits_NC[:, 0] += np.maximum(rng.normal(*PILED[shape], rows), 0)
    c = chance_at(logits_NC, 1.0)
    found = Pool(shape, c, cell_of(c), {"calibrated": c})
    for target in PILED_ECE:
        temperature = brentq(lambda t, e: ece_of(found, chance_at(logits_NC, t)) - e, 1.0, 20.0, (target,), 1e-4)
        found.chances[f"ECE {target:g}"] = chance_at(logits_NC, temperature)
    return found


def ece_of(rows: Pool, chance: Array) -> float:
    return float(np.abs(np.bincount(rows.cell_M // (CELLS // BINS), chance - rows.confidence_M)).sum() / len(chance))


def rules(rows: Pool) -> list[str]:
    """Return the random rule and the selecting rules. C has no answers above .999."""
    return [name for name, rule in RULES.items() if name == "at random" or np.ptp(rule(rows.confidence_M)) > 0]


def scaled(likely: Array) -> Array:
    """Scale probabilities to 5% on average, with none above 1."""
    found: Array = np.minimum(likely * brentq(lambda s: np.minimum(likely * s, 1).mean() - LABELLED, 0, 100), 1)
    return found


def chosen(rows: Pool, truth: str, labelling: str, runs: int, seed: int) -> Choice:
    rng = np.random.default_rng([seed, *f"{rows.shape}{truth}{labelling}".encode()])
    c, chance, wrong = rows.confidence_M, rows.chances[truth], labelling == WRONG
    true, keep = ece_of(rows, chance), scaled(RULES["at random" if wrong else labelling](c))
    found: list[list[float]] = []
    for _ in range(runs):
        row = rng.integers(0, len(c), ANSWERS)
        right = rng.random(ANSWERS) < chance[row]
        likely = keep[row] * np.where(right, 1, 2) if wrong else keep[row]
        labelled = rng.random(ANSWERS) < likely
        told = c[row[labelled]], right[labelled]
        sums, answers_C = CalibrationSums.from_top(*told), np.bincount(rows.cell_M[row], minlength=CELLS)

        def covers(one: EceInterval) -> float:
            return float(one.lower <= true <= one.upper)

        one = ece_interval(sums)
        line = [covers(one), one.estimate]
        try:
            by_counts = weighted_ece(sums, answers_C)
            one = by_counts.interval
            line += [covers(one), one.estimate, one.upper - one.lower, by_counts.effective_n / sums.n]
        except CrowdedCellError:
            line += [np.nan] * 4
        if wrong or labelling == "at random":
            line += [np.nan] * 3
        else:
            known = inverse_probability_ece(*told, likely[labelled], answers_C).interval
            line += [covers(known), known.upper - known.lower]
            line.append(covers(inverse_probability_ece(*told, likely[labelled]).interval))
        found.append([*line, choice_of_labels(sums, answers_C).warning])
    fullest = float(np.bincount(rows.cell_M).max() / len(c))
    return Choice(rows.shape, truth, true, fullest, labelling, runs, *np.mean(found, axis=0).tolist())


def few(rows: Pool, labelling: str, runs: int, seed: int) -> Warned:
    rng = np.random.default_rng([seed, *f"{rows.shape}{labelling}".encode()])
    c = rows.confidence_M
    keep, warned = scaled(within_bins(c) if labelling == WITHIN else RULES[labelling](c)), 0
    for _ in range(runs):
        row = rng.integers(0, len(c), FEW)
        told = c[row[rng.random(FEW) < keep[row]]]
        sums = CalibrationSums.from_top(told, np.ones(len(told)))
        warned += choice_of_labels(sums, np.bincount(rows.cell_M[row], minlength=CELLS)).warning
    return Warned(rows.shape, labelling, runs, warned / runs)


def late(rows: Pool, truth: str, factor: float, runs: int, seed: int) -> Late:
    rng = np.random.default_rng([seed, *f"{rows.shape}{truth}{factor}".encode()])
    warned = 0
    for _ in range(runs):
        row = rng.integers(0, len(rows.cell_M), DELAYED)
        c, right = rows.confidence_M[row], rng.random(DELAYED) < rows.chances[truth][row]
        delay = rng.exponential(1, DELAYED) / np.where(right, 1, factor)
        fast = delay <= np.median(delay)
        halves = (CalibrationSums.from_top(c[half], right[half]) for half in (fast, ~fast))
        warned += label_delay(*halves).warning
    return Late(rows.shape, truth, factor, runs, warned / runs)


def markdown(found: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md: the worst values over all shapes, calibrated or not."""
    lines = [
        "| which answers get a label | covers: unweighted | weighted by counts | labels are worth"
        " | weighted by known probabilities | warned | of 400 labels |",
        "|---" * 7 + "|",
    ]
    for labelling in dict.fromkeys(row["labelling"] for row in [*found["choice"], *found["few"]]):
        rows = [row for row in found["choice"] if row["labelling"] == labelling]
        cells = []
        for key in ("covered_plain", "covered", "effective_share", "covered_known"):
            values = [row[key] for row in rows if row[key] is not None]
            cells.append(f"{min(values):.1%}" if values else "")
        for part in (rows, [row for row in found["few"] if row["labelling"] == labelling]):
            warned = [row["warned"] for row in part]
            cells.append(f"{min(warned):.1%} .. {max(warned):.1%}" if warned else "")
        lines.append(f"| {labelling} | {' | '.join(cells)} |")
    refused = " and ".join(found["summary"]["refused"])
    lines += ["", f"Weights by counts are refused for {refused}: one cell of confidence has over half of its answers."]
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(1), default=200, help="per setting; five times as many of 400 labels")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run, given = Run(), (options.runs, options.seed)
    choices: list[Choice] = []
    warned: list[Warned] = []
    delays: list[Late] = []
    for shape in ("A", "B", "C", *PILED):
        rows = piled(shape) if shape in PILED else pool(shape)
        for truth in rows.chances if shape in PILED else ("calibrated", "T = 1.25"):
            for labelling in (*rules(rows), WRONG):
                choices.append(chosen(rows, truth, labelling, *given))
                run.say(*asdict(choices[-1]).values())
        warned += [few(rows, labelling, 5 * options.runs, options.seed) for labelling in (*rules(rows), WITHIN)]
        for truth in () if shape in PILED else ("calibrated", "T = 2.5"):
            delays += [late(rows, truth, factor, *given) for factor in (1.0, 1.2, 2.0)]
    weighable = [o for o in choices if o.labelling != WRONG]
    of_random = [o.warned for o in choices if o.labelling == "at random"]
    of_random += [o.warned for o in warned if o.labelling == "at random"]

    def lowest(name: str) -> float:
        return float(np.nanmin([getattr(o, name) for o in weighable]))

    run.finish(
        options.out,
        markdown,
        summary={
            "lowest_plain_coverage": lowest("covered_plain"),
            "lowest_coverage_by_counts": lowest("covered"),
            "lowest_coverage_by_chances": lowest("covered_known"),
            "lowest_coverage_by_chances_alone": lowest("covered_known_alone"),
            "refused": sorted({o.shape for o in choices if np.isnan(o.covered)}),
            "false_warnings_of_choice": max(of_random),
            "least_warned_within_bins": min(o.warned for o in warned if o.labelling == WITHIN),
            "false_warnings_of_delay": max(o.warned for o in delays if o.factor == 1),
        },
        choice=[{name: None if value != value else value for name, value in asdict(o).items()} for o in choices],
        few=[asdict(o) for o in warned],
        delay=[asdict(o) for o in delays],
    )


if __name__ == "__main__":
    main()
