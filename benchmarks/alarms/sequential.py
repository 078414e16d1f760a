"""False alarms, delays and coverage of the sequential tests of `trueodds.metrics` on simulated streams of labels.

    python -m benchmarks.alarms.sequential          # about four minutes on one core

The streams are those of benchmarks/streams.py. PUBLISHED holds the target values, to be met within 25% or one block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.record import RESULTS, Run, options_parser
from benchmarks.streams import CHUNK, LABELS, TEMPERATURES, TOLERANCE, Pool, first_alarms, pool
from trueodds.metrics import CalibrationSums, gap_sequence
from trueodds.metrics.alarms.payoffs import Null
from trueodds.metrics.intervals.confidence_sequence import GAP_STAKES

GOOD = 20_000
"""Number of calibrated labels before a change."""
RESULT = RESULTS / "sequential.json"

# Median labels to the alarm for shapes A, B and C under T = 1.25, 1.5, 2.5 and, from the start, local. None: no alarm.
Medians = tuple[int | None, int | None, int | None]
TRUTHS = (*TEMPERATURES, "local")
PUBLISHED: dict[tuple[str, Null, str], tuple[Medians, ...]] = {
    ("start", "point", "one start"): ((200, 1_195, 4_385), (64, 202, 660), (15, 26, 127), (6_195, 11_335, 518)),
    ("start", "point", "starts"): ((280, 1_410, 4_930), (100, 245, 760), (20, 40, 130), (7_460, 12_755, 615)),
    ("start", "ece", "one start"): ((372, None, 13_400), (127, 608, 1_336), (34, 76, 215), (None, None, 791)),
    ("change", "point", "starts"): ((780, 4_810, 10_380), (250, 780, 1_920), (60, 100, 380)),
    ("change", "point", "SR, A = 100,000"): ((440, 2_130, 4_650), (140, 430, 1_010), (40, 60, 250)),
    ("change", "point", "SR, A = 2,000,000"): ((610, 3_880, 7_300), (200, 640, 1_500), (40, 80, 340)),
}
SIMULATED: tuple[tuple[str, Null, str], ...] = (
    ("start", "point", "starts"),
    ("start", "ece", "one start"),
    ("change", "point", "starts"),
)
"""Simulations by null. One serves every alarm of its null; the alarm given sets its length."""


@dataclass
class FalseAlarms:
    shape: str
    truth: str
    null: str
    alarm: str
    streams: int
    share: float
    """Share of streams that alarm within 100,000 labels."""
    mean_run: float
    """Mean labels until the alarm, 100,000 without one: a lower bound of the average run length."""


@dataclass
class Delay:
    shape: str
    truth: str
    since: str
    """Start of the drift: "start", or "change" after 20,000 calibrated labels."""
    null: str
    alarm: str
    block: int
    streams: int
    median: float | None
    """Labels from the first bad one to the alarm, for streams without an earlier alarm; None: half never alarm."""
    published: int | None


@dataclass
class Coverage:
    shape: str
    truth: str
    streams: int
    covered: float
    """Share of streams whose limits hold after every one of 100,000 labels, with exact confidences."""
    width: dict[str, float]
    """Mean width by number of labels."""


def false_alarms(rows: Pool, streams: int, seed: int) -> list[FalseAlarms]:
    found = []
    for truth in ("calibrated", "below by .02", "above by .02"):
        for null in ("point", "ece"):
            at = first_alarms(rows, truth, null, 20, streams, LABELS, 0, seed)
            for name, at_S in at.items():
                share, run = float(np.isfinite(at_S).mean()), float(np.minimum(at_S, LABELS).mean())
                found.append(FalseAlarms(rows.shape, truth, null, name, streams, share, run))
    return found


def delays(rows: Pool, streams: int, seed: int) -> list[Delay]:
    found, letter = [], "ABC".index(rows.shape)
    for since, null, slowest in SIMULATED:
        for t, truth in enumerate(TRUTHS[: len(PUBLISHED[since, null, slowest])]):
            block, good = 20 if truth in ("T = 1.25", "local") else 10, GOOD if since == "change" else 0
            expected = PUBLISHED[since, null, slowest][t][letter]
            horizon = 12_000 if expected is None else max(CHUNK, 4 * expected)
            at = first_alarms(rows, truth, null, block, streams, horizon, good, seed)
            for alarm, at_S in at.items():
                after = at_S[at_S > good] - good
                middle = float(np.median(after)) if len(after) else np.inf
                published = PUBLISHED[since, null, alarm][t][letter] if (since, null, alarm) in PUBLISHED else None
                median = middle if np.isfinite(middle) else None
                where = (rows.shape, truth, since, null, alarm)
                found.append(Delay(*where, block=block, streams=len(after), median=median, published=published))
    return found


def coverage(rows: Pool, truth: str, streams: int, seed: int) -> Coverage:
    """Return whole-path coverage of the true gap by row-by-row bets, and widths of `gap_sequence`."""
    rng = np.random.default_rng([seed, *f"{rows.shape}{truth}".encode()])
    chance = rows.chances[truth]
    gap, log_threshold = float((chance - rows.confidence_M).mean()), np.log(40 * len(GAP_STAKES))
    covered, widths = 0, []
    for _ in range(streams):
        drawn_N = rng.integers(0, len(chance), LABELS)
        right_N, confidence_N = rng.random(LABELS) < chance[drawn_N], rows.confidence_M[drawn_N]
        excess_N = right_N - confidence_N - gap
        largest = -np.inf
        for sign in (1.0, -1.0):
            total_N = np.full(LABELS, -np.inf)
            for L in GAP_STAKES:
                np.logaddexp(total_N, np.cumsum(np.log1p(sign * L * excess_N)), out=total_N)
            largest = max(largest, float(total_N.max()))
        covered += largest < log_threshold
        read = [
            gap_sequence(CalibrationSums.from_top(confidence_N[:n], right_N[:n])) for n in (100, 1_000, 10_000, LABELS)
        ]
        widths.append([one.upper - one.lower for one in read])
    named = dict(zip(("100", "1000", "10000", "100000"), np.mean(widths, axis=0).tolist(), strict=True))
    return Coverage(rows.shape, truth, streams, covered / streams, named)


def markdown(found: dict[str, Any]) -> str:
    """Return the two tables of docs/explanation/results.md from the JSON."""
    shapes = list(dict.fromkeys(row["shape"] for row in found["delays"]))

    def table(title: str, rows: list[dict[str, Any]], keys: tuple[str, ...], shown: Callable[[Any], str]) -> list[str]:
        groups: dict[tuple[str, ...], list[str]] = {}
        for row in rows:
            groups.setdefault(tuple(row[key] for key in keys), []).append(shown(row))
        head = [f"| {title} | " + " | ".join(shapes) + " |", "|---" * (1 + len(shapes)) + "|"]
        return head + [f"| {', '.join(key)} | " + " | ".join(cells) + " |" for key, cells in groups.items()]

    def delay(row: dict[str, Any]) -> str:
        median = "none" if row["median"] is None else f"{row['median']:,.0f}"
        return f"{median} ({row['published']:,})" if row["published"] else median

    alarms_of = [row for row in found["false_alarms"] if row["alarm"] == "starts"]
    delays_of = [row for row in found["delays"] if (row["since"], row["null"], row["alarm"]) in PUBLISHED]
    title = "share of streams with a false alarm in 100,000 labels"
    return "\n".join(
        [
            *table(title, alarms_of, ("null", "truth"), lambda row: f"{row['share']:.1%}"),
            "",
            *table("median labels to the alarm (published)", delays_of, ("since", "null", "alarm", "truth"), delay),
        ]
    )


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Return the decisive numbers."""
    e_process = [r for r in found["false_alarms"] if r["alarm"] in ("starts", "one start")]
    compared = [r for r in found["delays"] if r["published"]]
    kept = [
        r["median"] is not None and r["median"] <= max(1.25 * r["published"], r["published"] + r["block"])
        for r in compared
    ]
    ratios = [r["median"] / r["published"] for r in compared if r["median"]]
    return {
        "most_false_alarms": max(r["share"] for r in e_process),
        "delays_compared": len(compared),
        "delays_at_most_25_percent_or_one_block_longer": sum(kept),
        "longest_delay_over_published": max(ratios),
        "median_delay_over_published": float(np.median(ratios)),
        "lowest_coverage": min(r["covered"] for r in found["coverage"]),
    }


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--streams", type=int, default=300, help="per setting")
    parser.add_argument("--shapes", default="ABC", help="which of the shapes")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.streams < 1 or not options.shapes or not set(options.shapes) <= set("ABC"):
        parser.error(f"--streams is {options.streams}, --shapes {options.shapes!r}; allowed: 1 or more, letters of ABC")
    run = Run()
    measured: dict[str, list[Any]] = {"false_alarms": [], "delays": [], "coverage": []}
    for shape in options.shapes:
        rows = pool(shape)
        measured["false_alarms"] += map(asdict, false_alarms(rows, options.streams, options.seed))
        run.say(f"{shape} false alarms")
        measured["delays"] += map(asdict, delays(rows, options.streams, options.seed))
        run.say(f"{shape} delays")
        half = (options.streams + 1) // 2
        both = [coverage(rows, truth, half, options.seed) for truth in ("calibrated", "T = 1.5")]
        measured["coverage"] += map(asdict, both)
        run.say(f"{shape} coverage")
    run.finish(options.out, markdown, tolerance=TOLERANCE, summary=summary(measured), **measured)


if __name__ == "__main__":
    main()
