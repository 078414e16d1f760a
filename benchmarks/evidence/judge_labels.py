"""Wrong verdicts of `judge` about independent labels, when looking after every answer.

    python -m benchmarks.evidence.judge_labels        # about five minutes on one core

An answer has 2 or 20 labels. Their truths are `independent`, `together` (one normal score of the answer decides 60% of
each), or the `same` for all labels. Logits are sharp or dull, true labels common or rare, and all truths or 30% of them
are known. The served curves are too sharp. The candidate's are too dull by as much (`equal`), or by less, so that it is
better by .01 nats a label. A stream draws 2,000 answers, and the confidence sequence is read after every one. A verdict
is wrong if it is better and the mean gain is 0, or worse and the mean gain is not below 0. For comparison, each known
label is a step of its own. A goal of 5% fails if an exact one-sided binomial test rejects it at 5%.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit, ndtr

from benchmarks.evidence.judge_streams import LEVEL, stopped
from benchmarks.markdown import table
from benchmarks.record import RESULTS, Run, conclude, options_parser, whole_from
from pipeline.choices import SMOOTHING
from pipeline.recalibrate.gains import label_gain_limits
from trueodds.calibrators import MultilabelPlatt
from trueodds.metrics.alarms.gain_sequence import limit_of

Array = npt.NDArray[np.float64]

RESULT = RESULTS / "judge_labels.json"
POOL, ANSWERS, GAIN, TRUE, SHARP = 20_000, 2_000, 0.01, 0.5, 1.0
"""Answers in a population and a stream, mean gain of a better candidate, and the slopes of truth and served curves."""
THRESHOLD = float(np.log(2 / (1 - LEVEL)))
GOAL, SIZE = 0.05, 0.05
HOW = ("independent", "together", "same")


@dataclass(frozen=True)
class Setting:
    """A population of answers with independent labels."""

    labels: int
    how: str
    """Dependence of the truths of an answer."""
    known: float
    """Share of known truths."""
    gain: str
    """equal, or better."""
    spread: float = 2.0
    """Standard deviation of the logits: 4 is sharp, 1 is dull."""
    base: float = -1.0
    """Mean logit."""


@dataclass(frozen=True)
class Pool:
    """Gains of a population of answers by label, their limits, and their mean."""

    gain_ML: Array
    least: float
    most: float
    mean: float


@lru_cache(maxsize=4)
def pool_of(setting: Setting, seed: int) -> Pool:
    """Draw a population, and find the candidate's slope that gives the mean gain."""
    rng, labels = np.random.default_rng(seed), setting.labels
    z_ML = setting.base + rng.normal(0, setting.spread, (POOL, labels))
    score_ML = rng.normal(size=z_ML.shape)
    if setting.how == "together":
        score_ML = np.sqrt(0.6) * rng.normal(size=(POOL, 1)) + np.sqrt(0.4) * score_ML
    if setting.how == "same":
        z_ML, score_ML = np.repeat(z_ML[:, :1], labels, axis=1), np.repeat(score_ML[:, :1], labels, axis=1)
    truth_ML = ndtr(score_ML) < expit(TRUE * z_ML)

    def scores(slope: float) -> Array:
        p_ML = expit(slope * z_ML)
        found: Array = np.log((1 - SMOOTHING) * np.where(truth_ML, p_ML, 1 - p_ML) + SMOOTHING / 2)
        return found

    served_ML, wanted = scores(SHARP), GAIN if setting.gain == "better" else 0.0
    slope = float(brentq(lambda a: float((scores(a) - served_ML).mean()) - wanted, 1e-3, TRUE))
    served, candidate = (MultilabelPlatt([a] * labels, [0.0] * labels, a, 0.0, 0.0, 0.0) for a in (SHARP, slope))
    least, most = label_gain_limits(served, candidate)
    gain_ML = scores(slope) - served_ML
    return Pool(gain_ML, least, most, float(gain_ML.mean()))


