"""Size and power of tests for a difference in calibration between two methods.

    python -m benchmarks.evidence.calibration_differences        # two minutes on one core
    python -m benchmarks.evidence.calibration_differences --quick

The nets of one method have confidences from .3 to .9, those of the other from .95 to 1, both uniform. A top label is
right with its confidence minus the method's gap. Both methods thus have the same binned calibration error, and every
rejection by a test at 5% is wrong. The nets answer the same rows, some of which are hard for all of them (half of the
variance of a latent normal variable).

The tests compare the plug-in ECE (by a bootstrap of rows, and by Student's paired test over seeds) and the squared
calibration error. NLL and Brier score are tested on two methods with the same distribution of confidences, whose
expected difference is 0. The goal of 6% fails if an exact one-sided binomial test rejects it at 5%.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrc, ndtr, ndtri

from benchmarks.record import RESULTS, Run, conclude, options_parser, whole_from
from trueodds.evaluation.paired_differences import RowScores
from trueodds.metrics.significance.differences import of_rows, of_seeds
from trueodds.metrics.significance.nets import Nets
from trueodds.metrics.significance.squared_error import difference, null_of

Array = npt.NDArray[np.float64]

RESULT = RESULTS / "calibration_differences.json"
WIDE, SHARP = (0.3, 0.9), (0.95, 1.0)
"""Ranges of the confidences of the two methods."""
SHARED = 0.5
"""Share of the latent variance that all nets have in common: the difficulty of a row."""
BINS, RESAMPLES, LEVEL, GOAL = 15, 100, 0.05, 0.06
SETS = 20
"""Number of draws of the confidences per setting. Labels are drawn anew in each run."""
BOOTSTRAPS = 200
"""Number of runs with a bootstrap."""


@dataclass(frozen=True)
class Setting:
    """Two methods. Each net's gap has the method's mean, and `spread` as its standard deviation over seeds."""

    rows: int
    seeds: int
    wide_gap: float
    sharp_gap: float
    spread: float = 0.0


NULLS = (
    *(Setting(1_000, seeds, gap, gap) for gap in (0.0, 0.02, 0.05) for seeds in (1, 3, 10)),
    *(Setting(1_000, seeds, 0.05, 0.05, 0.01) for seeds in (3, 10)),
    *(Setting(300, 1, gap, gap) for gap in (0.0, 0.05)),
    *(Setting(4_000, 1, gap, gap) for gap in (0.0, 0.02)),
)
POWERS = tuple(
    Setting(rows, seeds, *gaps)
    for gaps in ((0.05, 0.0), (0.0, 0.05))
    for rows, seeds in ((1_000, 1), (1_000, 10), (4_000, 1), (4_000, 3))
)


def nets(ends: tuple[float, float], setting: Setting, rng: np.random.Generator) -> Nets:
    """Draw nets with confidences; labels follow later."""
    confidence_SN = rng.uniform(*ends, (setting.seeds, setting.rows))
    return Nets.of([(confidence_N, np.zeros(setting.rows)) for confidence_N in confidence_SN], BINS)


def labelled(of: Nets, gap: float, spread: float, hard_N: Array, rng: np.random.Generator) -> Nets:
    """Draw labels for the nets."""
    gap_S1 = gap + spread * rng.standard_normal((len(of.confidence_SN), 1))
    own_SN = rng.standard_normal(of.confidence_SN.shape)
    uniform_SN = ndtr(SHARED**0.5 * hard_N + (1 - SHARED) ** 0.5 * own_SN)
    return replace(of, correct_SN=uniform_SN < of.confidence_SN - gap_S1)


def eces(of: Nets, weights_RN: Array) -> Array:
    """Return the plug-in ECE, averaged over the nets, with weights of the rows."""
    gap_N = of.confidence_SN - of.correct_SN
    total_R = np.zeros(len(weights_RN))
    for s in range(len(gap_N)):
        placed_NB = np.zeros((of.rows, BINS))
        placed_NB[np.arange(of.rows), of.bin_SN[s]] = gap_N[s]
        total_R += np.abs(weights_RN @ placed_NB).sum(axis=1)
    return total_R / (of.rows * len(gap_N))


def bootstrap_rejects(one: Nets, other: Nets, rng: np.random.Generator) -> bool:
    """Return whether the difference of the plug-in ECEs exceeds 1.96 of its bootstrap standard deviations."""
    weights_RN = rng.multinomial(one.rows, np.full(one.rows, 1 / one.rows), size=RESAMPLES).astype(np.float64)
    weights_RN = np.concatenate([np.ones((1, one.rows)), weights_RN])
    d_R = eces(one, weights_RN) - eces(other, weights_RN)
    return bool(abs(d_R[0]) / d_R[1:].std(ddof=1) > ndtri(1 - LEVEL / 2))


def over_seeds_rejects(one: Nets, other: Nets) -> bool:
    """Return whether Student's paired test of the nets' plug-in ECEs rejects."""
    p_value = of_seeds([ece(one, s) - ece(other, s) for s in range(len(one.confidence_SN))]).p_value
    return p_value is not None and p_value <= LEVEL


def ece(of: Nets, s: int) -> float:
    """Return the plug-in ECE of one net."""
    gap_N = of.confidence_SN[s] - of.correct_SN[s]
    return float(np.abs(np.bincount(of.bin_SN[s], gap_N, BINS)).sum()) / of.rows


def scores_reject(one: Nets, other: Nets) -> tuple[bool, bool]:
    """Return whether the tests of NLL and Brier score reject."""
    pairs = [
        (RowScores.of_confidence(c, a), RowScores.of_confidence(d, b))
        for c, a, d, b in zip(one.confidence_SN, one.correct_SN, other.confidence_SN, other.correct_SN, strict=True)
    ]
    p_values = (
        of_rows(np.stack([a.nll_N - b.nll_N for a, b in pairs])).p_value,
        of_rows(np.stack([a.brier_N - b.brier_N for a, b in pairs])).p_value,
    )
    of_nll, of_brier = (p is not None and p <= LEVEL for p in p_values)
    return of_nll, of_brier


def measure(setting: Setting, runs: int, seed: int, *, beside: bool = True, sets: int = SETS) -> dict[str, Any]:
    """Return the share of runs in which each test rejects; with `beside` also the other tests."""
    rng = np.random.default_rng([seed, setting.rows, setting.seeds, *(round(1e4 * g) for g in _gaps(setting))])
    found = dict.fromkeys(("squared", "nll", "brier", "bootstrap", "seeds"), 0)
    sets = min(sets, runs)
    bootstraps = 0
    for k in range(sets):
        wide, sharp, twin = (nets(ends, setting, rng) for ends in (WIDE, SHARP, WIDE))
        null_R = null_of(wide, sharp)
        for run in range(runs * k // sets, runs * (k + 1) // sets):
            hard_N = rng.standard_normal(setting.rows)
            one = labelled(wide, setting.wide_gap, setting.spread, hard_N, rng)
            other = labelled(sharp, setting.sharp_gap, setting.spread, hard_N, rng)
            p_value = difference(one, other, null_R).p_value
            found["squared"] += p_value is not None and p_value <= LEVEL
            if not beside:
                continue
            alike = labelled(twin, setting.wide_gap, setting.spread, hard_N, rng)
            of_nll, of_brier = scores_reject(one, alike)
            found["nll"] += of_nll
            found["brier"] += of_brier
            if run * BOOTSTRAPS // runs != (run + 1) * BOOTSTRAPS // runs or runs <= BOOTSTRAPS:
                bootstraps += 1
                found["bootstrap"] += bootstrap_rejects(one, other, rng)
                found["seeds"] += setting.seeds > 1 and over_seeds_rejects(one, other)
    row: dict[str, Any] = {**asdict(setting), "runs": runs, "squared": found["squared"] / runs}
    if beside:
        row |= {"nll": found["nll"] / runs, "brier": found["brier"] / runs, "bootstraps": bootstraps}
        row |= {"bootstrap": found["bootstrap"] / bootstraps}
        row |= {"over_seeds": found["seeds"] / bootstraps if setting.seeds > 1 else None}
        row |= {f"{name}_holds": holds(found[name], runs) for name in ("squared", "nll", "brier")}
    return row


def holds(rejected: int, runs: int) -> bool:
    """Return whether an exact one-sided binomial test at 5% accepts a size of 6% or less."""
    return rejected == 0 or float(bdtrc(rejected - 1, runs, GOAL)) >= LEVEL


def _gaps(setting: Setting) -> tuple[float, float, float]:
    return setting.wide_gap, setting.sharp_gap, setting.spread


def summary(sizes: Sequence[dict[str, Any]], powers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarise sizes and powers for docs/explanation/claims.md."""
    calibrated = [row for row in sizes if row["wide_gap"] == 0]
    return {
        "settings": len(sizes),
        "runs": sizes[0]["runs"],
        "goal": GOAL,
        "highest_size": max(row["squared"] for row in sizes),
        "fails": sum(not row["squared_holds"] for row in sizes),
        "highest_size_of_nll": max(row["nll"] for row in sizes),
        "highest_size_of_brier": max(row["brier"] for row in sizes),
        "fails_of_scores": sum(not row[f"{name}_holds"] for row in sizes for name in ("nll", "brier")),
        "lowest_of_bootstrap": min(row["bootstrap"] for row in calibrated),
        "highest_of_bootstrap": max(row["bootstrap"] for row in calibrated),
        "power": {f"{row['rows']} rows": row["squared"] for row in powers if row["seeds"] == 1 and row["wide_gap"]},
    }


