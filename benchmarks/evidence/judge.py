"""Wrong verdicts of `judge` when looking at every label, and the number of labels that a verdict takes.

    python -m benchmarks.evidence.judge --records FOLDER    # FOLDER: the nets' records; a few minutes
    python -m benchmarks.evidence.judge                     # the synthetic populations alone; nothing is written

A stream draws 20,000 labelled answers with replacement from a population whose mean gain is known. The confidence
sequence is read after every label, until one limit leaves 0. A verdict is wrong if it is better and the mean gain up to
it is 0 or less, or worse and the mean gain is 0 or more. The interval at the stop is that of the verdict, or of the
last label without one. For comparison there is the likelihood ratio: promote once the product of q(y) / p(y) reaches
20. A goal of 5% fails if an exact one-sided binomial test rejects it at 5%.

Populations: recalibrations of two nets (temperatures of one net's logits), one net against another, phases in which the
better one changes, labels mostly of low confidence (with their propensities), sharp and dull synthetic answers of 2, 10
and 100 classes, and rare costly errors. Many candidates: 10 equal ones in turn, 5,000 labels each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.evidence.judge_streams import LABELS, LEVEL, Judged, Population, judged, of_records, stopped, synthetic
from benchmarks.markdown import table
from benchmarks.record import RESULTS, Run, conclude, options_parser
from pipeline.recalibrate import Rules
from trueodds.metrics import gain_evidence

RESULT = RESULTS / "judge.json"
GOAL, SIZE = 0.05, 0.05
CANDIDATES, TURN, RUNS = 10, 5_000, 100
MORE = 4
"""Factor by which there are more streams if both versions are equal, because most errors are possible there."""
TINY = 1e-6
"""Largest mean gain in nats that counts as 0."""


def measure(population: Population, runs: int) -> dict[str, Any]:
    """Return the shares of streams that were decided, rightly and wrongly, and the labels that it took."""
    seed = [len(population.name), *population.name.encode()]
    rng = np.random.default_rng(seed)
    runs *= MORE if population.name.endswith("equal") else 1
    streams = [judged(population, rng) for _ in range(runs)]
    wrong = [(s.verdict == "better" and s.truth <= TINY, s.verdict == "worse" and s.truth >= -TINY) for s in streams]
    old = [s for s in streams if s.old is not None]
    normalised = population.propensity_M is not None
    return {
        "name": population.name,
        "kind": population.kind,
        "gain": float(population.gain_M.mean()) if population.other_M is None else None,
        "standard_deviation": float(population.gain_M.std()),
        "runs": runs,
        "better": sum(s.verdict == "better" for s in streams),
        "worse": sum(s.verdict == "worse" for s in streams),
        "wrong_promotions": sum(w[0] for w in wrong),
        "wrong_withdrawals": sum(w[1] for w in wrong),
        "missed": None if normalised else sum(not s.lower <= s.truth <= s.upper for s in streams),
        "missed_of_estimate": sum(not s.lower <= s.truth <= s.upper for s in streams) if normalised else None,
        "share_decided": sum(s.verdict != "undecided" for s in streams) / runs,
        "labels": median(streams, population),
        "width": float(np.median([s.upper - s.lower for s in streams])),
        "old_promotions": len(old),
        "old_wrong_promotions": sum(s.old_truth <= TINY for s in old),
        "old_labels": float(np.median([s.old for s in old])) if len(old) * 2 > runs else None,
    }


def median(streams: list[Judged], population: Population) -> float | None:
    """Return the median labels until a verdict; None if half of the streams or more have none."""
    decided = sorted(s.labels if s.verdict != "undecided" else LABELS + 1 for s in streams)
    middle = float(np.median(decided))
    return middle if middle <= LABELS else None


def in_turn(population: Population, runs: int, budget: str) -> int:
    """Return the share of series of equal candidates in which any gets a verdict."""
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(runs):
        for number in range(1, CANDIDATES + 1):
            level = Rules(candidate=number, budget=budget).level  # type: ignore[arg-type]
            gain_N = population.gain_M[rng.integers(0, len(population.gain_M), TURN)]
            if level == LEVEL:
                decided = stopped(gain_N, population.least, population.most, None)[1] != "undecided"
            else:
                both = gain_evidence(gain_N, least=population.least, most=population.most)
                decided = max(float(log_N.max()) for log_N in both) > np.log(2 / (1 - level))
            if decided:
                wrong += 1
                break
    return wrong


def fails(count: int, runs: int) -> bool:
    """Return whether an exact one-sided test rejects that it happens in 5% or fewer."""
    return bool(stats.binom.sf(count - 1, runs, GOAL) < SIZE)


def summary(settings: list[dict[str, Any]], turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the worst settings, and the number of goals that fail."""
    missed = [row for row in settings if row["missed"] is not None]
    counts = [(row[key], row["runs"]) for row in settings for key in ("wrong_promotions", "wrong_withdrawals")]
    equal = [row for row in missed if row["name"].endswith("equal")]
    together = next(turn for turn in turns if turn["budget"] == "together")
    return {
        "settings": len(settings),
        "runs": min(row["runs"] for row in settings),
        "runs_of_equal": max(row["runs"] for row in settings),
        "most_wrong_promotions": max(row["wrong_promotions"] / row["runs"] for row in settings),
        "most_wrong_withdrawals": max(row["wrong_withdrawals"] / row["runs"] for row in settings),
        "lowest_coverage": min(1 - row["missed"] / row["runs"] for row in missed),
        "mean_coverage_of_equal": 1 - sum(row["missed"] for row in equal) / sum(row["runs"] for row in equal),
        "goals_failed": sum(fails(count, runs) for count, runs in counts)
        + sum(fails(row["missed"], row["runs"]) for row in missed)
        + fails(together["wrong"], together["runs"]),
        "most_old_wrong_promotions": max(row["old_wrong_promotions"] / row["runs"] for row in settings),
    }


