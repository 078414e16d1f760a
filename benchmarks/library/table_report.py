"""Processor time and memory of the command `trueodds report` on a million answers of ten classes.

    python -m benchmarks.library.table_report                 # two minutes
    python -m benchmarks.library.table_report --write         # the same, to benchmarks/results/table_report.json

The same probabilities (float64) and labels are in an .npz, a Parquet and a CSV file. Each turn runs the command on each
of them, and a script that loads the .npz and computes log loss, Brier score and reliability curve with scikit-learn.
Each is a new process, measured from start to end. Results are medians of the turns; memory is the largest resident set.
"""

from __future__ import annotations

import multiprocessing
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import RESULTS, conclude, options_parser
from trueodds.metrics import softmax

ROOT = Path(__file__).resolve().parents[2]
RESULT = RESULTS / "table_report.json"
CLASSES = 10
FILES = ("npz", "parquet", "csv")
AIMS = {"seconds": 3.0, "bytes": 1e9}
"""Targets for npz and Parquet."""
PEER = """
import sys, numpy as np
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss
file = np.load(sys.argv[1])
p, y = file["probabilities"], file["labels"]
log_loss(y, p), brier_score_loss(y, p)
calibration_curve(p.argmax(axis=1) == y, p.max(axis=1), n_bins=15)
"""


def write_files(folder: Path, rows: int) -> None:
    """Write the same answers in each format, over-confident by a temperature of 1.3."""
    import pyarrow
    from pyarrow import csv, parquet

    rng = np.random.default_rng(0)
    z_NC = rng.normal(0, 3, (rows, CLASSES))
    p_NC = softmax(z_NC)
    y_N = (softmax(z_NC / 1.3).cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=CLASSES - 1)
    np.savez(folder / "answers.npz", probabilities=p_NC, labels=y_N)
    names = np.array([f"class{k}" for k in range(CLASSES)])
    table = pyarrow.table({**{name: p_NC[:, k] for k, name in enumerate(names.tolist())}, "label": names[y_N]})
    parquet.write_table(table, folder / "answers.parquet")
    csv.write_csv(table, folder / "answers.csv")


def measure(command: Sequence[str]) -> dict[str, float]:
    """Return processor seconds and peak resident bytes of a process, which must succeed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{shlex.join(command)} exited with {process.returncode}")
    return {"seconds": usage.ru_utime + usage.ru_stime, "bytes": 1024.0 * usage.ru_maxrss}


def turns(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Return medians by file, and of scikit-learn."""
    python, report = sys.executable, "from trueodds.__main__ import main; raise SystemExit(main())"
    commands = {name: [python, "-c", report, "report", str(folder / f"answers.{name}")] for name in FILES}
    commands["scikit-learn"] = [python, "-c", PEER, str(folder / "answers.npz")]
    usages: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            usages[name].append(measure(command))
    return {
        name: {key: statistics.median(usage[key] for usage in each) for key in AIMS} for name, each in usages.items()
    }


def markdown(record: dict[str, Any]) -> str:
    """Return the record as a table of docs/explanation/results.md."""
    setting, usages = record["setting"], record["usages"]
    peer = usages["scikit-learn"]["seconds"]
    rows = [
        f"| {'scikit-learn, npz' if name == 'scikit-learn' else name} | {usage['seconds']:.1f} s"
        f" | {usage['seconds'] / peer:.2f} | {usage['bytes'] / 1e9:.2f} GB |"
        for name, usage in usages.items()
    ]
    return "\n".join(
        [
            f"{setting['rows']:,} answers of {CLASSES} classes, medians of {setting['rounds']} turns; the aim for npz"
            f" and Parquet: {AIMS['seconds']:g} s and {AIMS['bytes'] / 1e9:g} GB.",
            "",
            "| | processor time | of scikit-learn's | memory |",
            "|---|---:|---:|---:|",
            *rows,
        ]
    )


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        # Apart: a process's largest resident set begins with that of the one that started it.
        writer = multiprocessing.get_context("spawn").Process(target=write_files, args=(Path(temporary), options.rows))
        writer.start()
        writer.join()
        usages = turns(Path(temporary), options.rounds)
    conclude(
        RESULT if options.write else None,
        markdown,
        packages=("numpy", "scikit-learn"),
        setting={"rows": options.rows, "rounds": options.rounds},
        usages=usages,
    )


if __name__ == "__main__":
    main()
