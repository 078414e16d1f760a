"""Processor time, memory and loss of structured matrix scaling, and the time of `select`, by the size of the data.

    python -m benchmarks.library.structured_time                                # about two minutes on one quiet core
    python -m benchmarks.library.structured_time --shapes 5000x100              # some data; the other rows stay
    python -m benchmarks.library.structured_time --base CHECKOUT                # beside the code of another commit
    python -m benchmarks.library.structured_time --records DIR                  # and real nets: an .npz each
    python -m benchmarks.library.structured_time --peer PYTHON                  # probmetrics under another Python

Rows: features of 64 dimensions times a vector for each class, plus noise, in float32. Labels are drawn from a truth
that adds a slope and an offset for each class and a matrix of rank 5 to them. Records: `predictions` (probabilities)
and `ground_truth` of a real net, all rows.

The file is written after each data set, and names the commit of each row.

Every fit runs in a process of its own on one thread. Times are processor seconds (user and system) of the whole fit.
The memory is the rise of the process's peak. Fits of the two checkouts take turns, and the table shows their medians.
The NLL is that of the fitted rows, and `loss` adds the penalty. `select` and probmetrics run on up to 10,000,000
logits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.library.calibrators import peak_mb
from benchmarks.record import RESULTS, Run, commit, options_parser, whole_from

RESULT = RESULTS / "structured_time.json"
SHAPES = ("5000x100", "50000x100", "50000x1000")
RANK, HIDDEN = 64, 5
MATRIX, SELECT = "structured_matrix", "select"
LARGEST = 10_000_000
"""Logits up to which `select` and probmetrics are measured, and fits take turns."""
BLOCK = 1000
Rows = tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.intp]]


def draw(rows: int, classes: int, seed: int = 0) -> Rows:
    """Draw logits of low rank plus noise, and labels from a truth that is another affine map of them."""
    rng = np.random.default_rng(seed)
    rank = min(classes, RANK)
    vectors_CR = rng.normal(size=(classes, rank)) / np.sqrt(rank)
    features_NR = 3 * vectors_CR[rng.integers(0, classes, rows)] * rng.gamma(4, 1, (rows, 1))
    features_NR += 1.6 * rng.normal(size=(rows, rank))
    slope_C, offset_C = np.exp(rng.normal(0, 0.15, classes)) / 1.6, rng.normal(0, 0.5, classes)
    out_CH, in_CH = 0.1125 * rng.normal(size=(classes, HIDDEN)), rng.normal(size=(classes, HIDDEN)) / np.sqrt(classes)
    logits_NC, labels_N = np.empty((rows, classes), np.float32), np.empty(rows, np.intp)
    for start in range(0, rows, BLOCK):
        block = slice(start, start + BLOCK)
        z_NC = 3 * features_NR[block] @ vectors_CR.T
        z_NC += rng.normal(0, 0.6, z_NC.shape)
        logits_NC[block] = z_NC
        z_NC -= z_NC.mean(axis=1, keepdims=True)
        truth_NC = z_NC * slope_C + (z_NC @ in_CH) @ out_CH.T + offset_C
        labels_N[block] = (truth_NC + rng.gumbel(size=z_NC.shape)).argmax(axis=1)
    labels_N[:classes] = np.arange(classes)  # every class occurs
    return logits_NC, labels_N


def recorded(path: Path) -> Rows:
    """Return the logits and labels of a record."""
    from trueodds import logits_of

    with np.load(path) as record:
        return np.asarray(logits_of(record["predictions"])), record["ground_truth"].ravel().astype(np.intp)


def fit_here(what: str, data: Rows) -> dict[str, Any]:
    """Fit with the `trueodds` that this process imports."""
    from trueodds import calibrators

    before, started = peak_mb(), time.process_time()
    if what == SELECT:
        selection = calibrators.select(*data)
        seconds = time.process_time() - started
        table = {line.name: line.nll for line in selection.table}
        return {"seconds": seconds, "peak_mb": peak_mb() - before, "chosen": selection.calibrator.name, "nlls": table}
    fitted = calibrators.StructuredMatrix.fit(*data)
    seconds, rose = time.process_time() - started, peak_mb() - before
    nll = mean_nll(fitted, data)
    rows, classes = data[0].shape
    off_CC = np.square(np.asarray(fitted.weight_CC) - np.eye(classes))
    diagonal = float(np.trace(off_CC))
    bias = float(np.square(np.asarray(fitted.bias_C)).sum())
    penalty = classes / rows * (diagonal + bias + (classes - 1) * (float(off_CC.sum()) - diagonal))
    return {"seconds": seconds, "peak_mb": rose, "nll": nll, "loss": nll + penalty}


def fit_probmetrics(data: Rows) -> dict[str, Any]:
    """Fit structured matrix scaling of probmetrics."""
    import torch
    from probmetrics.calibrators import SMSCalibrator  # type: ignore[import-not-found, unused-ignore]
    from probmetrics.distributions import CategoricalLogits  # type: ignore[import-not-found, unused-ignore]

    torch.set_num_threads(1)
    logits, labels = CategoricalLogits(torch.from_numpy(np.float32(data[0]))), torch.from_numpy(data[1])
    before, started = peak_mb(), time.process_time()
    fitted = SMSCalibrator()
    fitted.fit_torch(logits, labels)
    seconds, rose = time.process_time() - started, peak_mb() - before

    def apply(logits_NC: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
        block = CategoricalLogits(torch.from_numpy(np.float32(logits_NC)))
        return np.asarray(fitted.predict_proba_torch(block).get_probs().numpy(), np.float64)

    return {"seconds": seconds, "peak_mb": rose, "nll": mean_nll(apply, data)}


def mean_nll(apply: Any, data: Rows) -> float:
    """Compute the mean NLL block by block."""
    total = 0.0
    for start in range(0, len(data[1]), BLOCK):
        z_NC, y_N = data[0][start : start + BLOCK], data[1][start : start + BLOCK]
        total -= float(np.log(np.maximum(apply(z_NC)[np.arange(len(y_N)), y_N], np.finfo(np.float64).tiny)).sum())
    return total / len(data[1])


def measure(what: str, folder: Path, code: Path, python: str, limit: float) -> dict[str, Any]:
    """Run one fit in a new process. An error is returned as `problem`."""
    command = [python, "-W", "ignore", str(Path(__file__).resolve()), "--child", what, "--data", str(folder)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # This file's own packages come last, so that `trueodds` is that of the checkout
    path = os.pathsep.join([str(code), str(Path(__file__).resolve().parents[2])])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, env={**os.environ, **threads, "PYTHONPATH": path}
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"not done in {limit:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"problem": (done.stderr.strip().splitlines() or ["no answer"])[-1][:200]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def medians(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first measurement, with the median of the seconds of all, or the first problem."""
    problem = next((one for one in measured if "problem" in one), None)
    return problem or {**measured[0], "seconds": statistics.median(one["seconds"] for one in measured)}


