"""Plain and weighted evidence about the ECE: false alarms and delays if some traffic gets more labels than other.

    python -m benchmarks.alarms.weighted_evidence        # about six minutes on one core

Answers have shapes A, B and C (benchmarks/streams.py) and a total ECE of .0199 with a tolerance of .02: a tenth of them
is right less often than predicted, by about .2, and the others are calibrated. "corner": the bad tenth comes at any
time and gets labels with probability .9, the others with .1. "phases": 9,000 good answers, then 1,000 bad ones, and so
on; all get labels with probability .3, or with 1. Every stream has 100,000 labels. The delays are those of T
(softmax(z / T) is the truth) and of "local", from the start or after 10,000 calibrated labels. There the three tenths
of the answers with the lowest confidence get labels with probability .9, the others with .1.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from benchmarks.alarms.sequential import TRUTHS
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.streams import Pool, pool
from trueodds.metrics import EProcess, WeightedEProcess
from trueodds.metrics.alarms.sequential import BLOCK

Array = npt.NDArray[np.float64]

RESULT = RESULTS / "weighted_evidence.json"
ECE, LABELS, HORIZON, GOOD, CHUNK = 0.0199, 100_000, 40_000, 10_000, 5_000
PERIOD, BAD = 10_000, 1_000
FLOORS = (0.1, 0.05, 0.01)
"""Floors of the weighted evidence. No answer here has a propensity below .1."""
LEVEL = math.log(20)


@dataclass
class Labels:
    """Labels of one stream, in the order of their arrival."""

    confidence_L: Array
    right_L: npt.NDArray[np.bool_]
    propensity_L: Array


@dataclass
class FalseAlarms:
    shape: str
    stream: str
    streams: int
    plain: float
    """Share of streams in which the "ece" test of the labelled traffic alarms."""
    weighted: float
    """The same for the weighted test, with the stream's smallest propensity as its floor."""


@dataclass
class Delay:
    shape: str
    truth: str
    since: str
    """Start of the drift: "start", or "change" after 10,000 calibrated labels."""
    streams: int
    plain: float | None
    """Median labels from the first bad one to the alarm; None: half of the streams have none in 40,000 labels."""
    weighted: dict[str, float | None]
    """The same for the weighted test, by floor."""


def within(rows: Pool, stream: str, rng: np.random.Generator) -> Labels:
    """Draw 100,000 labels of a stream whose ECE is .0199."""
    gap = brentq(lambda g: np.minimum(g, rows.confidence_M).mean() - 10 * ECE, 0, 1)
    share = {"corner": 0.18, "phases": 0.3, "phases, all labelled": 1.0}[stream]
    answers = round(1.02 * LABELS / share)
    confidence_N = rows.confidence_M[rng.integers(0, len(rows.confidence_M), answers)]
    bad_N = rng.random(answers) < 0.1 if stream == "corner" else np.arange(answers) % PERIOD >= PERIOD - BAD
    propensity_N = np.where(bad_N, 0.9, 0.1) if stream == "corner" else np.full(answers, share)
    right_N = rng.random(answers) < np.where(bad_N, np.maximum(confidence_N - gap, 0), confidence_N)
    told = np.flatnonzero(rng.random(answers) < propensity_N)[:LABELS]
    return Labels(confidence_N[told], right_N[told], propensity_N[told])


def off(rows: Pool, truth: str, good: int, rng: np.random.Generator) -> Labels:
    """Draw labels of a stream that is calibrated for `good` labels and then follows `truth`."""
    doubtful = float(np.quantile(rows.confidence_M, 0.3))
    answers = 4 * (good + HORIZON)
    row_N = rng.integers(0, len(rows.confidence_M), answers)
    propensity_N = np.where(rows.confidence_M[row_N] <= doubtful, 0.9, 0.1)
    told_L = row_N[rng.random(answers) < propensity_N][: good + HORIZON]
    chance_L = np.where(np.arange(len(told_L)) < good, rows.chances["calibrated"][told_L], rows.chances[truth][told_L])
    confidence_L = rows.confidence_M[told_L]
    return Labels(confidence_L, rng.random(len(told_L)) < chance_L, np.where(confidence_L <= doubtful, 0.9, 0.1))


