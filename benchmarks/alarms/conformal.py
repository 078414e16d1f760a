"""Conformal sets: coverage on fresh draws, false alarms while sets are sound, and the delay after a drift.

    python -m benchmarks.alarms.conformal        # about three minutes on one core

Coverage: a calibration of n rows gives the thresholds, 1,000 fresh rows of the same population are measured, 200 times.
For lac and aps by split the number of covered rows follows the beta-binomial law of the rank. "p of the law" is the
p-value of a Kolmogorov-Smirnov test of that. Worlds: sharp and dull probabilities, over-confident ones, a long tail of
rare classes, two classes, and probabilities in steps, which tie. "below" is the share of calibrations whose true
coverage is below the level, measured on 20,000 more rows.

Alarm: 200 deployments, each with its own calibration and a stream of 5,000 labels. The null hypothesis of the service
is that the coverage is at least the 5% quantile of its law ("floor"). "level" tests coverage >= level, which a sound
threshold breaks in about half of all deployments. Drift: after 1,000 labels the truth becomes flatter (logits divided
by 2) or a tenth of the labels become random.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import betabinom, binomtest, kstest

from benchmarks.alarms.promise import log_e
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds.calibrators import conformal
from trueodds.calibrators.conformal import SetRule
from trueodds.metrics import softmax
from trueodds.processes.choices import SetMethod

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

RESULT = RESULTS / "conformal.json"
LEVEL, FRESH, LABELS, GOOD = 0.9, 1_000, 5_000, 1_000
ROWS = (50, 200, 1_000)
ALPHA = 0.05
WORLDS = ("sharp", "dull", "over-confident", "long tail", "two classes", "steps")
DRIFTS = ("flatter", "random labels")


@dataclass
class Covered:
    """Coverage of a method in a world."""

    world: str
    method: str
    rows: int
    calibrations: int
    mean: float
    """Mean coverage over calibrations and fresh rows."""
    standard_error: float
    law: float | None
    """p-value of the beta-binomial law; None where the method or ties do not give this law."""
    size: float
    """Mean number of classes in a set."""
    lowest_class: float
    """Lowest mean coverage of a class with at least 1% of the rows."""


@dataclass
class Sound:
    """Alarms while the sets are sound."""

    world: str
    rows: int
    deployments: int
    floor: float
    below: float
    """Share of deployments whose coverage of the stream is below the level."""
    at_floor: float
    """Share of deployments with an alarm against coverage >= floor."""
    p_value: float
    """p-value of the exact one-sided test of "at most 10% alarm": 5% of the test and 5% of the calibrations."""
    at_level: float
    """Share of deployments with an alarm against coverage >= level."""


@dataclass
class Drifted:
    """Alarms after a drift."""

    world: str
    drift: str
    rows: int
    deployments: int
    coverage: float
    """Mean coverage after the drift."""
    found: float
    median: float | None
    """Labels from the drift to the alarm; None: half of the deployments have no alarm."""


def draw(world: str, rows: int, rng: np.random.Generator, drift: str = "") -> tuple[Array, npt.NDArray[np.intp]]:
    """Draw probabilities and labels of a world."""
    classes = {"dull": 5, "long tail": 40, "two classes": 2, "over-confident": 6}.get(world, 10)
    logits_NC = rng.normal(0, 0.8 if world == "dull" else 2.5, (rows, classes))
    if world == "long tail":
        logits_NC -= 1.5 * np.log(np.arange(1, classes + 1))
    true_NC = softmax(logits_NC / (2 if world == "over-confident" else 1) / (2 if drift == "flatter" else 1))
    labels_N = (true_NC.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    if drift == "random labels":
        random_N = rng.random(rows) < 0.1
        labels_N[random_N] = rng.integers(0, classes, random_N.sum())
    p_NC = softmax(logits_NC)
    if world == "steps":
        p_NC = np.floor(p_NC * 10) + 0.5
        p_NC /= p_NC.sum(axis=1, keepdims=True)
    return p_NC, labels_N


def hits(rule: SetRule, p_NC: Array, labels_N: npt.NDArray[np.intp], ids: str) -> tuple[Mask, Array]:
    """Return whether each set holds its label, and the sizes."""
    inside_NC = rule.sets(p_NC, [f"{ids} {n}" for n in range(len(p_NC))])
    return inside_NC[np.arange(len(labels_N)), labels_N], inside_NC.sum(axis=1).astype(np.float64)


def covered(world: str, method: SetMethod, rows: int, calibrations: int, seed: int) -> Covered:
    rng = np.random.default_rng([seed, rows, *world.encode(), *method.encode()])
    counts_R, sizes_R, labels, right = np.zeros(calibrations), np.zeros(calibrations), [], []
    for r in range(calibrations):
        p_NC, labels_N = draw(world, rows + FRESH, rng)
        rule = conformal.fit(p_NC[:rows], labels_N[:rows], method, level=LEVEL, seed=r).at(LEVEL)
        hit_N, size_N = hits(rule, p_NC[rows:], labels_N[rows:], f"{r}")
        counts_R[r], sizes_R[r] = hit_N.sum(), size_N.mean()
        labels.append(labels_N[rows:])
        right.append(hit_N)
    every, all_right = np.concatenate(labels), np.concatenate(right)
    n_C = np.bincount(every)
    share_C = np.bincount(every, weights=all_right) / np.maximum(n_C, 1)
    law = None
    if method in ("lac", "aps") and (world != "steps" or method == "aps"):
        rank = conformal.rank_of(rows, LEVEL)
        law = float(kstest(counts_R, betabinom(FRESH, rank, rows + 1 - rank).cdf).pvalue)
    return Covered(
        world=world,
        method=method,
        rows=rows,
        calibrations=calibrations,
        mean=float(counts_R.mean() / FRESH),
        standard_error=float(counts_R.std(ddof=1) / FRESH / math.sqrt(calibrations)),
        law=law,
        size=float(sizes_R.mean()),
        lowest_class=float(share_C[n_C >= 0.01 * len(every)].min()),
    )


def streams(world: str, rows: int, deployments: int, seed: int, drift: str = "") -> tuple[Mask, float]:
    """Return whether each label of each stream is missed, and the floor of the sets."""
    rng = np.random.default_rng([seed, rows, *world.encode(), *drift.encode(), 7])
    missed, floor = [], 0.0
    for r in range(deployments):
        p_NC, labels_N = draw(world, rows, rng)
        rule = conformal.fit(p_NC, labels_N, "aps" if world == "sharp" else "lac").at(LEVEL)
        floor = min(rule.floors)
        parts = [(LABELS, "")] if not drift else [(GOOD, ""), (LABELS, drift)]
        hit = [hits(rule, *draw(world, size, rng, change), f"{r} {change}")[0] for size, change in parts]
        missed.append(~np.concatenate(hit))
    return np.stack(missed), floor


def sound(world: str, rows: int, deployments: int, seed: int) -> Sound:
    missed_RL, floor = streams(world, rows, deployments, seed)
    at_floor, at_level = (
        (log_e(missed_RL, risk).max(axis=1) >= -math.log(ALPHA)).mean() for risk in (1 - floor, 1 - LEVEL)
    )
    alarms = round(float(at_floor) * deployments)
    return Sound(
        world=world,
        rows=rows,
        deployments=deployments,
        floor=floor,
        below=float((missed_RL.mean(axis=1) > 1 - LEVEL).mean()),
        at_floor=float(at_floor),
        p_value=float(binomtest(alarms, deployments, 2 * ALPHA, alternative="greater").pvalue),
        at_level=float(at_level),
    )


def drifted(world: str, drift: str, rows: int, deployments: int, seed: int) -> Drifted:
    missed_RL, floor = streams(world, rows, deployments, seed, drift)
    reached_RL = log_e(missed_RL, 1 - floor) >= -math.log(ALPHA)
    quiet_R = ~reached_RL[:, :GOOD].any(axis=1)
    after_RL = reached_RL[quiet_R, GOOD:]
    delay_R = np.where(after_RL.any(axis=1), after_RL.argmax(axis=1) + 1.0, np.inf)
    median = float(np.quantile(delay_R, 0.5, method="inverted_cdf"))
    return Drifted(
        world=world,
        drift=drift,
        rows=rows,
        deployments=deployments,
        coverage=float(1 - missed_RL[:, GOOD:].mean()),
        found=float(np.isfinite(delay_R).mean()),
        median=median if math.isfinite(median) else None,
    )


def markdown(found: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md from the JSON."""
    lines = ["| world | method | rows | coverage | p of the law | mean size | lowest class |", "|---" * 7 + "|"]
    for row in found["coverage"]:
        law = "" if row["law"] is None else f"{row['law']:.3g}"
        shares = f"{row['mean']:.2%} (±{2 * row['standard_error']:.2%})", law, f"{row['size']:.2f}"
        lines.append(
            f"| {row['world']} | {row['method']} | {row['rows']:,} | {' | '.join(shares)} | {row['lowest_class']:.1%} |"
        )
    head = "sound sets | rows | floor | coverage below the level | alarm, floor | p of at most 10% | alarm, level"
    lines += ["", f"| {head} |", "|---" * 7 + "|"]
    for row in found["sound"]:
        cells = f"{row['floor']:.4f}", f"{row['below']:.1%}", f"{row['at_floor']:.1%}", f"{row['p_value']:.3g}"
        lines.append(f"| {row['world']} | {row['rows']:,} | {' | '.join(cells)} | {row['at_level']:.1%} |")
    lines += ["", "| drift | rows | coverage after it | found in 5,000 labels | median labels |", "|---" * 5 + "|"]
    for row in found["drift"]:
        median = "none" if row["median"] is None else f"{row['median']:,.0f}"
        name = f"{row['world']}, {row['drift']}"
        lines.append(f"| {name} | {row['rows']:,} | {row['coverage']:.1%} | {row['found']:.1%} | {median} |")
    return "\n".join(lines)


