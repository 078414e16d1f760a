"""Growth of the sums by DuckDB with classes, columns of groups and files, and other programs on the same table.

A million answers with label, time (30 days) and random probabilities. One size changes at a time; the others stay at
ten classes, one column of groups (20 values) and one file. Sums and a plain GROUP BY of the same columns run in turns,
as in `benchmarks.scaling.warehouse_sums`. The other programs read a table of ten classes and one column of groups, each
in a process of its own. Evidently reads 100,000 answers, since a million take it minutes. The packages are in the
Python of --peers:

    python -m venv .peers && .peers/bin/pip install pandas pyarrow torchmetrics evidently
    python -m benchmarks.scaling.warehouse_growth --peers .peers/bin/python    # some ten minutes

Without --peers, the result has no other programs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, circumstances, options_parser, whole_from, write
from benchmarks.scaling import table_peers
from benchmarks.scaling.warehouse_sums import DISK, TURNS, check_disk, compare, make_classes
from trueodds.reports.warehouse.parquet_source import connect

GROUPS = ("tag", "version", "confidence_source")
COMPUTED = {
    "trueodds": "a report with intervals, by DuckDB",
    "pandas": "sums by class, tag and day, written by hand",
    "torchmetrics": "accuracy and ECE",
    "evidently": "its preset for classification",
}
"""Program -> what it computes, for people."""
FEWER = {"evidently": 10}
"""Program -> the part of the rows that it reads, as a divisor."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Sizes of a table, apart from its rows."""

    classes: int = 10
    groups: int = 1
    files: int = 1

    def make(self, folder: Path, rows: int) -> str:
        """Write the table, and return the pattern of its files."""
        connection = connect()
        for k in range(self.files):
            path = folder / f"answers-{k}.parquet"
            share = rows // self.files + (k < rows % self.files)
            seed = (k + 1) / (self.files + 1)
            make_classes(path, share, self.class_names, GROUPS[: self.groups], seed, connection)
        connection.disconnect()
        return str(folder / "*.parquet")

    @property
    def class_names(self) -> list[str]:
        """Names of the columns of classes."""
        return [f"c{k}" for k in range(self.classes)]

    def plain(self, pattern: str) -> str:
        """Return a GROUP BY of the same columns."""
        keys = ", ".join(["label", *GROUPS[: self.groups], "time // 86400"])
        sums = ", ".join(f"sum({name})" for name in self.class_names)
        return f"SELECT {keys}, count(*), {sums} FROM read_parquet('{pattern}') GROUP BY ALL"


SIZES = (
    Size(),
    Size(classes=2),
    Size(classes=100),
    Size(groups=0),
    Size(groups=3),
    Size(files=10),
    Size(files=100),
)


def measure(size: Size, rows: int, turns: int) -> dict[str, Any]:
    """Return the times and the memory of one size."""
    with tempfile.TemporaryDirectory(dir=DISK if DISK.is_dir() else None) as name:
        folder = Path(name)
        print(check_disk(folder, [(9 * size.classes + 20) * rows], stay=False), file=sys.stderr, flush=True)
        pattern = size.make(folder, rows)
        size_bytes = sum(path.stat().st_size for path in folder.iterdir())
        sizes = asdict(size)
        found = {"group_columns": sizes.pop("groups"), **sizes, "rows": rows, "file_bytes": size_bytes}
        return found | compare(pattern, size.plain(pattern), rows, "day", turns)


def run(program: str, rows: int, peers: Path) -> dict[str, Any]:
    """Run one program on a table, and return its version, its processor seconds, its memory, and what it found."""
    python = Path(sys.executable) if program == "trueodds" else peers
    rows //= FEWER.get(program, 1)
    with tempfile.TemporaryDirectory(dir=DISK if DISK.is_dir() else None) as folder:
        path = Size().make(Path(folder), rows).replace("*", "answers-0")
        command = [str(python), "-m", "benchmarks.scaling.table_peers", program, path]
        environment = {**os.environ, "DO_NOT_TRACK": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**result, "rows": rows}


def markdown(result: dict[str, Any]) -> str:
    """Return a row for each size, and a row for each program."""
    head = [
        "| classes | columns of groups | files | size | sums | plain query | ratio | clock: sums | peak memory |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    rows = [
        f"| {case['classes']} | {case['group_columns']} | {case['files']} | {case['file_bytes'] / 1e6:,.0f} MB"
        f" | {case['sums']['processor_s']:.2f} s | {case['plain']['processor_s']:.2f} s"
        f" | {case['ratio_of_processor_seconds']:.1f} | {case['sums']['clock_s']:.1f} s"
        f" | {case['report']['peak_mib']} MiB |"
        for case in result["cases"]
    ]
    if not result["programs"]:
        return "\n".join([*head, *rows])
    programs = [
        f"| {case['program']} {case['version']} | {COMPUTED[case['program']]} | {case['rows']:,}"
        f" | {case['processor_s']:.1f} s | {case['peak_mib']:,} MiB |"
        for case in result["programs"]
    ]
    others = ["", "| program | result | rows | processor seconds | peak memory |", "|---|---|---:|---:|---:|"]
    return "\n".join([*head, *rows, *others, *programs])


def main() -> None:
    """Measure each size, then the other programs, and write the result."""
    parser = options_parser(__doc__, RESULTS / "warehouse_growth.json")
    parser.add_argument("--rows", type=whole_from(1), default=1_000_000, help="rows (default: %(default)s)")
    parser.add_argument(
        "--turns", type=whole_from(1), default=TURNS, help="times that each runs (default: %(default)s)"
    )
    parser.add_argument("--peers", type=Path, help="Python that has the other programs")
    arguments = parser.parse_args()
    at_start = circumstances("duckdb", "ibis-framework", "pyarrow")
    cases: list[dict[str, Any]] = []
    programs: list[dict[str, Any]] = []

    def keep(found: list[dict[str, Any]], new: dict[str, Any]) -> None:
        """Write what there is, since a long run may be cut off."""
        found.append({**new, "load": round(os.getloadavg()[0], 1)})
        print(json.dumps(found[-1]), flush=True)
        write(arguments.out, {**at_start, "cases": cases, "programs": programs})

    for size in SIZES:
        keep(cases, measure(size, arguments.rows, arguments.turns))
    for program in table_peers.PROGRAMS if arguments.peers else ():
        keep(programs, run(program, arguments.rows, arguments.peers))


if __name__ == "__main__":
    main()