def markdown(found: dict[str, Any]) -> str:
    """Return the tables for docs/explanation/results.md."""

    def about(row: dict[str, Any]) -> str:
        own = f" (each net's own, ± {100 * row['spread']:.0f})" if row["spread"] else ""
        return f"{row['rows']:,} | {row['seeds']} | {100 * row['wide_gap']:.0f}{own}"

    head = ["rows", "seeds", "gap of both, points", "ECE, bootstrap of rows", "ECE, Student's over seeds"]
    head += ["squared calibration error", "NLL", "Brier score"]
    lines = [f"| {' | '.join(head)} |", f"|{'---:|' * len(head)}"]
    for row in found["sizes"]:
        seeds = "" if row["over_seeds"] is None else f"{row['over_seeds']:.0%}"
        rest = " | ".join(f"{row[name]:.1%}" for name in ("squared", "nll", "brier"))
        lines.append(f"| {about(row)} | {row['bootstrap']:.0%} | {seeds} | {rest} |")
    lines += ["", "Power, where one of the two is 5 points too sure and the other calibrated:", ""]
    lines += ["| rows | seeds | 5 points too sure | squared calibration error |", "|---:|---:|---|---:|"]
    for row in found["powers"]:
        which = "confidences .3 to .9" if row["wide_gap"] else "confidences .95 to 1"
        lines.append(f"| {row['rows']:,} | {row['seeds']} | {which} | {row['squared']:.0%} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument(
        "--runs", type=whole_from(10), default=2000, help="pairs in a setting (default: 2000); power takes a tenth"
    )
    parser.add_argument("--quick", action="store_true", help="100 pairs, printed and not written")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    runs, run = 100 if options.quick else options.runs, Run()
    sizes, powers = [], []
    for setting in NULLS:
        sizes.append(measure(setting, runs, options.seed))
        run.say(sizes[-1])
    for setting in POWERS:
        powers.append(measure(setting, max(10, runs // 10), options.seed, beside=False))
        run.say(powers[-1])
    conclude(
        None if options.quick else RESULT,
        markdown,
        packages=("numpy",),
        seconds=round(time.process_time(), 1),
        summary=summary(sizes, powers),
        sizes=sizes,
        powers=powers,
    )


if __name__ == "__main__":
    main()