def summary(measured: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Return the numbers of docs/explanation/claims.md."""
    laws = [row["law"] for row in measured["coverage"] if row["law"] is not None]
    return {
        "calibrations": measured["coverage"][0]["calibrations"],
        "settings": len(measured["coverage"]),
        "least_coverage": min(row["mean"] for row in measured["coverage"]),
        "lowest_class": min(row["lowest_class"] for row in measured["coverage"] if row["method"] != "class"),
        "laws": len(laws),
        "rejected_laws": sum(law < ALPHA / len(laws) for law in laws),
        "deployments": measured["sound"][0]["deployments"],
        "most_at_floor": max(row["at_floor"] for row in measured["sound"]),
        "most_at_level": max(row["at_level"] for row in measured["sound"]),
        "median_of_flatter": next(
            row["median"] for row in measured["drift"] if row["drift"] == "flatter" and row["rows"] == ROWS[-1]
        ),
    }


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(10), default=200, help="calibrations, and deployments, per setting")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run, runs, seed = Run(), options.runs, options.seed
    measured: dict[str, Any] = {"coverage": [], "sound": [], "drift": []}
    for world in WORLDS:
        methods: tuple[SetMethod, ...] = ("lac", "class") if world == "two classes" else ("lac", "aps", "raps", "class")
        for method in methods:
            for rows in ROWS:
                measured["coverage"].append(asdict(covered(world, method, rows, runs, seed)))
        run.say(world)
    for world in ("sharp", "dull", "two classes"):
        measured["sound"] += [asdict(sound(world, rows, runs, seed)) for rows in ROWS]
        run.say(f"sound, {world}")
    for world in ("sharp", "dull"):
        for drift in DRIFTS:
            measured["drift"] += [asdict(drifted(world, drift, rows, runs, seed)) for rows in ROWS]
        run.say(f"drift, {world}")
    run.finish(options.out, markdown, summary=summary(measured), **measured)


if __name__ == "__main__":
    main()
