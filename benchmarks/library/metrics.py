"""Time, peak memory and error of `trueodds.metrics`, torchmetrics, netcal, scikit-learn and relplot in one run.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.library.metrics  # five minutes, 6 GB of memory

Peers are measured if they can be imported; the result lists the missing ones. Everything runs on one thread. A time is
the best of several calls of the public function, including input checks. Extra memory is the rise of the process's
resident memory during one call in a new fork. The error is the distance from the value in long double. Input arrays are
float32, as networks output them. scikit-learn has no ECE: its reliability curve is weighted with counts that it does
not return. torchmetrics has no class-wise ECE: its binary function runs class by class. probmetrics takes its
calibration errors from torchmetrics and relplot.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, Run, options_parser
from trueodds import metrics

RESULT = RESULTS / "metrics.json"
PEERS = ("torchmetrics", "netcal", "scikit-learn", "relplot")
BINS, BUDGET = 15, 2.0  # seconds spent on repeating one measurement
Call = Callable[[], float]


@dataclass
class Timing:
    """One tool on one input."""

    seconds: float
    extra_bytes: int
    value: float
    error: float | None


@dataclass
class Case:
    """One metric on one input, by every tool that has it."""

    metric: str
    shape: str
    input_bytes: int
    exact: float | None
    tools: dict[str, Timing] = field(default_factory=dict)

    def times(self, peer: str) -> float:
        """Return how many times as long the peer takes."""
        return self.tools[peer].seconds / self.tools["trueodds.metrics"].seconds


def extra_memory(call: Call) -> int:
    """Return the peak resident memory above that before the call, in a fork. Linux only (0 elsewhere)."""
    if not Path("/proc/self/clear_refs").exists():
        return 0
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before = _status("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
            call()
            os.write(writer, str(max(_status("VmHWM") - before, 0)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        return 1024 * int(pipe.read() or 0)


def _status(name: str) -> int:
    """Read a line of /proc/self/status, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def measure(call: Call, exact: float | None) -> Timing:
    value = float(call())  # also warms caches and lazy imports
    extra = extra_memory(call)
    best, spent, calls = np.inf, 0.0, 0
    while calls < 3 or (spent < BUDGET and calls < 200):
        start = time.perf_counter()
        call()
        elapsed = time.perf_counter() - start
        best, spent, calls = min(best, elapsed), spent + elapsed, calls + 1
    return Timing(float(best), extra, value, None if exact is None else abs(value - exact))


def exact_ece(confidence_N: npt.NDArray[np.float32], correct_N: npt.NDArray[np.bool_]) -> float:
    """Return the equal-width ECE with edges compared in float64 and sums in long double."""
    total, confidence = np.longdouble(0), confidence_N.astype(np.float64)
    for b in range(BINS):
        inside = (confidence > b / BINS) & (confidence <= (b + 1) / BINS) if b else confidence <= 1 / BINS
        total += abs(correct_N[inside].sum(dtype=np.int64) - confidence[inside].sum(dtype=np.longdouble))
    return float(total / len(confidence))


def peers() -> dict[str, Any]:
    """Return the peers that can be imported, by name."""
    found: dict[str, Any] = {}
    try:
        from pipeline.data.vision import torchvision

        torchvision()  # torchmetrics imports it, and beside a CPU torch it needs the shim
        torch: Any = import_module("torch")
        torch.set_num_threads(1)
        found["torchmetrics"] = (torch, import_module("torchmetrics.functional.classification"))
    except ImportError:
        pass
    for name, module in (("netcal", "netcal.metrics"), ("scikit-learn", "sklearn.calibration"), ("relplot", "relplot")):
        try:
            found[name] = import_module(module)
        except ImportError:
            continue
    return found


def top_label(n: int, found: dict[str, Any]) -> Case:
    """Measure the ECE of known top labels: a confidence and whether it was right."""
    rng = np.random.default_rng(n)
    confidence = (1 - 0.9 * rng.random(n) ** 2).astype(np.float32)
    correct = rng.random(n) < confidence
    case = Case("ECE, 15 bins", f"{n:,} top labels", confidence.nbytes + correct.nbytes, exact_ece(confidence, correct))
    calls: dict[str, Call] = {
        "trueodds.metrics": lambda: metrics.ece(metrics.CalibrationSums.from_top(confidence, correct), bins=BINS)
    }
    if "torchmetrics" in found:
        torch, functional = found["torchmetrics"]
        c, a = torch.from_numpy(confidence), torch.from_numpy(correct.astype(np.int64))
        calls["torchmetrics"] = lambda: float(functional.binary_calibration_error(c, a, n_bins=BINS, norm="l1"))
    if "netcal" in found:
        whole = correct.astype(np.int64)
        calls["netcal"] = lambda: float(found["netcal"].ECE(BINS).measure(confidence, whole))
    if "scikit-learn" in found:
        calls["scikit-learn"] = lambda: _curve(found["scikit-learn"], correct, confidence)
    return run(case, calls)


