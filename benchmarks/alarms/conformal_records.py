"""Conformal sets on real nets: coverage on fresh rows, false alarms while sets are sound, and the delay after a drift.

    python -m benchmarks.alarms.conformal_records --records FOLDER        # about five minutes on one core

FOLDER holds an .npz for each net, with the `predictions` of its test rows and their `ground_truth`. Each of 200 splits
divides the rows at random: a quarter fits a temperature, a quarter gives the thresholds, and half is fresh. For lac and
aps the number of covered fresh rows follows the beta-binomial law of the rank, whatever the net is, because every split
is as probable as any other. "p of the law" is the p-value of a Kolmogorov-Smirnov test of that.

Alarm: the fresh rows are a stream of labels, looked at after every label. Drift: after 1,000 labels a fifth of the
labels become random, or only rows of the hardest fifth of the classes come, those with most errors among the rows of
the temperature.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import betabinom, kstest

from benchmarks.alarms.promise import log_e
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds import logits_of
from trueodds.calibrators import Temperature, conformal
from trueodds.processes.choices import SetMethod

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

RESULT = RESULTS / "conformal_records.json"
LEVEL, ALPHA, GOOD = 0.9, 0.05, 1_000
METHODS: tuple[SetMethod, ...] = ("lac", "aps", "raps", "class")
WITH_LAW: tuple[SetMethod, ...] = ("lac", "aps")
FIFTH = 0.2
"""Share of the classes, or of the labels, that a drift takes."""
DRIFTS = ("random labels", "hard classes")


@dataclass
class Covered:
    """Coverage of a method on a record."""

    record: str
    method: str
    rows: int
    splits: int
    mean: float
    """Mean coverage over splits and fresh rows."""
    standard_error: float
    """Standard error of the mean over splits of these rows."""
    floor: float
    """Mean floor. For class it is that of the class with the fewest rows."""
    law: float | None
    """p-value of the beta-binomial law; None where the method does not give it."""
    size: float
    lowest_class: float
    """Mean coverage of the class with the lowest one."""
    alarm: float | None
    """Share of the splits with an alarm on the fresh rows; None for methods that are not streamed."""


@dataclass
class Drifted:
    """Alarms after a drift."""

    record: str
    drift: str
    method: str
    splits: int
    labels: float
    """Mean number of labels after the drift."""
    coverage: float
    """Mean coverage after the drift."""
    found: float
    """Share of the splits with an alarm, of those without one before the drift."""
    median: float | None
    """Labels from the drift to the alarm; None: half of the splits have no alarm."""


@dataclass(frozen=True)
class Split:
    """Rows of one split, with calibrated probabilities."""

    number: int
    own_NC: Array
    own_N: Labels
    fresh_NC: Array
    fresh_N: Labels
    hard: Labels
    """Hardest classes."""

    @classmethod
    def of(cls, logits_NC: Array, labels_N: Labels, number: int) -> Split:
        """Draw a split, and fit the temperature."""
        order_N = np.random.default_rng([number, 45]).permutation(len(labels_N))
        fit, own, fresh = np.split(order_N, [len(order_N) // 4, len(order_N) // 2])
        calibrator = Temperature.fit(logits_NC[fit], labels_N[fit])
        wrong_N = logits_NC[fit].argmax(axis=1) != labels_N[fit]
        classes = logits_NC.shape[1]
        count_C = np.bincount(labels_N[fit], minlength=classes)
        error_C = np.bincount(labels_N[fit], weights=wrong_N, minlength=classes) / np.maximum(count_C, 1)
        hard = np.argsort(-error_C, kind="stable")[: max(1, round(FIFTH * classes))]
        return cls(
            number, calibrator(logits_NC[own]), labels_N[own], calibrator(logits_NC[fresh]), labels_N[fresh], hard
        )

    def hits(self, method: SetMethod) -> tuple[conformal.SetRule, Mask, Mask]:
        """Fit the sets of a method. Return the rule, the fresh sets, and whether each holds its label."""
        rule = conformal.fit(self.own_NC, self.own_N, method, level=LEVEL, seed=self.number).at(LEVEL)
        inside_NC = rule.sets(self.fresh_NC, [f"{self.number} {n}" for n in range(len(self.fresh_N))])
        return rule, inside_NC, inside_NC[np.arange(len(self.fresh_N)), self.fresh_N]


def measured(record: str, logits_NC: Array, labels_N: Labels, splits: int) -> tuple[list[Covered], list[Drifted]]:
    """Measure all methods on a record."""
    covered, drifted = [], []
    draws = [Split.of(logits_NC, labels_N, number) for number in range(splits)]
    for method in METHODS:
        found = [split.hits(method) for split in draws]
        hit_RL = np.stack([hit_N for _, _, hit_N in found])
        rule, fresh = found[0][0], hit_RL.shape[1]
        floors_R = np.array([min(one.floors) for one, _, _ in found])
        every = np.concatenate([split.fresh_N for split in draws])
        right_C = np.bincount(every, weights=hit_RL.ravel()) / np.bincount(every)
        law = alarm = None
        if method in WITH_LAW:
            rank, own = rule.ranks[0], rule.rows[0]
            law = float(kstest(hit_RL.sum(axis=1), betabinom(fresh, rank, own + 1 - rank).cdf).pvalue)
            reached_RL = log_e(~hit_RL, 1 - float(floors_R[0])) >= -math.log(ALPHA)
            alarm = float(reached_RL.any(axis=1).mean())
            for drift in DRIFTS:
                streams = [
                    _stream(split, inside_NC, drift) for split, (_, inside_NC, _) in zip(draws, found, strict=True)
                ]
                drifted.append(_drifted(record, drift, method, streams, float(floors_R[0])))
        share_R = hit_RL.mean(axis=1)
        covered.append(
            Covered(
                record=record,
                method=method,
                rows=rule.calibration_rows,
                splits=splits,
                mean=float(share_R.mean()),
                standard_error=float(share_R.std(ddof=1) / math.sqrt(splits)),
                floor=float(floors_R.mean()),
                law=law,
                size=float(np.mean([inside_NC.sum(axis=1).mean() for _, inside_NC, _ in found])),
                lowest_class=float(right_C.min()),
                alarm=alarm,
            )
        )
    return covered, drifted


def _stream(split: Split, inside_NC: Mask, drift: str) -> tuple[Mask, Mask]:
    """Return whether each set holds its label, before and after a drift."""
    good, labels_N = min(GOOD, len(inside_NC) // 2), split.fresh_N.copy()
    rows_L = np.arange(good, len(labels_N))
    if drift == "hard classes":
        rows_L = rows_L[np.isin(labels_N[good:], split.hard)]
    else:
        rng = np.random.default_rng([split.number, 46])
        random_L = rows_L[rng.random(len(rows_L)) < FIFTH]
        labels_N[random_L] = rng.integers(0, inside_NC.shape[1], len(random_L))
    return inside_NC[np.arange(good), labels_N[:good]], inside_NC[rows_L, labels_N[rows_L]]


def _drifted(record: str, drift: str, method: str, streams: list[tuple[Mask, Mask]], floor: float) -> Drifted:
    """Measure the alarm on the streams of a drift."""
    delays = []
    for before_L, after_L in streams:
        reached_L = log_e(~np.concatenate([before_L, after_L])[None], 1 - floor)[0] >= -math.log(ALPHA)
        if not reached_L[: len(before_L)].any():
            late_L = reached_L[len(before_L) :]
            delays.append(float(late_L.argmax() + 1) if late_L.any() else math.inf)
    median = float(np.quantile(delays, 0.5, method="inverted_cdf"))
    return Drifted(
        record=record,
        drift=drift,
        method=method,
        splits=len(streams),
        labels=float(np.mean([len(after_L) for _, after_L in streams])),
        coverage=float(np.mean([after_L.mean() for _, after_L in streams])),
        found=float(np.isfinite(delays).mean()),
        median=median if math.isfinite(median) else None,
    )


def markdown(found: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md from the JSON."""
    head = "record | method | coverage | floor | p of the law | mean size | lowest class | alarm"
    lines = [f"| {head} |", "|---" * 8 + "|"]
    for row in found["coverage"]:
        law = "" if row["law"] is None else f"{row['law']:.3g}"
        alarm = "" if row["alarm"] is None else f"{row['alarm']:.1%}"
        shares = f"{row['mean']:.2%} (±{2 * row['standard_error']:.2%})", f"{row['floor']:.2%}"
        more = law, f"{row['size']:.2f}", f"{row['lowest_class']:.1%}", alarm
        lines.append(f"| {' | '.join([row['record'], row['method'], *shares, *more])} |")
    head = "drift | method | labels after the drift | coverage after it | found | median labels"
    lines += ["", f"| {head} |", "|---" * 6 + "|"]
    for row in found["drift"]:
        median = "none" if row["median"] is None else f"{row['median']:,.0f}"
        cells = f"{row['labels']:,.0f}", f"{row['coverage']:.1%}", f"{row['found']:.1%}", median
        lines.append(f"| {row['record']}, {row['drift']} | {row['method']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(coverage: list[dict[str, Any]], drift: list[dict[str, Any]]) -> dict[str, float]:
    """Return the numbers of docs/explanation/claims.md."""
    laws = [row["law"] for row in coverage if row["law"] is not None]
    return {
        "records": len({row["record"] for row in coverage}),
        "splits": coverage[0]["splits"],
        "least_coverage": min(row["mean"] for row in coverage),
        "laws": len(laws),
        "rejected_laws": sum(law < ALPHA / len(laws) for law in laws),
        "lowest_class": min(row["lowest_class"] for row in coverage if row["method"] != "class"),
        "lowest_by_class": min(row["lowest_class"] for row in coverage if row["method"] == "class"),
        "most_alarms": max(row["alarm"] for row in coverage if row["alarm"] is not None),
        "found_random": min(row["found"] for row in drift if row["drift"] == "random labels"),
        "median_random": max(row["median"] or math.nan for row in drift if row["drift"] == "random labels"),
        "found_hard": min(row["found"] for row in drift if row["drift"] == "hard classes"),
    }


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--records", type=Path, metavar="FOLDER", required=True, help="folder of the nets' records")
    parser.add_argument("--splits", type=whole_from(10), default=200, help="splits of each record")
    options = parser.parse_args()
    paths = sorted(options.records.glob("*.npz"))
    if not paths:
        parser.error(f"--records {options.records} holds no .npz; give the folder of the nets' records")
    run, coverage, drift = Run(), [], []
    for path in paths:
        with np.load(path) as file:
            logits_NC, labels_N = logits_of(file["predictions"]), file["ground_truth"].ravel().astype(np.intp)
        found, late = measured(path.stem, logits_NC, labels_N, options.splits)
        coverage += [asdict(one) for one in found]
        drift += [asdict(one) for one in late]
        run.say(path.stem)
    run.finish(options.out, markdown, summary=summary(coverage, drift), coverage=coverage, drift=drift)


if __name__ == "__main__":
    main()
