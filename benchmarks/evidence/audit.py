"""Audits: how often a table without a bad group gets one reported, and how many rows it takes to find a real one.

    python -m benchmarks.evidence.audit        # about three minutes on one core

Confidences are those of shapes B (sharp) and C (dull) of benchmarks/shapes.py. Each row has the confidence itself, two
numbers, one of them with gaps, and two texts with 4 and 40 values as features; or 30 more numbers (`wide`). Where no
group is off, answers are right as often as they say (`calibrated`), or .02 less often (`edge`: the limit of the null).
A real group is right .1 less often than it says: one text (`text`, 25% of the rows), or the upper 30% of a number
within two of the four texts (`two conditions`, 15%). mcgrad, a peer, is compared only if it is installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.streams import Pool, pool
from trueodds.evaluation.worst_group import worst_group

SHAPES = {"B": "sharp", "C": "dull"}
TRUTHS = {"calibrated": 0.0, "edge": 0.02}
POWER_ROWS, WIDE, OFF, SEED = (1_000, 3_000, 10_000), 30, 0.1, 3
SETTINGS = (
    *((300, wide, swap) for wide in (False, True) for swap in (False, True)),
    (3_000, False, False),
)
"""Rows, whether there are 30 more features, and whether the halves swap roles."""
RESULT = RESULTS / "audit.json"

Rows = tuple[npt.NDArray[np.float64], dict[str, Any]]


def draw(rows: Pool, n: int, wide: bool, rng: np.random.Generator) -> Rows:
    """Draw confidences and features."""
    confidence_N = rows.confidence_M[rng.integers(0, len(rows.confidence_M), n)]
    features: dict[str, Any] = {
        "confidence": confidence_N,
        "number": rng.normal(size=n),
        "gappy": np.where(rng.random(n) < 0.2, np.nan, rng.exponential(size=n)),
        "site": rng.choice(["north", "south", "east", "west"], n),
        "camera": np.array([f"camera {k}" for k in rng.integers(0, 40, n)]),
    }
    if wide:
        features |= {f"extra {k}": rng.normal(size=n) for k in range(WIDE)}
    return confidence_N, features


def sound(rows: Pool, truth: str, n: int, wide: bool, swap: bool, tables: int) -> float:
    """Return the share of tables without a bad group in which one is reported."""
    rng = np.random.default_rng([SEED, n, int(wide), int(swap), *f"{rows.shape}{truth}".encode()])
    found = 0
    for table in range(tables):
        confidence_N, features = draw(rows, n, wide, rng)
        right_N = rng.random(n) < confidence_N - TRUTHS[truth]
        found += worst_group(confidence_N, right_N, features, swap=swap, seed=table).is_found
    return found / tables


def power(rows: Pool, group: str, n: int, tables: int) -> float:
    """Return the share of tables in which a group is found that is off by .1 among the real group's rows."""
    rng = np.random.default_rng([SEED, n, *f"{rows.shape}{group}".encode()])
    found = 0
    for table in range(tables):
        confidence_N, features = draw(rows, n, False, rng)
        if group == "text":
            off_N = features["site"] == "north"
        else:
            off_N = np.isin(features["site"], ["north", "south"]) & (features["number"] > 0.52)
        right_N = rng.random(n) < confidence_N - OFF * off_N
        found += worst_group(confidence_N, right_N, features, seed=table).is_found
    return found / tables


def markdown(record: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md."""
    lines = ["| confidences | truth | tables with a false find: highest of five settings |", "|---" * 3 + "|"]
    for name in SHAPES.values():
        for truth in TRUTHS:
            shares = [one["found"] for one in record["sound"] if (one["confidences"], one["truth"]) == (name, truth)]
            lines.append(f"| {name} | {truth} | {max(shares):.1%} |")
    rows = record["power_rows"]
    lines += ["", f"| group | confidences | {' | '.join(f'found in {n:,} rows' for n in rows)} |"]
    lines.append("|---" * (2 + len(rows)) + "|")
    for one in record["power"]:
        found = " | ".join(f"{share:.0%}" for share in one["found"])
        lines.append(f"| {one['group']} | {one['confidences']} | {found} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--tables", type=whole_from(10), default=60, help="of each setting")
    options = parser.parse_args()
    run, of_sound, of_power = Run(), list[dict[str, Any]](), list[dict[str, Any]]()
    if find_spec("mcgrad") is None:
        run.say("mcgrad is not installed, so it is not compared")
    for shape, name in SHAPES.items():
        rows = pool(shape)
        for truth in TRUTHS:
            for n, wide, swap in SETTINGS:
                share = sound(rows, truth, n, wide, swap, options.tables)
                setting = {"confidences": name, "truth": truth, "rows": n, "wide": wide, "swap": swap}
                of_sound.append({**setting, "found": share})
                run.say(of_sound[-1])
        for group in ("text", "two conditions"):
            found_shares = [power(rows, group, n, options.tables // 3) for n in POWER_ROWS]
            of_power.append({"group": group, "confidences": name, "found": found_shares})
            run.say(of_power[-1])
    summary = {
        "most_false": max(one["found"] for one in of_sound),
        "settings": len(of_sound),
        "tables": options.tables,
        "least_found": min(one["found"][-1] for one in of_power),
        "least_found_of_few": min(one["found"][0] for one in of_power),
    }
    run.finish(options.out, markdown, summary=summary, power_rows=POWER_ROWS, sound=of_sound, power=of_power)


if __name__ == "__main__":
    main()
