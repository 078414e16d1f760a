"""Every calibrator on records of real nets: 20 splits, NLL, and ECE beside its noise floor; other packages on the same.

    trueodds data records
    python -m benchmarks.evidence.records                      # downloads/records; ten minutes on one core
    python -m benchmarks.evidence.records --packages trueodds  # the calibrators of this package alone

Each split takes half of the 10,000 rows for the fit, and measures on the other half. A split reaches the floor if its
ECE, in 15 bins, is at most the 95th percentile that a calibrated model of the same confidences shows. `select` chooses
by cross-validation within the first half. The seconds are the processor time of one fit, on one thread.

Other packages run with their defaults, if they are installed. The result names those that are not.
"""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.library.calibrators import given_scores
from benchmarks.record import RESULTS, Run, circumstances, installed, options_parser, write
from pipeline.published_data import collections
from trueodds import calibrators, logits_of, metrics
from trueodds.calibrators import FitError
from trueodds.metrics import CalibrationSums, softmax

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]
Fit = Callable[[Array, Labels], Callable[[Array], Array]]
"""Function from logits and labels to a function from logits to probabilities."""
RESULT = RESULTS / "records.json"
OURS = "trueodds"
SPLITS = 20
LEAST = 1e-38
"""Smallest probability of a record. Records in float32 round smaller ones to 0."""
LIMIT = 60.0
"""Seconds of processor time of a fit, after which the other splits of this package's method are left out."""
ORDERED = "ordered_temperature"
"""Calibrator of ordered classes, which these records do not have."""


def ours(name: str) -> Fit:
    """Return a calibrator of this package with its defaults."""

    def fit(logits_NC: Array, labels_N: Labels) -> Callable[[Array], Array]:
        return calibrators.fit(logits_NC, labels_N, name)

    return fit


def select(logits_NC: Array, labels_N: Labels) -> Callable[[Array], Array]:
    """Choose a calibrator by cross-validation."""
    return calibrators.select(logits_NC, labels_N).calibrator


def scikit_learn(method: str) -> Fit:
    """Return scikit-learn's calibration of given scores."""

    def fit(logits_NC: Array, labels_N: Labels) -> Callable[[Array], Array]:
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.frozen import FrozenEstimator

        net = FrozenEstimator(given_scores(logits_NC))
        predict: Callable[[Array], Array] = (
            CalibratedClassifierCV(net, method=method).fit(logits_NC, labels_N).predict_proba
        )
        return predict

    return fit


def probmetrics(kind: str) -> Fit:
    """Return a calibrator of probmetrics."""

    def fit(logits_NC: Array, labels_N: Labels) -> Callable[[Array], Array]:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        of_logits = importlib.import_module("probmetrics.distributions").CategoricalLogits
        fitted = getattr(importlib.import_module("probmetrics.calibrators"), kind)()
        fitted.fit_torch(of_logits(torch.from_numpy(logits_NC)), torch.from_numpy(labels_N))

        def predict(of_NC: Array) -> Array:
            found: Array = fitted.predict_proba_torch(of_logits(torch.from_numpy(of_NC))).get_probs().numpy()
            return found

        return predict

    return fit


def netcal(module: str, kind: str) -> Fit:
    """Return a calibrator of netcal, which takes probabilities; of two classes, those of the second alone."""

    def given(logits_NC: Array) -> Array:
        p_NC: Array = softmax(logits_NC)
        return p_NC[:, 1] if p_NC.shape[1] == 2 else p_NC

    def fit(logits_NC: Array, labels_N: Labels) -> Callable[[Array], Array]:
        fitted = getattr(importlib.import_module(f"netcal.{module}"), kind)()
        fitted.fit(given(logits_NC), labels_N)

        def predict(of_NC: Array) -> Array:
            found: Array = fitted.transform(given(of_NC))
            return found if found.ndim == 2 else np.stack([1 - found, found], axis=1)

        return predict

    return fit


def venn_abers(logits_NC: Array, labels_N: Labels) -> Callable[[Array], Array]:
    """Fit the package venn-abers, which takes probabilities."""
    fitted = importlib.import_module("venn_abers").VennAbersCalibrator()
    p_NC = softmax(logits_NC)

    def predict(of_NC: Array) -> Array:
        found: Array = fitted.predict_proba(p_cal=p_NC, y_cal=labels_N, p_test=softmax(of_NC))
        return found

    return predict


def mapie(logits_NC: Array, labels_N: Labels) -> Callable[[Array], Array]:
    """Fit the top-label calibrator of MAPIE, which leaves the probabilities of the other labels NaN."""
    calibration = importlib.import_module("mapie.calibration")
    net = given_scores(logits_NC)
    predict: Callable[[Array], Array] = (
        calibration.TopLabelCalibrator(net, cv="prefit").fit(logits_NC, labels_N).predict_proba
    )
    return predict


METHODS: dict[str, dict[str, Fit]] = {
    OURS: {**{name: ours(name) for name in calibrators.names() if name != ORDERED}, "select": select},
    "scikit-learn": {method: scikit_learn(method) for method in ("temperature", "sigmoid", "isotonic")},
    "probmetrics": {
        kind: probmetrics(kind)
        for kind in (
            "TemperatureScalingCalibrator",
            "ETSCalibrator",
            "VectorScalingCalibrator",
            "SVSCalibrator",
            "SMSCalibrator",
        )
    },
    "netcal": {
        kind: netcal(module, kind)
        for module, kind in (
            ("scaling", "TemperatureScaling"),
            ("scaling", "BetaCalibration"),
            ("binning", "HistogramBinning"),
            ("binning", "IsotonicRegression"),
            ("binning", "BBQ"),
        )
    },
    "venn-abers": {"VennAbersCalibrator": venn_abers},
    "mapie": {"TopLabelCalibrator": mapie},
}
"""Package -> method -> its fit."""