def plain_alarm(labels: Labels) -> float:
    """Return the labels until the "ece" test of the labelled traffic alarms; inf: never."""
    state = EProcess.start("ece")
    for first in range(0, len(labels.right_L) // BLOCK * BLOCK, CHUNK):
        part = slice(first, min(first + CHUNK, len(labels.right_L) // BLOCK * BLOCK))
        state, log_e_B = state.advance_each(labels.confidence_L[part], labels.right_L[part])
        if state.is_alarmed():
            return first + BLOCK * (int(np.argmax(log_e_B >= LEVEL)) + 1)
    return math.inf


def weighted_alarm(labels: Labels, floor: float) -> float:
    parts = labels.confidence_L, labels.right_L, labels.propensity_L
    reached_L = WeightedEProcess.start(floor=floor).advance(*parts)[1] >= LEVEL
    return int(np.argmax(reached_L)) + 1 if reached_L.any() else math.inf


def false_alarms(rows: Pool, stream: str, streams: int, seed: int) -> FalseAlarms:
    rng = np.random.default_rng([seed, *f"{rows.shape}{stream}".encode()])
    found = []
    for _ in range(streams):
        labels = within(rows, stream, rng)
        both = plain_alarm(labels), weighted_alarm(labels, float(labels.propensity_L.min()))
        found.append([math.isfinite(at) for at in both])
    plain, weighted = np.mean(found, axis=0).tolist()
    return FalseAlarms(rows.shape, stream, streams, plain, weighted)


def delay(rows: Pool, truth: str, since: str, streams: int, seed: int) -> Delay:
    good = GOOD if since == "change" else 0
    rng = np.random.default_rng([seed, *f"{rows.shape}{truth}{since}".encode()])
    found = []
    for _ in range(streams):
        labels = off(rows, truth, good, rng)
        found.append([plain_alarm(labels), *(weighted_alarm(labels, floor) for floor in FLOORS)])
    after = np.array(found) - good

    def middle(column: Array) -> float | None:
        median = float(np.median(column[column > 0]))
        return median if math.isfinite(median) else None

    plain, *weighted = (middle(column) for column in after.T)
    named = {f"{floor:g}": median for floor, median in zip(FLOORS, weighted, strict=True)}
    return Delay(rows.shape, truth, since, streams, plain, named)


def markdown(found: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md from the JSON."""

    def shown(median: float | None) -> str:
        return "none" if median is None else f"{median:,.0f}"

    shapes = list(dict.fromkeys(row["shape"] for row in found["delays"]))
    head = " | ".join(shapes)
    lines = [f"| share of streams of ECE {ECE:g} that alarm in {LABELS:,} labels: plain, weighted | {head} |"]
    lines.append("|---" * (1 + len(shapes)) + "|")
    for stream in dict.fromkeys(row["stream"] for row in found["false_alarms"]):
        rows = [row for row in found["false_alarms"] if row["stream"] == stream]
        lines.append(f"| {stream} | " + " | ".join(f"{r['plain']:.0%}, {r['weighted']:.1%}" for r in rows) + " |")
    title = f"median labels to the alarm: plain; weighted with a floor of {', '.join(f'{f:g}' for f in FLOORS)}"
    lines += ["", f"| {title} | {head} |", "|---" * (1 + len(shapes)) + "|"]
    for since, truth in dict.fromkeys((row["since"], row["truth"]) for row in found["delays"]):
        rows = [row for row in found["delays"] if (row["since"], row["truth"]) == (since, truth)]
        cells = [f"{shown(r['plain'])}; {', '.join(shown(m) for m in r['weighted'].values())}" for r in rows]
        lines.append(f"| {since}, {truth} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--streams", type=whole_from(5), default=200, help="per setting; a fifth for delays")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run = Run()
    measured: dict[str, list[Any]] = {"false_alarms": [], "delays": []}
    for rows in map(pool, "ABC"):
        for stream in ("corner", "phases", "phases, all labelled"):
            measured["false_alarms"].append(asdict(false_alarms(rows, stream, options.streams, options.seed)))
        run.say(f"{rows.shape} false alarms")
        for since in ("start", "change"):
            for truth in TRUTHS:
                measured["delays"].append(asdict(delay(rows, truth, since, options.streams // 5, options.seed)))
        run.say(f"{rows.shape} delays")
    run.finish(options.out, markdown, **measured)


if __name__ == "__main__":
    main()
