"""Reports by tag: how often sound tags are marked, and how many miscalibrated tags are found.

    python -m benchmarks.evidence.slices        # about five minutes on one core

A table has 1,000 calibrated tags with 10 to 1,000 labels each, as many with 10 to 100 as with 100 to 1,000, of shapes
A, B and C in turn (benchmarks/shapes.py). Marked are the tags that Benjamini and Hochberg's procedure selects at a
false discovery rate of 5% (`trueodds.reports.slices_of`). For comparison: tags whose ECE exceeds its own noise floor,
and tags whose own p-value is below 5%. Further tables have 100 tags with 500 labels each, five of which are right .1
less often than predicted.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.streams import Pool, pool
from trueodds.metrics import CalibrationSums, ece_test
from trueodds.reports.slices import FALSE_DISCOVERY_RATE, benjamini_hochberg

SHAPES = "ABC"
TAGS, FEWEST, MOST = 1_000, 10, 1_000
FEW_TAGS, OFF_TAGS, OFF, LABELS = 100, 5, 0.1, 500
RESULT = RESULTS / "slices.json"

Numbers = dict[str, Any]


def p_value(rows: Pool, labels: int, off: float, rng: np.random.Generator) -> float:
    """Return the p-value of one tag that is right `off` less often than predicted."""
    confidence_N = rows.confidence_M[rng.integers(0, len(rows.confidence_M), labels)]
    return ece_test(CalibrationSums.from_top(confidence_N, rng.random(labels) < confidence_N - off)).p_value


def sound(pools: list[Pool], tables: int, rng: np.random.Generator) -> Numbers:
    """Return, for tables of calibrated tags, how many have a marked tag and how many tags are marked."""
    any_marked = marked = alone = 0
    for table in range(tables):
        labels = np.exp(rng.uniform(np.log(FEWEST), np.log(MOST), TAGS)).astype(int)
        p_values = [p_value(pools[k % len(pools)], n, 0.0, rng) for k, n in enumerate(labels.tolist())]
        chosen = sum(benjamini_hochberg(p_values, FALSE_DISCOVERY_RATE))
        any_marked, marked = any_marked + (chosen > 0), marked + chosen
        alone += sum(p <= FALSE_DISCOVERY_RATE for p in p_values)
        print(table + 1, any_marked, marked, alone, file=sys.stderr, flush=True)
    return {
        "tables": tables,
        "tags": TAGS,
        "tables_with_a_mark": any_marked / tables,
        "marked_per_table": marked / tables,
        "p_below_rate_per_table": alone / tables,
    }


def off(pools: list[Pool], tables: int, rng: np.random.Generator) -> Numbers:
    """Return, for tables with miscalibrated tags, how many of these are marked, and how many marked ones are sound."""
    found, false_shares = 0, []
    for _ in range(tables):
        given = [OFF if k < OFF_TAGS else 0.0 for k in range(FEW_TAGS)]
        p_values = [p_value(pools[k % len(pools)], LABELS, gap, rng) for k, gap in enumerate(given)]
        chosen = benjamini_hochberg(p_values, FALSE_DISCOVERY_RATE)
        found += sum(chosen[:OFF_TAGS])
        false_shares.append(sum(chosen[OFF_TAGS:]) / max(sum(chosen), 1))
    return {
        "tables": tables,
        "tags": FEW_TAGS,
        "off": OFF_TAGS,
        "found": found / (tables * OFF_TAGS),
        "false_discovery_rate": float(np.mean(false_shares)),
    }


def markdown(found: Numbers) -> str:
    """Return the table of docs/explanation/results.md."""
    sound, off = found["sound"], found["off"]
    alone, marked = sound["p_below_rate_per_table"], sound["tables_with_a_mark"]
    lines = [
        "| tables | what | each tag by itself | marked together |",
        "|---" * 4 + "|",
        f"| {sound['tables']} of {sound['tags']:,} calibrated tags | tags marked in a table | {alone:.1f}"
        f" | {sound['marked_per_table']:.2f} |",
        f"| | tables with any mark | | {marked:.1%} |",
        f"| {off['tables']} of {off['tags']} tags, {off['off']} off by .1 | share of miscalibrated tags that is marked"
        f" | | {off['found']:.1%} |",
        f"| | share of marked tags that is calibrated | | {off['false_discovery_rate']:.1%} |",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--tables", type=whole_from(1), default=200, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run, rng = Run(), np.random.default_rng(options.seed)
    pools = [pool(shape) for shape in SHAPES]
    run.finish(options.out, markdown, sound=sound(pools, options.tables, rng), off=off(pools, options.tables, rng))


if __name__ == "__main__":
    main()
