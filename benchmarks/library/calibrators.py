"""Time and peak memory of fitting calibrators, compared with netcal, probmetrics and scikit-learn if installed.

    python -m benchmarks.library.calibrators                     # all shapes, about half an hour on one core
    python -m benchmarks.library.calibrators --shapes 5000x10    # a minute

Rows: logits N(0, 1.2), one class raised by max(N(9.9, 5.6), 0), in float32; labels drawn from softmax(z / 1.7). Every
fit runs in a process of its own on one thread. The time is the shortest run within two seconds. The memory is the rise
of the process's peak during the first fit. The NLL is that of the fitted rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, circumstances, options_parser, write

Fit = Callable[[], Callable[[], Any]]
"""Function that fits, and returns a function for the probabilities of the fitted rows."""
Rows = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]
Prepare = Callable[[Rows], Fit]
RESULT = RESULTS / "calibrators.json"
SHAPES = ("5000x10", "5000x100", "50000x1000")
ENOUGH = 2.0
"""Seconds of repeated runs."""
PEERS = ("netcal", "probmetrics", "scikit-learn", "torch")


def rows(n: int, classes: int, seed: int = 0) -> Rows:
    """Draw logits and labels in parts."""
    rng = np.random.default_rng(seed)
    logits_NC = rng.normal(0, 1.2, (n, classes)).astype(np.float32)
    logits_NC[np.arange(n), rng.integers(0, classes, n)] += np.maximum(rng.normal(9.9, 5.6, n), 0)
    labels_N = np.empty(n, np.int64)
    for part in np.array_split(np.arange(n), max(n // 1000, 1)):
        noise_NC = rng.gumbel(size=(len(part), classes))
        labels_N[part] = (logits_NC[part] / 1.7 + noise_NC).argmax(axis=1)
    labels_N[:classes] = np.arange(classes)  # every class occurs
    return logits_NC, labels_N


def ours(name: str, **options: Any) -> Prepare:
    def prepare(data: Rows) -> Fit:
        from trueodds import calibrators

        def run() -> Callable[[], Any]:
            found = calibrators.fit(*data, name, **options)
            return lambda: found(data[0])

        return run

    return prepare


def probmetrics(kind: str) -> Prepare:
    def prepare(data: Rows) -> Fit:
        import torch
        from probmetrics import calibrators  # type: ignore[import-not-found, unused-ignore]
        from probmetrics.distributions import CategoricalLogits  # type: ignore[import-not-found, unused-ignore]

        torch.set_num_threads(1)
        logits, labels = CategoricalLogits(torch.from_numpy(data[0])), torch.from_numpy(data[1])

        def run() -> Callable[[], Any]:
            fitted = getattr(calibrators, kind)()
            fitted.fit_torch(logits, labels)
            return lambda: fitted.predict_proba_torch(logits).get_probs().numpy()

        return run

    return prepare


def netcal(module: str, kind: str) -> Prepare:
    def prepare(data: Rows) -> Fit:
        import importlib

        import torch

        from trueodds.metrics import softmax

        torch.set_num_threads(1)
        make = getattr(importlib.import_module(f"netcal.{module}"), kind)
        probabilities_NC = softmax(data[0].astype(np.float64))

        def run() -> Callable[[], Any]:
            fitted = make()
            fitted.fit(probabilities_NC, data[1])
            return lambda: fitted.transform(probabilities_NC)

        return run

    return prepare


def given_scores(logits_NC: npt.NDArray[np.floating]) -> Any:
    """Return a fitted classifier of scikit-learn whose inputs are the logits themselves."""
    from sklearn.base import BaseEstimator, ClassifierMixin

    from trueodds.metrics import softmax

    class Scores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def fit(self, x: Any, y: Any) -> Any:
            self.classes_ = np.arange(x.shape[1])
            return self

        def decision_function(self, x: Any) -> Any:
            return x[:, 1] - x[:, 0] if x.shape[1] == 2 else x

        def predict(self, x: Any) -> Any:
            return x.argmax(axis=1)

        def predict_proba(self, X: Any) -> Any:  # MAPIE names the argument
            return softmax(X)

    return Scores().fit(logits_NC, None)


def scikit_learn(method: str) -> Prepare:
    def prepare(data: Rows) -> Fit:
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.frozen import FrozenEstimator

        net = FrozenEstimator(given_scores(data[0]))

        def run() -> Callable[[], Any]:
            fitted = CalibratedClassifierCV(net, method=method).fit(*data)
            return lambda: fitted.predict_proba(data[0])

        return run

    return prepare


CASES: dict[str, dict[str, Prepare]] = {
    "temperature": {
        "trueodds": ours("temperature"),
        "probmetrics": probmetrics("TemperatureScalingCalibrator"),
        "netcal": netcal("scaling", "TemperatureScaling"),
        "scikit-learn": scikit_learn("temperature"),
    },
    "temperature, Brier score": {"trueodds": ours("temperature", objective="brier")},
    "temperature, grid on ECE": {"trueodds": ours("temperature", objective="ece")},
    "temperature, soft-binned ECE": {"trueodds": ours("temperature", objective="sb_ece")},
    "ensemble_temperature": {
        "trueodds": ours("ensemble_temperature"),
        "probmetrics": probmetrics("ETSCalibrator"),
    },
    "bias_corrected_temperature": {"trueodds": ours("bias_corrected_temperature")},
    "platt": {"trueodds": ours("platt"), "scikit-learn": scikit_learn("sigmoid")},
    "beta": {"trueodds": ours("beta"), "netcal": netcal("scaling", "BetaCalibration")},
    "vector": {"trueodds": ours("vector"), "probmetrics": probmetrics("VectorScalingCalibrator")},
    "structured_vector": {"trueodds": ours("structured_vector"), "probmetrics": probmetrics("SVSCalibrator")},
    "structured_matrix": {"trueodds": ours("structured_matrix"), "probmetrics": probmetrics("SMSCalibrator")},
    "matrix": {"trueodds": ours("matrix")},
    "dirichlet": {"trueodds": ours("dirichlet")},
    "isotonic, one-vs-rest": {
        "trueodds": ours("isotonic"),
        "netcal": netcal("binning", "IsotonicRegression"),
        "scikit-learn": scikit_learn("isotonic"),
    },
    "isotonic, pooled": {"trueodds": ours("isotonic", form="pooled")},
    "histogram, one-vs-rest": {
        "trueodds": ours("histogram", form="one_vs_rest"),
        "netcal": netcal("binning", "HistogramBinning"),
    },
    "histogram, top label": {"trueodds": ours("histogram")},
    "bbq, one-vs-rest": {"trueodds": ours("bbq", form="one_vs_rest"), "netcal": netcal("binning", "BBQ")},
    "bbq, top label": {"trueodds": ours("bbq")},
    "spline, top label": {"trueodds": ours("spline")},
}


def peak_mb() -> float:
    """Return the process's peak resident memory. getrusage is not used, because it starts with the parent's peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def child(case: str, package: str, folder: Path) -> dict[str, Any]:
    """Measure one fit in this process."""
    data: Rows = (np.load(folder / "logits.npy"), np.load(folder / "labels.npy"))
    run = CASES[case][package](data)
    before = peak_mb()
    started = time.perf_counter()
    apply = run()
    seconds = [time.perf_counter() - started]
    rose = peak_mb() - before
    true_N = np.asarray(apply())[np.arange(len(data[1])), data[1]].astype(np.float64)
    nll = float(-np.log(np.maximum(true_N, np.finfo(np.float64).tiny)).mean())
    while sum(seconds) < ENOUGH and len(seconds) < 20:
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return {"seconds": min(seconds), "runs": len(seconds), "peak_mb": rose, "nll": nll}