def markdown(found: dict[str, Any]) -> str:
    """Return the table for docs/explanation/results.md."""
    rows = []
    for row in found["settings"]:
        runs, kind = row["runs"], row["kind"]
        missed = row["missed"] if row["missed"] is not None else row["missed_of_estimate"]
        note = "" if row["missed"] is not None else " (an estimate)"
        labels, old = (f"{row[key]:,.0f}" if row[key] else f"over {LABELS:,}" for key in ("labels", "old_labels"))
        rows.append(
            (
                f"{kind}: {row['name']}",
                f"{row['better'] / runs:.3f}",
                f"{row['worse'] / runs:.3f}",
                f"{row['wrong_promotions'] / runs:.3f}",
                f"{row['wrong_withdrawals'] / runs:.3f}",
                f"{1 - missed / runs:.3f}{note}",
                labels,
                f"{row['old_promotions'] / runs:.2f} ({row['old_wrong_promotions'] / runs:.2f})",
                old,
            )
        )
    head = (
        "population, mean gain in nats", "better", "worse", "wrongly better", "wrongly worse", "covered at the stop",
        "labels", "likelihood ratio: promoted (wrongly)", "its labels",
    )  # fmt: skip
    turns = "; ".join(f"{turn['budget']}: {turn['wrong'] / turn['runs']:.3f}" for turn in found["turns"])
    lines = [
        f"{found['processor']}, {found['minutes']:.1f} minutes, {found['summary']['runs']} streams a row,"
        f" {found['summary']['runs_of_equal']} where the two are equal. Shares of streams; median labels. Goals that"
        f" fail: {found['summary']['goals_failed']}.",
        "",
        table(head, rows, code=()),
        "",
        f"{CANDIDATES} equal candidates in turn, {TURN:,} labels each: series in which any is called better or worse,"
        f" by budget: {turns}.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--records", type=Path, help="folder of the nets' records; the result is written with it alone")
    parser.add_argument("--runs", type=int, default=RUNS, help="streams a population")
    options = parser.parse_args()
    run, populations = Run(), synthetic()
    if options.records is not None:
        populations = of_records(options.records) + populations
    settings = []
    for population in populations:
        settings.append(measure(population, options.runs))
        run.say(json.dumps(settings[-1]))
    runs = f" --runs {options.runs}" if options.runs != RUNS else ""
    equal = next(p for p in populations if p.name.endswith("equal"))
    turns = [
        {"budget": budget, "runs": options.runs, "wrong": in_turn(equal, options.runs, budget)}
        for budget in ("each", "together")
    ]
    conclude(
        options.records and RESULT,
        markdown,
        packages=("numpy",),
        command=f"python -m benchmarks.evidence.judge --records FOLDER{runs}",
        minutes=run.seconds / 60,
        labels=LABELS,
        level=LEVEL,
        settings=settings,
        turns=turns,
        summary=summary(settings, turns),
    )


if __name__ == "__main__":
    main()
