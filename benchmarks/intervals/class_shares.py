"""Coverage of class shares of many classes without labels, as the live report estimates them.

    python -m benchmarks.intervals.class_shares        # about ten minutes on one core

Scores are those of 3, 10 and 30 classes, sharp and dull, served calibrated or too sharp. Class shares are even, or fall
geometrically to a rare class. A run draws 3,000 reference rows with labels, with 20 or more of each class, and 500 or
5,000 answers. Their shares are those of the reference (`none`), or those in reverse order or of a random permutation
half way (`moderate`), or half of the classes are gone (`far`). An interval covers if the share among these answers lies
inside. Coverage is counted over runs and classes where the test lets the shares speak. A setting of 10 or 30 classes
has fewer runs, because each run has more intervals.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.intervals.prior_shift import METHODS, Outcome, Population, measure
from benchmarks.markdown import table
from benchmarks.record import RESULTS, Run, options_parser, whole_from

RESULT = RESULTS / "class_shares.json"
REFERENCE, ANSWERS = 3_000, (500, 5_000)
RARE = {3: 0.25, 10: 0.7, 30: 0.9}
"""Factor from one class to the next, if shares fall geometrically."""


def population(classes: int, gap: float, slope: float, *, rare: bool) -> Population:
    """Return a population of many classes, with three new shares."""
    weight_C = np.power(RARE[classes] if rare else 1.0, np.arange(classes))
    share_C = weight_C / weight_C.sum()
    rng = np.random.default_rng(classes)
    other_C = share_C[::-1] if rare else rng.dirichlet(np.full(classes, 2.0))
    gone_C = np.where(np.arange(classes) < classes // 2, share_C[::-1], 0.0)
    shapes = {"none": share_C, "moderate": (share_C + other_C) / 2, "far": gone_C / gone_C.sum()}
    kind = "sharp" if gap > 2 else "dull"
    name = f"{classes} classes, {kind}{', rare' if rare else ''}{', too sharp' if slope > 1 else ''}"
    return Population(name, tuple(share_C), {key: tuple(value) for key, value in shapes.items()}, gap=gap, slope=slope)


def populations() -> list[Population]:
    """Return the populations."""
    return [
        population(classes, gap, slope, rare=rare)
        for classes in (3, 10, 30)
        for gap, slope in ((1.5, 1.0), (4.0, 1.0), (1.5, 2.0))
        for rare in (False, True)
    ]


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return coverage and width over the settings in which the shares speak in half of the runs or more."""
    found: dict[str, Any] = {"settings": len(outcomes), "runs": min(one.runs for one in outcomes)}
    found["mean_spoken"] = float(np.mean([one.spoken for one in outcomes]))
    found["lowest_spoken"] = min(one.spoken for one in outcomes)
    for name in METHODS:
        told = [one for one in outcomes if one.spoken >= 0.5 and one.covered[name] is not None]
        covered = {(one.population, one.shift, one.answers): one.covered[name] or 0.0 for one in told}
        found[name] = {
            "mean_coverage": float(np.mean(list(covered.values()))),
            "lowest_coverage": min(covered.values()),
            "lowest_setting": ", ".join(map(str, min(covered.items(), key=lambda pair: pair[1])[0])),
            "dull_width": float(np.mean([one.width[name] for one in told if "dull" in one.population])),
            "sharp_width": float(np.mean([one.width[name] for one in told if "sharp" in one.population.split(", ")])),
        }
    return found


def markdown(record: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    rows = []
    for one in record["settings"]:
        values = [f"{one[key][name]:.3f}" if one[key][name] is not None else "" for name in METHODS
                  for key in ("covered", "width", "error")]  # fmt: skip
        rows.append((one["population"], one["shift"], f"{one['answers']:,}", f"{one['spoken']:.2f}", *values))
    head = ("population", "change", "answers", "speaks in", "EM: covered", "width", "error", "BBSE: covered", "width",
            "error")  # fmt: skip
    runs = sorted({one["runs"] for one in record["settings"]})
    many = (
        f"{runs[-1]}, {runs[1]} and {runs[0]} runs a row of 3, 10 and 30 classes" if len(runs) == 3 else f"{runs} runs"
    )
    return "\n".join([f"{record['processor']}, {record['seconds'] / 60:.1f} minutes, {many}.", "",
                      table(head, rows)])  # fmt: skip


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument(
        "--runs", type=whole_from(1), default=100, help="draws of a setting of 3 classes (default: %(default)s)"
    )
    options = parser.parse_args()
    run, outcomes = Run(), list[Outcome]()
    for one in populations():
        for shift in one.new:
            for answers in ANSWERS:
                runs = max(options.runs * 3 // (2 * len(one.reference)), 8) if len(one.reference) > 3 else options.runs
                outcomes.append(found := measure(one, shift, REFERENCE, answers, runs))
                run.say(found.population, found.shift, answers, found.spoken, found.covered, found.width)
    run.finish(options.out, markdown, summary=summary(outcomes), settings=[asdict(one) for one in outcomes])


if __name__ == "__main__":
    main()