def markdown(result: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    lines = ["| data | fit | commit or package | processor time | memory | NLL, choice |", "|---" * 6 + "|"]
    for one in result["measurements"]:
        if "problem" in one:
            numbers = f"{one['problem']} | - | -"
        else:
            last = one.get("chosen") or f"{one['nll']:.5f}"
            numbers = f"{one['seconds']:.2f} s | {one['peak_mb']:.0f} MB | {last}"
        lines.append(f"| {one['data']} | {one['fit']} | {one['code']} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), metavar="ROWSxCLASSES")
    parser.add_argument("--records", type=Path, metavar="DIR", help="folder with records of real nets")
    parser.add_argument("--base", type=Path, metavar="CHECKOUT", help="checkout of a commit to compare with")
    parser.add_argument("--peer", metavar="PYTHON", help="Python with probmetrics and torch")
    parser.add_argument("--turns", type=whole_from(1), default=3, help="of each fit (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of the clock per fit")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        data: Rows = (np.load(options.data / "logits.npy"), np.load(options.data / "labels.npy"))
        print(json.dumps(fit_probmetrics(data) if options.child == "probmetrics" else fit_here(options.child, data)))
        return
    run, here = Run(), Path(__file__).resolve().parents[2]
    sources: list[tuple[str, Any]] = [(shape, tuple(map(int, shape.split("x")))) for shape in options.shapes]
    sources += [(path.stem, path) for path in sorted(options.records.glob("*.npz"))] if options.records else []
    codes = {commit(): here} | ({f"{base_commit(options.base)} (base)": options.base} if options.base else {})
    for name, source in sources:
        measurements = list[dict[str, Any]]()
        with tempfile.TemporaryDirectory() as folder:
            data = recorded(source) if isinstance(source, Path) else draw(*source)
            np.save(Path(folder) / "logits.npy", data[0])
            np.save(Path(folder) / "labels.npy", data[1])
            for what in (MATRIX, SELECT)[: 1 + (data[0].size <= LARGEST)]:
                turns = 1 if data[0].size > LARGEST else options.turns
                found: dict[str, list[dict[str, Any]]] = {code: [] for code in codes}
                for _ in range(turns):
                    for code, checkout in codes.items():
                        found[code].append(measure(what, Path(folder), checkout, sys.executable, options.limit))
                        run.say(name, what, code, found[code][-1])
                for code, several in found.items():
                    measurements.append({"data": name, "fit": what, "code": code, "turns": turns, **medians(several)})
            if options.peer and data[0].size <= LARGEST:
                peer = measure("probmetrics", Path(folder), here, options.peer, options.limit)
                measurements.append({"data": name, "fit": MATRIX, "code": "probmetrics", "turns": 1, **peer})
                run.say(name, "probmetrics", peer)
        kept = json.loads(options.out.read_text())["measurements"] if options.out.exists() else []
        measurements = [one for one in kept if one["data"] != name] + measurements
        run.finish(options.out, markdown, measurements=sorted(measurements, key=_order))


def _order(one: dict[str, Any]) -> tuple[int, str]:
    """Return the place of a data set in the table: shapes by size, then records."""
    return (SHAPES.index(one["data"]) if one["data"] in SHAPES else len(SHAPES)), str(one["data"])


def base_commit(checkout: Path) -> str:
    """Return the commit of another checkout."""
    before = Path.cwd()
    os.chdir(checkout)
    try:
        return commit()
    finally:
        os.chdir(before)


if __name__ == "__main__":
    main()