def measured(case: str, package: str, folder: Path, limit: float) -> dict[str, Any]:
    """Run `child` in a new process. An error is returned as `problem`."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.library.calibrators"]
    command += ["--child", case, package, "--data", str(folder)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, env={**os.environ, **threads}, check=False
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"not done in {limit:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"problem": (done.stderr.strip().splitlines() or ["no answer"])[-1][:200]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def markdown(result: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md: seconds and MB, ours and the fastest peer's."""
    lines = ["| fit | " + " | ".join(SHAPES) + " | fastest peer, same shapes |", "|---|---|---|---|---|"]
    table = {(m["case"], m["package"], m["shape"]): m for m in result["measurements"]}
    for case, packages in CASES.items():
        mine = [_cell(table.get((case, "trueodds", shape))) for shape in SHAPES]
        peers = []
        for shape in SHAPES:
            others = [(p, table.get((case, p, shape), {})) for p in packages if p != "trueodds"]
            timed = [(found["seconds"], package) for package, found in others if "seconds" in found]
            peers.append(f"{_seconds(min(timed)[0])} ({min(timed)[1]})" if timed else "-")
        lines.append(f"| {case} | " + " | ".join(mine) + f" | {', '.join(peers)} |")
    return "\n".join(lines)


def _cell(measurement: dict[str, Any] | None) -> str:
    if not measurement or "seconds" not in measurement:
        return str((measurement or {}).get("problem", "-"))
    return f"{_seconds(measurement['seconds'])}, {measurement['peak_mb']:.0f} MB"


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per fit")
    parser.add_argument("--child", nargs=2, metavar=("CASE", "PACKAGE"), help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        case, package = options.child
        print(json.dumps(child(case, package, options.data)))
        return
    measurements: list[dict[str, Any]] = []
    result = {
        **circumstances("numpy", "scipy", *PEERS),
        "measurements": measurements,
    }
    for shape in options.shapes:
        with tempfile.TemporaryDirectory() as folder:
            logits_NC, labels_N = rows(*map(int, shape.split("x")))
            np.save(Path(folder) / "logits.npy", logits_NC)
            np.save(Path(folder) / "labels.npy", labels_N)
            for case in options.cases:
                for package in CASES[case]:
                    found = measured(case, package, Path(folder), options.limit)
                    measurements.append({"shape": shape, "case": case, "package": package, **found})
                    print(f"{shape:>11} {case:30} {package:13} {found}", file=sys.stderr, flush=True)
        write(options.out, result)
    print(markdown(result))


if __name__ == "__main__":
    main()
