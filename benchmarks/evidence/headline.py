"""False statements of the report's one-word status to somebody who looks again and again.

    python -m benchmarks.evidence.headline        # about five minutes on one core

Streams of 10,000 labels of shapes A, B and C (benchmarks/streams.py), calibrated or with every confidence .025 or .03
too high (an ECE just above the tolerance, .02), are looked at 30 times, after 50, 60, .. 10,000 labels. The words are
those of `trueodds.reports.verdict.verdict_of`, with the alarm and the advice of `service.alarm`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.streams import Pool, pool
from service.alarm import AlarmState, advice_of, alarm_of
from service.settings import Settings
from service.store.rows import LabelBlock
from trueodds import metrics
from trueodds.metrics import CalibrationSums
from trueodds.reports.verdict.rules import LEANS, verdict_of
from trueodds.sums.answers import AnswerSums

RESULT = RESULTS / "headline.json"
LABELS, TOLERANCE = 10_000, 0.02
LOOKS = np.unique(np.geomspace(50, LABELS, 30).round(-1).astype(int))
SHIFTS = {"calibrated": 0.0, "ECE .025": 0.025, "ECE .03": 0.03}
SETTINGS = Settings()


@dataclass
class Words:
    """Shares of streams in which somebody reads these words at any of the looks."""

    shape: str
    truth: str
    streams: int
    strong: float
    """Share with over-confident, under-confident, uneven, or off at times."""
    advised: float
    """Share in which recalibrating is said to help."""
    leaning: float
    one_look: float
    """Share in which the ECE exceeds its noise floor's 95th percentile: a single test would reject."""
    green: float
    """Share that is within 0.02 at 95%."""
    green_at_the_end: float


def block(confidence_L: npt.NDArray[np.float64], right_L: npt.NDArray[np.bool_], first: int) -> LabelBlock:
    """Return labels in the form of the store. Only confidence and correctness count here."""
    count = len(right_L)
    number, none, index = first + np.arange(count), np.zeros(count), np.zeros(count, np.int64)
    unknown = np.full(count, np.nan)
    parts = number, number, index, index, confidence_L, right_L, right_L, none, none, unknown
    return LabelBlock(number + 1, [""] * count, *parts, [None] * count, index, np.zeros((count, 0)))


def words_of(confidence_L: npt.NDArray[np.float64], right_L: npt.NDArray[np.bool_]) -> list[set[str]]:
    """Return the words at each look at one stream."""
    state, found, before = AlarmState.start(SETTINGS), [], 0
    for n in LOOKS.tolist():
        state = state.take(block(confidence_L[before:n], right_L[before:n], before))
        before = n
        sums = CalibrationSums.from_top(confidence_L[:n], right_L[:n])
        stored = AnswerSums(sums.cells[0].astype(np.int64), sums)
        alarm = alarm_of(state, SETTINGS, model="m", sums=stored)
        advice = advice_of(state, model="m", version="v", address="")
        interval, floor = metrics.ece_interval(sums), metrics.noise_floor(sums).p95
        numbers = {"ece": interval.ece, "floor_p95": floor, "signed_gap": metrics.signed_gap(sums)}
        verdict = verdict_of(stored, numbers, alarm, advice, within=interval.upper <= TOLERANCE)
        more = {"one look"} if interval.ece > floor else set()
        found.append({verdict, f"advice {advice.helps}", *more})
    return found


def words(rows: Pool, truth: str, streams: int, seed: int) -> Words:
    rng = np.random.default_rng([seed, *f"{rows.shape}{truth}".encode()])
    read, last = [], []
    for _ in range(streams):
        confidence_L = rows.confidence_M[rng.integers(0, len(rows.confidence_M), LABELS)]
        at_looks = words_of(confidence_L, rng.random(LABELS) < confidence_L - SHIFTS[truth])
        read.append(set().union(*at_looks))
        last.append(at_looks[-1])

    def share(sets: list[set[str]], *wanted: str) -> float:
        return sum(bool(one & set(wanted)) for one in sets) / streams

    return Words(
        rows.shape,
        truth,
        streams,
        strong=share(read, "over_confident", "under_confident", "uneven", "off_at_times"),
        advised=share(read, "advice yes"),
        leaning=share(read, *LEANS.values()),
        one_look=share(read, "one look"),
        green=share(read, "within_tolerance"),
        green_at_the_end=share(last, "within_tolerance"),
    )


def markdown(found: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md from the JSON."""
    names = {
        "strong": "says that it is off",
        "advised": "advises to recalibrate",
        "leaning": "says that it is perhaps off",
        "one_look": "a test of one look rejects",
        "green": "is green",
    }
    shapes = list(dict.fromkeys(row["shape"] for row in found["words"]))
    lines = [f"| share of streams in which at some look the page | {' | '.join(shapes)} |", "|---" * 4 + "|"]
    for truth in dict.fromkeys(row["truth"] for row in found["words"]):
        rows = [row for row in found["words"] if row["truth"] == truth]
        for key, text in names.items():
            lines.append(f"| {truth}: {text} | " + " | ".join(f"{row[key]:.0%}" for row in rows) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--streams", type=whole_from(1), default=100, help="per setting")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run = Run()
    measured = []
    for rows in map(pool, "ABC"):
        measured += [asdict(words(rows, truth, options.streams, options.seed)) for truth in SHIFTS]
        run.say(rows.shape)
    run.finish(options.out, markdown, looks=LOOKS.tolist(), words=measured)


if __name__ == "__main__":
    main()