def read(path: Path) -> tuple[Array, Labels]:
    """Return the logits and labels of a record."""
    with np.load(path) as arrays:
        p_NC = np.maximum(arrays["predictions"].astype(np.float64), LEAST)
        return logits_of(p_NC), arrays["ground_truth"].astype(np.intp).reshape(-1)


def halves(rows: int, split: int) -> tuple[Labels, Labels]:
    """Return the rows of the fit and those of the measurement."""
    first, second = np.array_split(np.random.default_rng(split).permutation(rows), 2)
    return first, second


def figures(p_NC: Array, labels_N: Labels) -> dict[str, float]:
    """Measure probabilities: error, NLL in nats, ECE in 15 bins, and its noise floor.

    Rows with NaN have the probability of the top label alone, so they have no NLL.
    """
    p_NC = np.asarray(p_NC, np.float64)
    correct_N = np.nanargmax(p_NC, axis=1) == labels_N
    sums = CalibrationSums.from_top(np.minimum(np.nanmax(p_NC, axis=1), 1.0), correct_N)
    floor = metrics.noise_floor(sums)
    true_N = p_NC[np.arange(len(p_NC)), labels_N]
    nll = {} if np.isnan(p_NC).any() else {"nll": float(-np.log(np.maximum(true_N, LEAST)).mean())}
    return {
        "error": float(1 - correct_N.mean()),
        **nll,
        "ece": metrics.ece_interval(sums).ece,
        "floor": floor.mean,
        "floor_p95": floor.p95,
    }


def measured(logits_NC: Array, labels_N: Labels, fit: Fit, splits: int) -> dict[str, Any]:
    """Return the means over the splits, and the share of splits that reach the floor; or the problem of a fit."""
    found, seconds = [], []
    for split in range(splits):
        fitted_rows, rows = halves(len(labels_N), split)
        started = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of other packages
                calibrator = fit(logits_NC[fitted_rows], labels_N[fitted_rows])
                seconds.append(time.process_time() - started)
                found.append(figures(calibrator(logits_NC[rows]), labels_N[rows]))
        except (FitError, ValueError, RuntimeError, TypeError, AttributeError) as error:
            return {"problem": " ".join(str(error).split())[:200]}
        if seconds[-1] > LIMIT:
            break
    return {
        "splits": len(found),
        "seconds": min(seconds),
        **{name: fmean(of[name] for of in found) for name in found[0]},
        "reached": sum(of["ece"] <= of["floor_p95"] for of in found) / len(found),
    }


def markdown(result: dict[str, Any]) -> str:
    """Return a table for each record, the least NLL first, and the packages that were missing."""
    lines: list[str] = []
    for record in result["records"]:
        lines += [f"**{record['record']}**: {record['rows']:,} rows, {record['classes']} classes.", ""]
        lines += [
            "| package | method | NLL | error | ECE | floor, mean (95%) | splits at the floor | seconds a fit |",
            "|---|---|---:|---:|---:|---:|---:|---:|",
        ]
        rows = sorted(record["methods"], key=lambda row: row.get("nll", float("inf")))
        lines += [_line(row, result["splits"]) for row in rows]
        lines.append("")
    lines.append(
        f"{result['splits']} splits in halves. NLL, error, ECE and floor are means over the splits. A method stands at"
        " the floor in a split if its ECE is at most the floor's 95th percentile: a calibrated model does so in 95% of"
        " them."
    )
    if result["missing"]:
        lines += ["", f"Not installed where this ran: {', '.join(result['missing'])}."]
    return "\n".join(lines)


def _line(row: dict[str, Any], splits: int) -> str:
    name = f"| {row['package']} | `{row['method']}`"
    if "problem" in row:
        return f"{name} | {row['problem']} | | | | | |"
    less = f" ({row['splits']} of {splits} splits)" if row["splits"] < splits else ""
    nll = f"{row['nll']:.4f}" if "nll" in row else "-"
    return (
        f"{name}{less} | {nll} | {row['error']:.2%} | {row['ece']:.4f} | {row['floor']:.4f}"
        f" ({row['floor_p95']:.4f}) | {row['reached']:.0%} | {row['seconds']:.3g} |"
    )


def missing(packages: Sequence[str]) -> list[str]:
    """Return those packages that are not installed."""
    return [name for name in packages if installed(name) is None]


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--packages", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--splits", type=int, default=SPLITS)
    options = parser.parse_args()
    absent = missing([name for name in options.packages if name != OURS])
    records: list[dict[str, Any]] = []
    result: dict[str, Any] = {}
    run = Run()
    for path in collections.find("records"):
        logits_NC, labels_N = read(path)
        rows = []
        for package in options.packages:
            for method, fit in METHODS[package].items() if package not in absent else ():
                row = {"package": package, "method": method, **measured(logits_NC, labels_N, fit, options.splits)}
                rows.append(row)
                run.say(f"{path.stem} {row}")
        records.append({"record": path.stem, "rows": len(labels_N), "classes": logits_NC.shape[1], "methods": rows})
        result = {
            **circumstances("numpy", "scipy", *(name for name in METHODS if name != OURS)),
            "splits": options.splits,
            "missing": absent,
            "seconds": run.seconds,
            "records": records,
        }
        write(options.out, result)
    print(markdown(result))


if __name__ == "__main__":
    main()