def wrong_verdicts(setting: Setting, runs: int, answers: int, seed: int) -> dict[str, Any]:
    """Count the wrong verdicts by answer and by label, the right ones, and the intervals that miss at the stop."""
    rng, pool = np.random.default_rng([seed, 1]), pool_of(setting, seed)
    found = {"wrong": 0, "right": 0, "missed": 0, "by_label_wrong": 0}
    stops = []
    for _ in range(runs):
        row_N = rng.integers(0, POOL, answers)
        known_NL = rng.random((answers, setting.labels)) < setting.known
        known_NL[~known_NL.any(axis=1), 0] = True
        rng.permuted(known_NL, axis=1, out=known_NL)
        gain_NL = pool.gain_ML[row_N]
        gain_N = np.where(known_NL, gain_NL, 0.0).sum(axis=1) / known_NL.sum(axis=1)
        stop, verdict, (paid_K, lost_K) = stopped(gain_N, pool.least, pool.most, None)
        found["wrong"] += is_wrong(verdict, setting)
        found["right"] += verdict == "better" and setting.gain == "better"
        lower = limit_of(paid_K, -pool.least, THRESHOLD) / stop
        upper = -limit_of(lost_K, pool.most, THRESHOLD) / stop
        found["missed"] += not lower <= pool.mean <= upper
        found["by_label_wrong"] += is_wrong(stopped(gain_NL[known_NL], pool.least, pool.most, None)[1], setting)
        stops.append(stop if verdict != "undecided" else answers + 1)
    middle = float(np.median(stops))
    return {**vars(setting), "runs": runs, **found, "answers": middle if middle <= answers else None}


def is_wrong(verdict: str, setting: Setting) -> bool:
    """Return whether a verdict contradicts the mean gain."""
    return verdict == "worse" or (verdict == "better" and setting.gain == "equal")


def fails(count: int, runs: int) -> bool:
    """Return whether an exact one-sided test rejects that it happens in 5% or fewer."""
    return bool(stats.binom.sf(count - 1, runs, GOAL) < SIZE)


def settings() -> list[Setting]:
    """Return the settings."""
    shapes = ((4.0, -1.0), (1.0, -1.0), (2.0, -4.0))
    of_all = [Setting(labels, how, known, "equal", *shape) for labels in (2, 20) for how in HOW
              for known in (1.0, 0.3) for shape in shapes]  # fmt: skip
    better = [Setting(20, how, known, "better", *shape) for how in HOW for known in (1.0, 0.3) for shape in shapes[:2]]
    return [*of_all, *better]


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the worst settings, and the number of goals that fail."""
    equal, better = ([row for row in found if row["gain"] == gain] for gain in ("equal", "better"))
    by_label = [row for row in equal if row["how"] != "independent"]
    return {
        "settings": len(found),
        "runs": min(row["runs"] for row in found),
        "most_wrong": max(row["wrong"] / row["runs"] for row in found),
        "mean_wrong": float(np.mean([row["wrong"] / row["runs"] for row in found])),
        "lowest_coverage": min(1 - row["missed"] / row["runs"] for row in found),
        "goals_failed": sum(fails(row[key], row["runs"]) for row in found for key in ("wrong", "missed")),
        "most_wrong_by_label": max(row["by_label_wrong"] / row["runs"] for row in by_label),
        "lowest_right": min(row["right"] / row["runs"] for row in better),
        "mean_right": float(np.mean([row["right"] / row["runs"] for row in better])),
    }


def markdown(found: dict[str, Any]) -> str:
    """Return the table for docs/explanation/results.md."""
    rows = []
    for row in found["settings"]:
        runs = row["runs"]
        about = f"{row['labels']} labels, {row['how']}, {row['known']:.0%} known"
        shape = f"spread {row['spread']:g}, mean {row['base']:g}"
        shares = (row["right"], row["wrong"], runs - row["missed"], row["by_label_wrong"])
        answers = f"{row['answers']:,.0f}" if row["answers"] else f"over {ANSWERS:,}"
        rows.append((f"{row['gain']}: {about}", shape, *(f"{count / runs:.3f}" for count in shares), answers))
    head = ("candidate", "logits", "rightly better", "wrong", "covered at the stop", "wrong by label", "answers")
    about = (
        f"{found['processor']}, {found['minutes']:.1f} minutes, {found['summary']['runs']} streams a row. Shares of"
        f" streams; median answers until a verdict. Goals that fail (5%): {found['summary']['goals_failed']}."
    )
    return "\n".join([about, "", table(head, rows)])


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(20), default=200, help="streams a setting (default: %(default)s)")
    options = parser.parse_args()
    run, found = Run(), list[dict[str, Any]]()
    for number, one in enumerate(settings()):
        found.append(wrong_verdicts(one, options.runs, ANSWERS, number))
        run.say(found[-1])
    packages = ("numpy", "scipy")
    conclude(options.out, markdown, packages=packages, minutes=run.seconds / 60, settings=found, summary=summary(found))


if __name__ == "__main__":
    main()
