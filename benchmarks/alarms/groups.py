"""Alarms by group: the share of false marks at each look, and the labels until a miscalibrated tag is marked.

    python -m benchmarks.alarms.groups        # about five minutes on one core

Confidences are those of shapes B (sharp) and C (dull) of benchmarks/shapes.py. A tag is *within the tolerance* if its
answers are right as often as they say (`calibrated`) or .02 less often (`edge`: the limit of the null).

False marks. Somebody looks every midnight for 30 days:

- `overlapping`: 60 tags on 500 labels a day. Each answer has each tag with its own probability, from 1% (rare) to 50%
  (common), and two thirds of the tags are more frequent at one end of the confidences. So an answer has many tags.
- `many`: 1,000 tags with 10 to 1,000 labels each.
- `mixed`: the same, but 20 tags spread over all sizes are right .1 less often than they say.

At each look, the share of tags within the tolerance among the marked is computed, 0 without a mark. The table has its
mean over the streams, at the look where it is highest. For comparison: tags marked by one-look p-values (the procedure
of Benjamini and Hochberg), where all tags are calibrated.

Labels needed. 100 tags, five of which are right .1 less often than they say (`everywhere`), or only at confidences from
.5 to .8 (`local`). The table has the median number of labels of such a tag until it is marked and until it is marked
for good, with looks after every 20 labels of each tag, and the number that the alarm on a version takes if it gets the
labels of this tag only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.streams import Pool, pool
from trueodds.metrics import CalibrationSums, EProcess, GroupAlarm, ece_test
from trueodds.metrics.alarms.sequential import BLOCK
from trueodds.reports.slices import FALSE_DISCOVERY_RATE, benjamini_hochberg

Array = npt.NDArray[np.float64]

SHAPES = {"B": "sharp", "C": "dull"}
DAYS, OVERLAPPING, A_DAY, MANY, OFF_TAGS, OFF = 30, 60, 500, 1_000, 20, 0.1
POWER_TAGS, POWER_OFF, POWER_LABELS, SEED = 100, 5, 6_000, 5
TRUTHS = {"calibrated": "calibrated", "edge": "below by .02"}
RESULT = RESULTS / "groups.json"


def overlapping_tags(rows: Pool, drawn_N: npt.NDArray[np.intp], shares: Array) -> list[list[str]]:
    """Draw the tags of answers. A third of the tags each: any confidence, low ones three times as often, high ones."""
    rank_N = rows.confidence_M.searchsorted(rows.confidence_M[drawn_N]) / len(rows.confidence_M)
    rng = np.random.default_rng([SEED, int(drawn_N[0])])
    tilt_NG = np.ones((len(drawn_N), len(shares)))
    tilt_NG[:, 1::3] = np.where(rank_N < 0.5, 1.5, 0.5)[:, None]
    tilt_NG[:, 2::3] = np.where(rank_N < 0.5, 0.5, 1.5)[:, None]
    has_NG = rng.random(tilt_NG.shape) < shares * tilt_NG
    return [[f"tag {g}" for g in np.flatnonzero(has_G)] for has_G in has_NG]


def false_share(marked: Sequence[str], off: set[str]) -> float:
    """Return the share of tags within the tolerance among the marked."""
    return sum(name not in off for name in marked) / max(len(marked), 1)


def overlapping(rows: Pool, truth: str, streams: int, with_p: int) -> dict[str, Any]:
    """Return the highest mean false share over the looks, for 60 overlapping tags, and that of one-look marks."""
    rng = np.random.default_rng([SEED, 1, *f"{rows.shape}{truth}".encode()])
    shares = np.geomspace(0.01, 0.5, OVERLAPPING)
    shares = rng.permutation(shares)
    false_SD, one_look_SD, ever = np.zeros((streams, DAYS)), np.zeros((with_p, DAYS)), 0
    for s in range(streams):
        alarm = GroupAlarm.start(places=OVERLAPPING)
        rows_of: dict[str, list[int]] = {}
        confidences, rights = list[Array](), list[Any]()
        for day in range(DAYS):
            drawn_N = rng.integers(0, len(rows.cell_M), A_DAY)
            right_N = rng.random(A_DAY) < rows.chances[TRUTHS[truth]][drawn_N]
            tags = overlapping_tags(rows, drawn_N, shares)
            alarm = alarm.advance(rows.confidence_M[drawn_N], right_N, tags)
            false_SD[s, day] = bool(alarm.marks())
            if s < with_p:
                confidences.append(rows.confidence_M[drawn_N])
                rights.append(right_N)
                for n, own in enumerate(tags):
                    for name in own:
                        rows_of.setdefault(name, []).append(day * A_DAY + n)
                if day % 6 == 5:
                    c_N, a_N = np.concatenate(confidences), np.concatenate(rights)
                    p = [ece_test(CalibrationSums.from_top(c_N[of], a_N[of])).p_value for of in rows_of.values()]
                    one_look_SD[s, day] = any(benjamini_hochberg(p, FALSE_DISCOVERY_RATE))
        ever += bool(alarm.lasting_marks())
    found = {"false_share": float(false_SD.mean(axis=0).max()), "ever_marked": ever / streams}
    one_look = {} if not with_p else {"one_look_share": float(one_look_SD.mean(axis=0).max())}
    return found | one_look | {"any_look": float(false_SD.any(axis=1).mean())}


def many(rows: Pool, truth: str, streams: int, off_tags: int) -> dict[str, Any]:
    """Return the highest mean false share over the looks, for 1,000 tags, some of them miscalibrated."""
    rng = np.random.default_rng([SEED, 2, off_tags, *f"{rows.shape}{truth}".encode()])
    false_SD, ever, found_tags = np.zeros((streams, DAYS)), 0.0, 0.0
    size_G = np.geomspace(10, 1_000, MANY)
    off_G = np.zeros(MANY, bool)
    off_G[np.linspace(MANY // (2 * max(off_tags, 1)), MANY - 1, off_tags).astype(int)] = True
    off = {f"tag {g}" for g in np.flatnonzero(off_G)}
    names = [[f"tag {g}"] for g in range(MANY)]
    for s in range(streams):
        alarm = GroupAlarm.start(places=MANY)
        for day in range(DAYS):
            tag_N = rng.permutation(np.repeat(np.arange(MANY), rng.poisson(size_G / DAYS)))
            drawn_N = rng.integers(0, len(rows.cell_M), len(tag_N))
            chance_N = rows.chances[TRUTHS[truth]][drawn_N]
            wrong_by_N = np.where(off_G[tag_N], rows.confidence_M[drawn_N] - OFF, chance_N)
            tags = [names[g] for g in tag_N]
            alarm = alarm.advance(rows.confidence_M[drawn_N], rng.random(len(tag_N)) < wrong_by_N, tags)
            false_SD[s, day] = false_share(alarm.marks(), off)
        ever += any(name not in off for name in alarm.lasting_marks())
        found_tags += len(off.intersection(alarm.marks())) / max(off_tags, 1)
    found = {"false_share": float(false_SD.mean(axis=0).max()), "ever_marked": ever / streams}
    return found | ({"found": found_tags / streams} if off_tags else {})


def power(rows: Pool, kind: str, streams: int) -> dict[str, Any]:
    """Return the median labels of a miscalibrated tag until it is marked, marked for good, and alarmed alone."""
    rng = np.random.default_rng([SEED, 3, *f"{rows.shape}{kind}".encode()])
    after = {"marked": list[float](), "for_good": list[float](), "alone": list[float]()}
    at_G = np.linspace(10, POWER_TAGS - 1, POWER_OFF).astype(int)
    for _ in range(streams):
        alarm, alone = GroupAlarm.start(places=POWER_TAGS), {g: EProcess.start("ece") for g in at_G.tolist()}
        first = {name: dict.fromkeys(at_G.tolist(), np.inf) for name in after}
        for look in range(POWER_LABELS // BLOCK):
            tag_N = np.tile(np.arange(POWER_TAGS), BLOCK)
            drawn_N = rng.integers(0, len(rows.cell_M), len(tag_N))
            c_N = rows.confidence_M[drawn_N]
            less_N = OFF * (np.isin(tag_N, at_G) & ((kind == "everywhere") | ((c_N > 0.5) & (c_N <= 0.8))))
            right_N = rng.random(len(tag_N)) < c_N - less_N
            alarm = alarm.advance(c_N, right_N, [[f"tag {g}"] for g in tag_N])
            marks, labels = set(alarm.marks()), float((look + 1) * BLOCK)
            for g in at_G.tolist():
                alone[g] = alone[g].advance_each(c_N[tag_N == g], right_N[tag_N == g])[0]
                reached = (f"tag {g}" in marks, f"tag {g}" in alarm.lasting_marks(), alone[g].is_alarmed())
                for name, one in zip(after, reached, strict=True):
                    if one:
                        first[name][g] = min(first[name][g], labels)
            if all(np.isfinite(list(of.values())).all() for of in first.values()):
                break
        for name, of in first.items():
            after[name] += of.values()
    medians = {name: float(np.median(values)) for name, values in after.items()}
    return {name: value if np.isfinite(value) else None for name, value in medians.items()}


def markdown(record: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md."""
    lines = [
        "| tags | confidences | truth | false marks, highest look | one-look marks | falsely marked for good |",
        "|---" * 6 + "|",
    ]
    for one in record["sound"]:
        one_look = f"{one['one_look_share']:.1%}" if "one_look_share" in one else ""
        found = f", {one['found']:.0%} found" if "found" in one else ""
        lines.append(
            f"| {one['tags']}{found} | {one['confidences']} | {one['truth']} | {one['false_share']:.1%} | {one_look}"
            f" | {one['ever_marked']:.1%} |"
        )
    lines += ["", "| error of .1 | confidences | labels: marked | marked for good | alone |", "|---" * 5 + "|"]
    for one in record["power"]:
        numbers = (_labels(one[name]) for name in ("marked", "for_good", "alone"))
        lines.append(f"| {one['error']} | {one['confidences']} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def _labels(median: float | None) -> str:
    return f"more than {POWER_LABELS:,}" if median is None else f"{median:,.0f}"


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--streams", type=whole_from(10), default=100, help="of each setting with 60 tags")
    options = parser.parse_args()
    run, sound, of_power = Run(), list[dict[str, Any]](), list[dict[str, Any]]()
    streams: int = options.streams
    for shape, name in SHAPES.items():
        rows = pool(shape)
        order = np.argsort(rows.confidence_M)
        chances = {key: chance_M[order] for key, chance_M in rows.chances.items()}
        rows = Pool(shape, rows.confidence_M[order], rows.cell_M[order], chances)
        for truth in TRUTHS:
            kind = {"confidences": name, "truth": truth}
            with_p = streams if truth == "calibrated" else 0
            sound.append({"tags": "60 overlapping", **kind, **overlapping(rows, truth, streams, with_p)})
            run.say(sound[-1])
            sound.append({"tags": "1,000", **kind, **many(rows, truth, streams // 5, 0)})
            run.say(sound[-1])
            sound.append({"tags": "1,000, 20 off by .1", **kind, **many(rows, truth, streams // 5, OFF_TAGS)})
            run.say(sound[-1])
        for error in ("everywhere", "local"):
            of_power.append({"error": error, "confidences": name, **power(rows, error, max(streams // 20, 2))})
            run.say(of_power[-1])
    summary = {
        "most_false": max(one["false_share"] for one in sound),
        "most_ever": max(one["ever_marked"] for one in sound),
        "most_one_look": max(one.get("one_look_share", 0.0) for one in sound),
        "fewest_labels": min(one["marked"] or np.inf for one in of_power if one["error"] == "everywhere"),
        "most_labels": max(one["marked"] or np.inf for one in of_power if one["error"] == "everywhere"),
    }
    run.finish(options.out, markdown, summary=summary, sound=sound, power=of_power)


if __name__ == "__main__":
    main()
