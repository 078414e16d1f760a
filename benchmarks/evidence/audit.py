"""Audits beside mcgrad: how often each reports a group of a sound table, and how many rows a real group takes.

    python -m benchmarks.evidence.audit        # about nine minutes on one core

Confidences are those of shapes B (sharp), C (dull) and D (rare errors) of benchmarks/shapes.py. Each row has the
confidence itself, two numbers, one of them with gaps, and two texts with 4 and 40 values as features; or 30 more
numbers (`wide`). Where no group is off, answers are right as often as they say (`calibrated`), or .02 less often
(`edge`: within the tolerance of the audit). `looks`: the table grows in five steps of equal size, and each step is
audited. A table counts as a false find if any of the five audits finds a group.

Real groups are right less often than they say: one text (`text`, 25% of the rows, by .1), the upper 30% of a number
within two of the four texts (`two conditions`, 15%, by .1), or rows of one text without the number that has gaps
(`small`, 5%, by .2). Overlap: rows in both the named and the real group, divided by rows in either.

mcgrad is compared if it is installed. Its `MulticalibrationError` takes crossings of up to three features, here with 4
values each, because its default of 3 merges texts. It finds miscalibration if `mce_pvalue` is below 5%, as its
documentation says; `corrected` multiplies this p by the number of groups, which mcgrad leaves out on purpose. Its null
is perfect calibration, so the edge violates it. It does not name a group: the overlap is that of the group with the
largest sigma, read from a private attribute.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.markdown import table
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.streams import Pool, pool
from trueodds.evaluation.worst_group import Mask, worst_group

SHAPES = {"B": "sharp", "C": "dull", "D": "rare errors"}
TRUTHS = {"calibrated": 0.0, "edge": 0.02}
POWER_ROWS, WIDE, LEVEL, LOOKS, SEED = (1_000, 3_000, 10_000), 30, 0.05, 5, 3
OFF = {"text": 0.1, "two conditions": 0.1, "small": 0.2}
"""Gap of each real group: mean confidence minus accuracy."""
VALUES = 4
"""Values per feature of mcgrad: `max_values_per_segment_feature`."""
SETTINGS = (
    *((300, wide, swap, 1) for wide in (False, True) for swap in (False, True)),
    (3_000, False, False, 1),
    (3_000, True, False, 1),
    (3_000, False, False, LOOKS),
)
"""Rows, whether there are 30 more features, whether the halves swap roles, and the number of looks."""
RESULT = RESULTS / "audit.json"

Array = npt.NDArray[np.float64]
Features = dict[str, Any]


class Found(NamedTuple):
    """Finds in one table, by method, with the members of the worst group and the seconds of processor time."""

    found: dict[str, bool]
    members: dict[str, Mask]
    seconds: dict[str, float]


def draw(rows: Pool, n: int, wide: bool, rng: np.random.Generator) -> tuple[Array, Features]:
    """Draw confidences and features."""
    confidence_N = rows.confidence_M[rng.integers(0, len(rows.confidence_M), n)]
    features: Features = {
        "confidence": confidence_N,
        "number": rng.normal(size=n),
        "gappy": np.where(rng.random(n) < 0.2, np.nan, rng.exponential(size=n)),
        "site": rng.choice(["north", "south", "east", "west"], n),
        "camera": np.array([f"camera {k}" for k in rng.integers(0, 40, n)]),
    }
    if wide:
        features |= {f"extra {k}": rng.normal(size=n) for k in range(WIDE)}
    return confidence_N, features


def real_group(group: str, features: Features) -> Mask:
    """Return which rows are off."""
    if group == "text":
        off_N = features["site"] == "north"
    elif group == "two conditions":
        off_N = np.isin(features["site"], ["north", "south"]) & (features["number"] > 0.52)
    else:
        off_N = (features["site"] == "north") & np.isnan(features["gappy"])
    found: Mask = off_N
    return found


def audit(confidence_N: Array, right_N: Mask, features: Features, swap: bool, seed: int, peer: bool) -> Found:
    """Audit one table by each method."""
    started = time.process_time()
    ours = worst_group(confidence_N, right_N, features, alpha=LEVEL, swap=swap, seed=seed)
    seconds = {"trueodds": time.process_time() - started}
    found, members = {"trueodds": ours.is_found}, {"trueodds": ours.groups[0].members(features)}
    if peer:
        started = time.process_time()
        p, groups, worst_N = mcgrad(confidence_N, right_N, features)
        seconds["mcgrad"] = time.process_time() - started
        found |= {"mcgrad": p < LEVEL, "mcgrad, corrected": p * groups < LEVEL}
        members["mcgrad"] = worst_N
    return Found(found, members, seconds)


def mcgrad(confidence_N: Array, right_N: Mask, features: Features) -> tuple[float, int, Mask]:
    """Return mcgrad's p, the number of its groups, and the members of the one with the largest sigma."""
    import pandas
    from mcgrad.metrics import MulticalibrationError  # type: ignore[import-not-found]

    frame = pandas.DataFrame({**features, "score": confidence_N, "right": right_N.astype(np.int64)})
    numbers = [name for name, values in features.items() if values.dtype.kind == "f"]
    error = MulticalibrationError(
        frame,
        "right",
        "score",
        categorical_segment_columns=[name for name in features if name not in numbers],
        numerical_segment_columns=numbers,
        max_values_per_segment_feature=VALUES,
        precision_dtype="float64",
    )
    p = float(error.mce_pvalue)
    masks_CSN, _ = error._segments
    worst_N = np.zeros(len(confidence_N), bool)
    place = int(np.argmax(error.segments_ecce_sigma))
    worst_N[error.df["index"].to_numpy()] = masks_CSN.reshape(-1, len(confidence_N))[place]
    return p, int(error.total_number_segments), worst_N


