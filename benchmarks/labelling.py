"""Labels that are few, chosen or late: coverage of `weighted_ece`, and how often the warnings come.

    python -m benchmarks.labelling        # about six minutes on one core

Of 100,000 answers of shapes A, B and C (benchmarks/interval_coverage.py), calibrated or at T = 1.25, 5% are labelled:
at random, by confidence (in proportion to 1 - c, at least .02), or wrong answers twice as likely. Delays of 5,000
labels are exponential: the same for all, or shorter for wrong answers by a factor of 1.2 or 2.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from benchmarks.interval_coverage import processor
from benchmarks.sequential import Pool, pool
from pipeline.metrics import CELLS, CalibrationSums, choice_of_labels, ece_interval, label_delay, weighted_ece

Array = npt.NDArray[np.float64]

ANSWERS, LABELLED, DELAYED = 100_000, 0.05, 5_000
RESULT = Path(__file__).parent / "results" / "labelling.json"


@dataclass
class Choice:
    shape: str
    truth: str
    ece: float
    labelling: str
    runs: int
    covered: float
    """Share of runs in which the weighted interval holds the ECE of all answers."""
    estimate: float
    covered_plain: float
    """The same for the interval that takes the labels for a random choice."""
    estimate_plain: float
    effective_share: float
    """Effective number of labels over their number."""
    warned: float


@dataclass
class Late:
    shape: str
    truth: str
    factor: float
    runs: int
    warned: float


def chosen(rows: Pool, truth: str, labelling: str, runs: int, seed: int) -> Choice:
    rng = np.random.default_rng([seed, *f"{rows.shape}{truth}{labelling}".encode()])
    c, chance = rows.confidence_M, rows.chances[truth]
    true = float(np.abs(np.bincount(rows.cell_M // (CELLS // 15), chance - c)).sum() / len(c))
    keep = np.maximum(1 - c, 0.02) if labelling == "by confidence" else np.ones(len(c))
    keep = np.minimum(keep * LABELLED / keep.mean(), 1)
    found = []
    for _ in range(runs):
        row = rng.integers(0, len(c), ANSWERS)
        right = rng.random(ANSWERS) < chance[row]
        likely = keep[row] * np.where(right | (labelling != "wrong twice as likely"), 1, 2)
        labelled = rng.random(ANSWERS) < likely
        sums = CalibrationSums.from_top(c[row[labelled]], right[labelled])
        answers_C = np.bincount(rows.cell_M[row], minlength=CELLS)
        plain, weighed = ece_interval(sums), weighted_ece(sums, answers_C)
        one = weighed.interval
        found.append(
            (
                one.lower <= true <= one.upper,
                one.estimate,
                plain.lower <= true <= plain.upper,
                plain.estimate,
                weighed.effective_n / sums.n,
                choice_of_labels(sums, answers_C).warning,
            )
        )
    return Choice(rows.shape, truth, true, labelling, runs, *np.mean(found, axis=0).tolist())


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
    """The README's table: the worst of shapes A, B and C, calibrated or not."""
    lines = [
        "| which answers get a label | unweighted interval covers | weighted | labels are worth | warned |",
        "|---" * 5 + "|",
    ]
    for labelling in dict.fromkeys(row["labelling"] for row in found["choice"]):
        rows = [row for row in found["choice"] if row["labelling"] == labelling]
        plain, weighted, worth = (
            min(row[key] for row in rows) for key in ("covered_plain", "covered", "effective_share")
        )
        warned = [row["warned"] for row in rows]
        lines.append(
            f"| {labelling} | {plain:.1%} | {weighted:.1%} | {worth:.0%} of as many at random |"
            f" {min(warned):.1%} .. {max(warned):.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="per setting")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs is {options.runs}; allowed is 1 or more")
    started = time.perf_counter()
    choices, delays = [], []
    for shape in "ABC":
        rows = pool(shape)
        for truth in ("calibrated", "T = 1.25"):
            for labelling in ("at random", "by confidence", "wrong twice as likely"):
                choices.append(chosen(rows, truth, labelling, options.runs, options.seed))
                print(*asdict(choices[-1]).values(), file=sys.stderr, flush=True)
        for truth in ("calibrated", "T = 2.5"):
            delays += [late(rows, truth, factor, options.runs, options.seed) for factor in (1.0, 1.2, 2.0)]
    weighable = [o for o in choices if o.labelling != "wrong twice as likely"]
    found = {
        "command": shlex.join(["python", "-m", "benchmarks.labelling", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
        "commit": subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip(),
        "processor": processor(),
        "seconds": round(time.perf_counter() - started, 1),
        "summary": {
            "lowest_weighted_coverage": min(o.covered for o in weighable),
            "lowest_plain_coverage": min(o.covered_plain for o in weighable),
            "false_warnings_of_choice": max(o.warned for o in choices if o.labelling == "at random"),
            "false_warnings_of_delay": max(o.warned for o in delays if o.factor == 1),
        },
        "choice": [asdict(o) for o in choices],
        "delay": [asdict(o) for o in delays],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(markdown(found))
    print(json.dumps(found["summary"], indent=1))


if __name__ == "__main__":
    main()