def from_rows(n: int, classes: int, found: dict[str, Any]) -> Iterator[Case]:
    """Measure the ECE from N x C probabilities, and the class-wise ECE."""
    rng = np.random.default_rng(n + classes)
    p = rng.standard_normal((n, classes), dtype=np.float32)
    p *= 1.2
    p[np.arange(n), rng.integers(0, classes, n)] += np.maximum(rng.normal(9.9, 5.6, n), 0)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((n, 1), dtype=np.float32)).sum(axis=1).clip(0, classes - 1)
    shape, size = f"{n:,} x {classes:,}", p.nbytes + y.nbytes
    top = Case("ECE, 15 bins", shape, size, exact_ece(p.max(axis=1), p.argmax(axis=1) == y))
    calls: dict[str, Call] = {"trueodds.metrics": lambda: metrics.ece(p, y, bins=BINS)}
    each: dict[str, Call] = {"trueodds.metrics": lambda: metrics.classwise_ece(p, y, bins=BINS)}
    if "torchmetrics" in found:
        torch, functional = found["torchmetrics"]
        tp, ty = torch.from_numpy(p), torch.from_numpy(y)
        calls["torchmetrics"] = lambda: float(
            functional.multiclass_calibration_error(tp, ty, num_classes=classes, n_bins=BINS, norm="l1")
        )
        binary = functional.binary_calibration_error
        each["torchmetrics"] = lambda: (
            sum(float(binary(tp[:, k].contiguous(), (ty == k).long(), n_bins=BINS)) for k in range(classes)) / classes
        )
    if "netcal" in found and classes <= 100:
        calls["netcal"] = lambda: float(found["netcal"].ECE(BINS).measure(p, y))
    if "scikit-learn" in found and classes <= 100:
        each["scikit-learn"] = lambda: (
            sum(_curve(found["scikit-learn"], y == k, p[:, k]) for k in range(classes)) / classes
        )
    yield run(top, calls)
    exact = sum(exact_ece(p[:, k], y == k) for k in range(classes)) / classes if classes <= 100 else None
    yield run(Case("classwise ECE, 15 bins", shape, size, exact), each)


def others(n: int, found: dict[str, Any]) -> Iterator[Case]:
    """Measure smooth ECE, equal mass, sweep and cumulative error of two-class rows."""
    rng = np.random.default_rng(n)
    c = (1 - 0.5 * rng.random(n) ** 2).astype(np.float32)
    p, y = np.stack([c, 1 - c], axis=1), (rng.random(n) > c).astype(np.int64)
    names = {
        "smooth ECE": metrics.smooth_ece,
        "adaptive ECE": metrics.adaptive_ece,
        "KS error": metrics.ks_error,
        "SECE": metrics.sece,
        "KDE ECE": metrics.kde_ece,
    }
    for name, metric in names.items():
        calls: dict[str, Call] = {"trueodds.metrics": lambda metric=metric: metric(p, y)}  # type: ignore[misc]
        if name == "smooth ECE" and "relplot" in found and n <= 1_000_000:
            calls["relplot"] = lambda: float(found["relplot"].smECE(c.astype(np.float64), 1.0 - y))
        yield run(Case(name, f"{n:,} x 2", p.nbytes + y.nbytes, None), calls)


def _curve(calibration: Any, correct: npt.NDArray[np.bool_], confidence: npt.NDArray[np.float32]) -> float:
    accuracy_B, confidence_B = calibration.calibration_curve(correct, confidence, n_bins=BINS)
    count_B = np.histogram(confidence, np.linspace(0, 1, BINS + 1))[0]
    return float(count_B[count_B > 0] @ np.abs(accuracy_B - confidence_B) / len(confidence))


def run(case: Case, calls: dict[str, Call]) -> Case:
    for tool, call in calls.items():
        case.tools[tool] = found = measure(call, case.exact)
        print(
            f"{case.metric:24} {case.shape:18} {tool:17} {1e3 * found.seconds:10.3f} ms"
            f" {found.extra_bytes / 1e6:9.1f} MB extra, {found.value:.9f}"
            + ("" if found.error is None else f", error {found.error:.1e}"),
            file=sys.stderr,
            flush=True,
        )
    return case


def markdown(result: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md: milliseconds, and how many times as long the peers take."""
    lines = [
        "| metric | input | time | extra memory | torchmetrics | netcal | scikit-learn | relplot |",
        "|---" * 8 + "|",
    ]
    for value in result["cases"]:
        tools = value["tools"]
        ours = tools["trueodds.metrics"]
        cells = [value["metric"], value["shape"], _time(ours["seconds"]), f"{ours['extra_bytes'] / 1e6:.1f} MB"]
        for peer in PEERS:
            there = tools.get(peer)
            cells.append(f"{there['seconds'] / ours['seconds']:.1f}x" if there else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--quick", action="store_true", help="up to 100,000 rows and 100 classes only")
    options = parser.parse_args()
    run, found = Run(), peers()
    sizes = [10**k for k in ((4, 5) if options.quick else (4, 5, 6, 7))]
    tables = [(100_000, 10), (100_000, 100)] + ([] if options.quick else [(100_000, 1_000)])
    cases = [top_label(n, found) for n in sizes]
    for n, classes in tables:
        cases += from_rows(n, classes, found)
    for n in sizes[1:3]:
        cases += others(n, found)
    run.finish(
        options.out,
        markdown,
        packages=("numpy", "scipy", "torch", *PEERS, "probmetrics"),
        missing=[name for name in PEERS if name not in found],
        threads=1,
        cases=[asdict(case) for case in cases],
    )


if __name__ == "__main__":
    main()