def sound(
    rows: Pool, truth: str, setting: tuple[int, bool, bool, int], tables: int, peer: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the share of tables without a bad group in which each method finds one, and its mean seconds a look."""
    n, wide, swap, looks = setting
    rng = np.random.default_rng([SEED, n, int(wide), int(swap), *f"{rows.shape}{truth}".encode()])
    finds, seconds = list[dict[str, bool]](), list[dict[str, float]]()
    for number in range(tables):
        confidence_N, features = draw(rows, n, wide, rng)
        right_N = rng.random(n) < confidence_N - TRUTHS[truth]
        seen = list[dict[str, bool]]()
        for look in range(1, looks + 1):
            until = n * look // looks
            part = {name: values[:until] for name, values in features.items()}
            with_peer = peer and not swap  # mcgrad has no halves to swap
            one = audit(confidence_N[:until], right_N[:until], part, swap, number * looks + look, with_peer)
            seen.append(one.found)
            seconds.append(one.seconds)
        finds.append({method: any(look[method] for look in seen) for method in seen[0]})
    return _means(finds), _means(seconds)


def power(rows: Pool, group: str, n: int, tables: int, peer: bool) -> tuple[dict[str, float], dict[str, float]]:
    """Return the share of tables with a real group in which each method finds one, and the mean overlap."""
    rng = np.random.default_rng([SEED, n, *f"{rows.shape}{group}".encode()])
    finds, overlaps = list[dict[str, bool]](), list[dict[str, float]]()
    for number in range(tables):
        confidence_N, features = draw(rows, n, False, rng)
        off_N = real_group(group, features)
        right_N = rng.random(n) < confidence_N - OFF[group] * off_N
        one = audit(confidence_N, right_N, features, False, number, peer)
        finds.append(one.found)
        overlaps.append({name: float((of & off_N).sum() / (of | off_N).sum()) for name, of in one.members.items()})
    return _means(finds), _means(overlaps)


def _means(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def markdown(record: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md."""
    methods = list(record["power"][0]["found"])
    of_sound = []
    for name in SHAPES.values():
        for truth in TRUTHS:
            for looks in (1, LOOKS):
                place = (name, truth, looks)
                shares = [
                    one["found"] for one in record["sound"] if (one["confidences"], one["truth"], one["looks"]) == place
                ]
                most = [f"{max(found[method] for found in shares if method in found):.1%}" for method in methods]
                of_sound.append((name, truth, str(looks), *most))
    head = ("confidences", "truth", "looks", *(f"false finds of {method}" for method in methods))
    of_power = []
    for one in record["power"]:
        found = [f"{one['found'][method]:.0%}" for method in methods]
        overlap = [f"{one['overlap'][method]:.2f}" for method in one["overlap"]]
        of_power.append((one["group"], one["confidences"], f"{one['rows']:,}", *found, *overlap))
    overlaps = [f"overlap of {method}" for method in record["power"][0]["overlap"]]
    finds = [f"found by {method}" for method in methods]
    of_time = [
        (
            f"{one['rows']:,}",
            str(5 + WIDE * one["wide"]),
            *(f"{value:.0f}" for value in one["milliseconds"].values()),
        )
        for one in record["times"]
    ]
    names = [f"{method}, ms" for method in record["times"][0]["milliseconds"]]
    return "\n\n".join(
        [
            table(head, of_sound),
            table(("group", "confidences", "rows", *finds, *overlaps), of_power),
            table(("rows", "features", *names), of_time),
        ]
    )


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--tables", type=whole_from(10), default=100, help="of each setting (default: %(default)s)")
    options = parser.parse_args()
    run, of_sound, of_power = Run(), list[dict[str, Any]](), list[dict[str, Any]]()
    peer = find_spec("mcgrad") is not None
    if not peer:
        run.say("mcgrad is not installed, so it is not compared")
    sound(pool("B"), "calibrated", SETTINGS[0], 1, peer)  # the first call also imports packages
    for shape, name in SHAPES.items():
        rows = pool(shape)
        for truth in TRUTHS:
            for setting in SETTINGS:
                shares, seconds = sound(rows, truth, setting, options.tables, peer)
                named = dict(zip(("rows", "wide", "swap", "looks"), setting, strict=True))
                of_sound.append({"confidences": name, "truth": truth, **named, "found": shares, "seconds": seconds})
                run.say(of_sound[-1])
        for group in OFF:
            for n in POWER_ROWS:
                shares, overlap = power(rows, group, n, options.tables // 4, peer)
                of_power.append({"group": group, "confidences": name, "rows": n, "found": shares, "overlap": overlap})
                run.say(of_power[-1])
    times = []
    for n, wide, swap, looks in SETTINGS:
        if not swap and looks == 1:
            same = [
                one["seconds"]
                for one in of_sound
                if (one["rows"], one["wide"], one["looks"]) == (n, wide, 1) and not one["swap"]
            ]
            milliseconds = {name: 1000 * seconds for name, seconds in _means(same).items()}
            times.append({"rows": n, "wide": wide, "milliseconds": milliseconds})
    one_look = [one for one in of_sound if one["looks"] == 1]
    few, many = ([one for one in of_power if one["rows"] == n] for n in (POWER_ROWS[0], POWER_ROWS[-1]))
    peers = {}
    if peer:
        calibrated = [one for one in one_look if one["truth"] == "calibrated" and not one["swap"]]
        peers = {
            "mcgrad_least_false": min(one["found"]["mcgrad"] for one in calibrated),
            "mcgrad_most_false": max(one["found"]["mcgrad"] for one in calibrated),
            "mcgrad_most_false_corrected": max(one["found"]["mcgrad, corrected"] for one in calibrated),
            "mcgrad_least_found": min(one["found"]["mcgrad"] for one in many),
            "mcgrad_least_found_corrected": min(one["found"]["mcgrad, corrected"] for one in many),
        }
    summary = {
        "most_false": max(one["found"]["trueodds"] for one in one_look),
        "most_false_of_looks": max(one["found"]["trueodds"] for one in of_sound),
        "settings": len(one_look),
        "tables": options.tables,
        "least_found": min(one["found"]["trueodds"] for one in many),
        "least_found_of_few": min(one["found"]["trueodds"] for one in few),
        **peers,
    }
    packages = ("numpy", "scipy", "scikit-learn", "mcgrad")
    run.finish(options.out, markdown, packages=packages, summary=summary, sound=of_sound, power=of_power, times=times)


if __name__ == "__main__":
    main()
