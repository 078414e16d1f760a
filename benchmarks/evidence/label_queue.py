"""The label queue: early stops, skipped answers, and draws that follow earlier labels to the worst tag.

    python -m benchmarks.evidence.label_queue        # about five minutes on one core

Of 10,000 answers, about 600 are drawn for the goal "ece", each on its own, and labelled in random order. Shapes A, C
and D (benchmarks/shapes.py): sharp, dull and with rare errors; the truth is softmax(z / 1.5). "half": labelling stops
after half of the queue. "at random": a fifth of the queue is skipped. "wrong": half of the wrong answers are skipped,
and no other.

Worst tag: 12 draws of about 100 labels each, every one from 2,000 new answers with 20 tags, whose shares fall as 1 / k.
One tag is right .2 less often than it says (the second, 14% of the answers, or the tenth, 3%), and all others are
calibrated. "plain": all answers alike. "equal": the goal "group" without earlier labels, every tag equally well.
"steered": the goal "group" as the service draws, by the chance of each tag to be the worst one (`worst_chances`). After
each draw, `GroupAlarm` of the tags is read; the tag is found at its first mark. Bias: the weighted sum of a - c over
all draws, divided by the number of answers, minus the mean of a - c of all answers; z is its mean in standard errors.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.markdown import table
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.shapes import chance_at, pool_logits
from trueodds.metrics import GroupAlarm, draw_labels, inverse_probability_ece, label_propensities, worst_chances
from trueodds.sums.bins import CELLS, cell_of

Array = npt.NDArray[np.float64]
RESULT = RESULTS / "label_queue.json"
ANSWERS, BUDGET, BINS, TRUTH = 10_000, 600, 15, 1.5
LABELLINGS = ("all", "half", "at random", "wrong")
SEED = 46
DRAWS, WINDOW, DRAWN, TAGS, OFF = 12, 2_000, 100, 20, 0.2
BAD = {"common": 1, "rare": 9}
"""Place of the bad tag among the tags."""
RULES = ("plain", "equal", "steered")


@dataclass
class Labelling:
    shape: str
    labelling: str
    runs: int
    labels: float
    """Mean number of labels."""
    covered: float
    """Share of the samples whose weighted interval covers the ECE of all answers."""
    bias: float
    """Mean of the weighted accuracy minus that of all answers."""


def measure(shape: str, labelling: str, runs: int) -> Labelling:
    """Label samples in one way."""
    logits_NC = pool_logits(shape, ANSWERS, SEED)
    confidence_N, chance_N = chance_at(logits_NC, 1.0), chance_at(logits_NC, TRUTH)
    bin_N = cell_of(confidence_N) // (CELLS // BINS)
    ece = float(np.abs(np.bincount(bin_N, chance_N - confidence_N)).sum()) / ANSWERS
    propensity_N = label_propensities(confidence_N, BUDGET)
    rng = np.random.default_rng(SEED)
    covered, accuracy, labels = [], [], []
    for run in range(runs):
        drawn = rng.permutation(draw_labels(propensity_N, method="poisson", seed=run))
        right = rng.random(len(drawn)) < chance_N[drawn]
        known = {
            "all": np.ones(len(drawn), np.bool_),
            "half": np.arange(len(drawn)) < len(drawn) // 2,
            "at random": rng.random(len(drawn)) < 0.8,
            "wrong": right | (rng.random(len(drawn)) < 0.5),
        }[labelling]
        estimate = inverse_probability_ece(confidence_N[drawn[known]], right[known], propensity_N[drawn[known]])
        covered.append(estimate.interval.lower <= ece <= estimate.interval.upper)
        accuracy.append(estimate.accuracy)
        labels.append(int(known.sum()))
    bias = float(np.mean(accuracy) - chance_N.mean())
    return Labelling(shape, labelling, runs, float(np.mean(labels)), float(np.mean(covered)), bias)


@dataclass
class WorstTag:
    shape: str
    bad_tag: str
    rule: str
    runs: int
    found: float
    """Share of the runs in which the bad tag is marked."""
    labels: float | None
    """Median number of labels until then; None if fewer than half of the runs find it."""
    others: float
    """Share of the runs in which another tag is marked after some draw."""
    bias: float
    z: float


@cache
def confidences(shape: str) -> Array:
    """Return confidences to draw from."""
    return chance_at(pool_logits(shape, 50_000, SEED), 1.0)


def steer(shape: str, bad: int, rule: str, rng: np.random.Generator) -> tuple[int | None, bool, float]:
    """Label twelve draws. Return the labels until the bad tag is found, whether another was marked, and the bias."""
    pool_M, share_T = confidences(shape), 1 / np.arange(1, TAGS + 1)
    confidence, right, tags, propensity = [np.zeros(0)], [np.zeros(0, np.bool_)], list[str | None](), [np.zeros(0)]
    alarm, weighted, whole, found, others = GroupAlarm.start(), 0.0, 0.0, None, False
    for _ in range(DRAWS):
        c_N = pool_M[rng.integers(0, len(pool_M), WINDOW)]
        tag_N = rng.choice(TAGS, WINDOW, p=share_T / share_T.sum())
        names: list[str | None] = [f"tag {k}" for k in tag_N.tolist()]
        right_N = rng.random(WINDOW) < c_N - OFF * (tag_N == bad)
        chances = None
        if rule == "steered" and tags:
            known = np.concatenate(confidence), np.concatenate(right), tags, names
            ranked = worst_chances(*known, propensity_N=np.concatenate(propensity))
            chances = {one.group: one.chance for one in ranked}
        if rule == "plain":
            propensity_N = label_propensities(c_N, DRAWN, goal="plain")
        else:
            propensity_N = label_propensities(c_N, DRAWN, goal="group", groups_N=names, chances=chances)
        drawn = rng.permutation(draw_labels(propensity_N, method="poisson", seed=int(rng.integers(2**62))))
        weighted += float(((right_N[drawn] - c_N[drawn]) / propensity_N[drawn]).sum())
        whole += float((right_N - c_N).sum())
        confidence.append(c_N[drawn])
        right.append(right_N[drawn])
        propensity.append(propensity_N[drawn])
        tags += [names[k] for k in drawn.tolist()]
        alarm = alarm.advance(c_N[drawn], right_N[drawn], [(str(names[k]),) for k in drawn.tolist()])
        marked = set(alarm.marks())
        found = len(tags) if found is None and f"tag {bad}" in marked else found
        others |= bool(marked - {f"tag {bad}"})
    return found, others, (weighted - whole) / (DRAWS * WINDOW)


def worst_tag(shape: str, bad_tag: str, rule: str, runs: int) -> WorstTag:
    """Measure one way to draw."""
    rng = np.random.default_rng([SEED, *f"{shape}{bad_tag}{rule}".encode()])
    found_R, others_R, bias_R = zip(*(steer(shape, BAD[bad_tag], rule, rng) for _ in range(runs)), strict=True)
    labels_R = np.array([np.inf if found is None else found for found in found_R])
    median = float(np.median(labels_R))
    bias = float(np.mean(bias_R))
    return WorstTag(
        shape=shape,
        bad_tag=bad_tag,
        rule=rule,
        runs=runs,
        found=float(np.isfinite(labels_R).mean()),
        labels=median if np.isfinite(median) else None,
        others=float(np.mean(others_R)),
        bias=bias,
        z=bias / float(np.std(bias_R, ddof=1) / runs**0.5),
    )


def markdown(result: dict[str, Any]) -> str:
    """Format the result as a table."""
    rows = [
        (
            row["shape"],
            row["labelling"],
            f"{row['labels']:.0f}",
            f"{row['covered']:.1%}",
            f"{100 * row['bias']:+.1f}",
        )
        for row in result["labellings"]
    ]
    head = ("shape", "labelled", "labels", "interval covers", "bias of the accuracy, points")
    steered = [
        (
            row["shape"],
            row["bad_tag"],
            row["rule"],
            f"{row['found']:.0%}",
            "" if row["labels"] is None else f"{row['labels']:,.0f}",
            f"{row['others']:.0%}",
            f"{100 * row['bias']:+.2f}",
            f"{row['z']:+.1f}",
        )
        for row in result["worst_tags"]
    ]
    heads = ("shape", "bad tag", "rule", "found", "median labels", "another marked", "bias, points", "z")
    return "\n\n".join([table(head, rows), "The worst tag:", table(heads, steered)])


def main() -> None:
    """Measure all settings."""
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(2), default=100, help="samples of each setting (default: 100)")
    arguments = parser.parse_args()
    run, rows = Run(), list[Labelling]()
    for shape in ("A", "C", "D"):
        for labelling in LABELLINGS:
            rows.append(measure(shape, labelling, arguments.runs))
            run.say(shape, labelling, f"covered {rows[-1].covered:.1%}, bias {rows[-1].bias:+.4f}")
    worst = list[WorstTag]()
    for shape in ("A", "C", "D"):
        for bad_tag in BAD:
            for rule in RULES:
                worst.append(worst_tag(shape, bad_tag, rule, arguments.runs))
                run.say(worst[-1])
    by_rule = {rule: [row for row in worst if row.rule == rule] for rule in RULES}
    sound, wrong = ([row for row in rows if (row.labelling == "wrong") == is_wrong] for is_wrong in (False, True))
    summary = {
        "runs": arguments.runs,
        "lowest_covered": min(row.covered for row in sound),
        "largest_bias": max(abs(row.bias) for row in sound),
        "least_covered_wrong": min(row.covered for row in wrong),
        "largest_bias_wrong": max(abs(row.bias) for row in wrong),
        **{f"least_found_{rule}": min(row.found for row in of_rule) for rule, of_rule in by_rule.items()},
        **{f"most_found_{rule}": max(row.found for row in of_rule) for rule, of_rule in by_rule.items()},
        "largest_z_steered": max(abs(row.z) for row in by_rule["steered"]),
        "largest_bias_steered": max(abs(row.bias) for row in by_rule["steered"]),
        "worst_settings": len(by_rule["steered"]),
    }
    labellings, worst_tags = ([asdict(row) for row in some] for some in (rows, worst))
    run.finish(arguments.out, markdown, summary=summary, labellings=labellings, worst_tags=worst_tags)


if __name__ == "__main__":
    main()
