"""What `calibrators.select` costs on few rows, and whether it costs anything on many: test NLL by three ways to choose.

    python -m benchmarks.selection    # about twenty minutes on one core; --worlds 0 1: some, the others' results stay

Each draw: N validation rows, a choice among the default candidates, and its NLL on 10,000 test rows. The ways:

- plain: the papers' formulas (no shrinkage of temperatures, ensembles and bias corrections), least cross-validated NLL.
- least: the default fits, least cross-validated NLL.
- select: `calibrators.select`, which also passes over what these rows cannot bear.

Of 50 rows the NLL is compared with that of no calibration, of 1,000 rows with that of the plain way.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from benchmarks.interval_coverage import processor
from trueodds import calibrators
from trueodds.calibrators import Calibrator
from trueodds.calibrators.held_out import calibrated_nll
from trueodds.calibrators.selection import CANDIDATES, Selection

Rows = tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]
Draw = Callable[[np.random.Generator, int], Rows]
RESULT = Path(__file__).parent / "results" / "selection.json"
TEST_ROWS = 10_000
FEW, MANY = 50, 1000
ALLOWED = 0.05
"""Nats above no calibration that a choice on few rows may cost."""
PLAIN: list[tuple[str, dict[str, float]]] = [
    ("identity", {}),
    ("temperature", {"shrinkage": 0.0}),
    ("ensemble_temperature", {"shrinkage": 0.0}),
    ("bias_corrected_temperature", {"shrinkage": 0.0, "intercept": 0.0}),
    ("structured_vector", {"shrinkage": 0.0}),
    ("structured_matrix", {"shrinkage": 0.0}),
]


def even(classes: int, spread: float, temperature: float, bias: float = 0.0) -> Draw:
    """Logits N(0, spread) in every class, labels from softmax(z / temperature + b), b evenly from -bias to bias."""

    def draw(rng: np.random.Generator, rows: int) -> Rows:
        z_NC = rng.normal(0, spread, (rows, classes))
        truth_NC = z_NC / temperature + np.linspace(-bias, bias, classes)
        return z_NC, (truth_NC + rng.gumbel(size=z_NC.shape)).argmax(axis=1)

    return draw


def alike(classes: int) -> Draw:
    """Every row's confidence about .96: labels from softmax(z)."""

    def draw(rng: np.random.Generator, rows: int) -> Rows:
        z_NC = rng.normal(0, 0.3, (rows, classes))
        z_NC[np.arange(rows), rng.integers(0, classes, rows)] += np.log(classes - 1) + 3.18
        return z_NC, (z_NC + rng.gumbel(size=z_NC.shape)).argmax(axis=1)

    return draw


WORLDS: dict[str, Draw] = {
    "2 classes, calibrated": even(2, 10.0, 1.0),
    "2 classes, logits 1.5 times too large": even(2, 15.0, 1.5),
    "10 classes, calibrated": even(10, 27.0, 1.0),
    "10 classes, logits 1.5 times too large": even(10, 40.5, 1.5),
    "10 classes, 1.5 times too large, offsets to 1.5": even(10, 40.5, 1.5, 1.5),
    "10 classes, every confidence .96": alike(10),
}
"""All of accuracy about .96."""


def measured(draw: Draw, rows: int, draws: int) -> dict[str, Any]:
    """Test NLL of each way, draw by draw, above what it is compared with."""
    test = draw(np.random.default_rng(1), TEST_ROWS)
    identity = float(calibrated_nll(calibrators.Identity(), *test).mean())
    found: dict[str, list[float]] = {"plain": [], "least": [], "select": []}
    passed_over = 0
    for seed in range(draws):
        data = draw(np.random.default_rng([rows, seed]), rows)
        plain, ours = calibrators.select(*data, candidates=PLAIN), calibrators.select(*data, candidates=CANDIDATES)
        passed_over += any(line.passed_over is not None for line in ours.table)
        chosen = {"plain": least(plain, data), "least": least(ours, data), "select": ours.calibrator}
        for way, calibrator in chosen.items():
            found[way].append(float(calibrated_nll(calibrator, *test).mean()))
    base_N = np.array(found["plain"]) if rows == MANY else np.full(draws, identity)
    accuracy = float((test[0].argmax(axis=1) == test[1]).mean())
    result: dict[str, Any] = {
        "rows": rows,
        "draws": draws,
        "accuracy": accuracy,
        "identity": identity,
        "passed_over": passed_over,
    }
    for way, nll in found.items():
        above_N = np.array(nll) - base_N
        result[way] = {
            "mean": float(above_N.mean()),
            "standard_error": float(above_N.std(ddof=1) / np.sqrt(draws)),
            "largest": float(above_N.max()),
            "above_allowed": int((above_N > ALLOWED).sum()),
        }
    return result


def least(selection: Selection, data: Rows) -> Calibrator:
    """The candidate of least cross-validated NLL, whatever it was passed over for."""
    fitted = [line for line in selection.table if line.nll is not None]
    best = min(fitted, key=lambda line: line.nll or 0.0)
    return calibrators.get(best.name).fit(*data, **best.options)


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/results.md."""
    lines = [
        f"| test NLL, accuracy .96 | {FEW} rows, plain formulas: draws above .05 nats, worst | `select` likewise |"
        f" draws | {MANY:,} rows: `select` minus plain |",
        "|---|---|---|---:|---:|",
    ]
    table = {(m["world"], m["rows"]): m for m in result["measurements"]}
    for world in (world for world in WORLDS if (world, FEW) in table):
        few, many = table[world, FEW], table[world, MANY]
        cells = [f"{few[way]['above_allowed']}, {few[way]['largest']:+.3f}" for way in ("plain", "select")]
        gap = many["select"]
        lines.append(
            f"| {world} | {' | '.join(cells)} | {few['draws']} | {gap['mean']:+.4f} +- {gap['standard_error']:.4f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=200, help=f"draws of {FEW} rows")
    parser.add_argument("--many", type=int, default=20, help=f"draws of {MANY:,} rows")
    worlds = list(WORLDS)
    parser.add_argument("--worlds", type=int, nargs="+", choices=range(len(worlds)), default=range(len(worlds)))
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    run = {"command": shlex.join(["python", "-m", "benchmarks.selection", *sys.argv[1:]]), "commit": commit}
    before = json.loads(options.out.read_text(encoding="utf-8"))["measurements"] if options.out.exists() else []
    fresh: dict[str, list[dict[str, Any]]] = {}
    for world in (worlds[i] for i in options.worlds):
        started = time.perf_counter()
        fresh[world] = [
            {"world": world, **measured(WORLDS[world], rows, draws), **run}
            for rows, draws in ((FEW, options.few), (MANY, options.many))
        ]
        print(f"{world}: {time.perf_counter() - started:.0f} s, {fresh[world]}", file=sys.stderr, flush=True)
        kept = [[m for m in before if m["world"] == one] for one in WORLDS]
        result = {
            "processor": processor(),
            "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
            "test_rows": TEST_ROWS,
            "measurements": [m for one, old in zip(WORLDS, kept, strict=True) for m in fresh.get(one, old)],
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(markdown(result))


if __name__ == "__main__":
    main()
