"""The focal paper's text experiments, run here beside its numbers: 20 Newsgroups with the GP-CNN, SST with Tree-LSTMs.

    python -m benchmarks.texts --study sst --seeds 0,1,2
    python -m benchmarks.texts --study newsgroups --seeds 0,1,2     # half an hour of a core for each method and seed
    python -m benchmarks.texts --table                              # of the runs that are done

Columns of its Tables 1, 2, 4 and 5: error, ECE and AdaECE in %, 15 bins, before and after a temperature from .1, .2, ..
that has the least ECE, or AdaECE, on the validation rows. Runs lie in .run/texts; one that is done is not run again,
one that was killed goes on. Data and vectors are those of TRUEODDS_DATA. Beside each of our figures stand its standard
error, or interval, over the test rows, and with several seeds the mean and the standard deviation over them.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.interval_coverage import processor
from trueodds import calibrators, logits, metrics
from trueodds.files import read_json, write_json

RESULT = Path(__file__).parent / "results" / "texts.json"
RUNS = Path(".run") / "texts"
BINS = 15
Published = Mapping[str, float]


@dataclass(frozen=True)
class Column:
    """A method with the published figures in %: Tables 1, 2 and 3 or 4, 5 and 6, with both chosen temperatures."""

    title: str
    method: str
    published: Published
    options: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A data set with its recipe, leaves of params.yaml beside it, and what differs from the published runs."""

    title: str
    leaves: Mapping[str, Any]
    differs: tuple[str, ...]
    columns: tuple[Column, ...]


def _published(*figures: float) -> Published:
    names = ("error", "ece", "ece_T", "T", "adaptive_ece", "adaptive_ece_T", "T_adaptive")
    return dict(zip(names, figures, strict=True))


STUDIES: Mapping[str, Study] = {
    "newsgroups": Study(
        "20 Newsgroups, GP-CNN",
        {
            "dataset": "20news-bydate",
            "recipe": "newsgroups-official",
            "embeddings": "glove.6B.50d.txt",
            "validation_size": 900,
            "truncation_side": "left",
        },
        (
            "posts by date (10,414 / 900 / 7,532), theirs at random (15,098 / 900 / 3,999): later posts are harder, and"
            " a temperature chosen on earlier ones leaves them over-confident",
            "50-d vectors of GloVe's 40,000 commonest words, theirs 100-d of 400,000",
            "words are counted in training posts alone, theirs in test posts too",
            "unknown words hold places among the last 1,000, in theirs they are left out first",
            "22 epochs as their code has, 50 as their paper says",
        ),
        (
            Column("cross entropy", "ce", _published(26.68, 17.92, 2.39, 3.4, 17.91, 2.20, 3.3)),
            Column("Brier", "brier", _published(27.06, 13.58, 3.22, 2.3, 13.57, 2.60, 2.2)),
            Column("MMCE, weighted, 8", "mmce_text", _published(27.23, 15.48, 6.78, 2.2, 15.21, 7.07, 2.1)),
            Column("focal, gamma 3", "fl3", _published(29.26, 8.67, 3.51, 1.5, 8.65, 3.78, 1.5)),
            Column(
                "focal, gamma 5, 3, 2 by epochs",
                "fls532",
                _published(28.16, 12.13, 2.47, 1.8, 12.13, 2.18, 1.9),
                {"first_change": 0.2727, "second_change": 0.6818},
            ),
            Column("focal, gamma 5, 3 by p_y", "fla53", _published(27.98, 6.92, 2.19, 1.5, 6.92, 2.17, 1.4)),
        ),
    ),
    "sst": Study(
        "SST binary, Tree-LSTM",
        {"dataset": "sst-binary", "recipe": "sst-official", "embeddings": "glove.6B.50d.txt"},
        (
            "50-d vectors of GloVe's 40,000 commonest words, theirs 300-d of 840B tokens",
            "the last, smaller batch is learned from, in theirs it is left out",
            "10 epochs as their code has, 25 as their paper says",
            "neutral is left out before the softmax, in theirs after it",
        ),
        (
            Column("cross entropy", "ce", _published(12.85, 7.37, 2.62, 1.8, 7.31, 2.10, 1.8)),
            Column("Brier", "brier", _published(12.85, 9.01, 2.79, 2.5, 9.42, 2.80, 2.7)),
            Column("MMCE, weighted, 8", "mmce_text", _published(11.86, 5.03, 4.02, 1.5, 4.49, 3.72, 1.5)),
            Column("focal, gamma 3", "fl3", _published(12.19, 16.05, 1.78, 0.5, 15.64, 2.17, 0.5)),
            Column(
                "focal, gamma 5, 3, 2 by epochs", "fls532_tiny", _published(13.07, 3.91, 2.64, 0.9, 2.94, 2.50, 0.9)
            ),
            Column("focal, gamma 5, 3 by p_y", "fla53", _published(12.80, 9.19, 1.83, 0.7, 8.63, 1.92, 0.7)),
        ),
    ),
}
FIGURES = ("error", "ece", "ece_T", "T", "adaptive_ece", "adaptive_ece_T", "T_adaptive", "nll", "nll_T")


def train(study: str, column: Column, seed: int, threads: int) -> Path:
    """The folder of a run that is done, now or earlier."""
    from pipeline import config, data
    from pipeline.training import loop
    from pipeline.training.resolution import plan_of

    folder = RUNS / study / f"{column.method}-{seed}"
    if (folder / "run.json").is_file():
        return folder
    leaves = {**STUDIES[study].leaves, "method": column.method, "seed": seed, "threads": threads}
    params = config.load(overrides={**leaves, **{f"method_options.{k}": v for k, v in column.options.items()}})
    arrays = RUNS / study / "data"
    if not (arrays / "card.json").is_file():
        data.save(data.load(params.data), arrays)
    rows = data.read(arrays)
    started = time.monotonic()
    plan = plan_of(params.training, rows.card["name"], rows.card["input"]["kind"], held_out=False)
    trained = loop.train(rows, plan, folder / "checkpoints")
    epochs = [{k: row[k] for k in ("epoch", "train_error", "val_error", "val_nll")} for row in trained.history]
    trained.write(folder / "model", folder / "logits.npz", rows)
    record = {"commit": _commit(), "threads": threads, "seconds_of_this_turn": round(time.monotonic() - started)}
    write_json(folder / "run.json", {**record, "selection": trained.settings["selection"], "epochs": epochs})
    return folder


def figures_of(folder: Path) -> dict[str, Any]:
    """Of a run, in %, with what its test rows say of their own chance."""
    val, test = (logits.read(folder / "logits.npz", split) for split in ("val", "test"))
    p_NC = calibrators.fit(val.logits_NC, val.labels_N, "identity")(test.logits_NC)
    values: dict[str, Any] = {"rows": len(p_NC), **_judged("", p_NC, test.labels_N)}
    for objective, temperature in (("ece", "T"), ("adaptive_ece", "T_adaptive")):
        fitted = calibrators.fit(val.logits_NC, val.labels_N, "temperature", objective=objective)
        assert isinstance(fitted, calibrators.Temperature)
        judged = _judged("_T", fitted(test.logits_NC), test.labels_N)
        values[temperature] = round(fitted.temperature, 1)
        kept = {"ece": ("ece_T", "ece_T_interval", "ece_T_floor", "nll_T"), "adaptive_ece": ("adaptive_ece_T",)}
        values |= {name: judged[name] for name in kept[objective]}
    run = read_json(folder / "run.json")
    return {**values, **{name: run[name] for name in ("commit", "threads", "seconds_of_this_turn", "selection")}}


def _judged(suffix: str, p_NC: Any, labels_N: Any) -> dict[str, Any]:
    sums = metrics.CalibrationSums.from_probabilities(p_NC, labels_N)
    summary = metrics.summary(sums, bins=BINS, level=0.95)
    interval = metrics.ece_interval(sums, bins=BINS)
    return {
        f"error{suffix}": round(100 * (1 - summary["accuracy"]), 2),
        f"nll{suffix}": round(100 * summary["nll"], 2),
        f"ece{suffix}": round(100 * metrics.ece(sums, bins=BINS), 2),
        f"ece{suffix}_interval": [round(100 * end, 2) for end in (interval.lower, interval.upper)],
        f"ece{suffix}_floor": round(100 * metrics.noise_floor(sums, bins=BINS).mean, 2),
        f"adaptive_ece{suffix}": round(100 * metrics.adaptive_ece(p_NC, labels_N, bins=BINS), 2),
    }


def markdown(record: Mapping[str, Any]) -> str:
    """A table for each study of which runs are done."""
    done = {name: {key: runs for key, runs in of.items() if runs} for name, of in record["studies"].items()}
    tables = [table(STUDIES[name], runs) for name, runs in done.items() if runs]
    return "\n".join([*(line for lines in tables for line in lines), f"{record['processor']}, a thread for each run."])


def table(study: Study, runs: Mapping[str, Sequence[dict[str, Any]]]) -> list[str]:
    """Two lines for each method that was run: published and ours, over several seeds with the standard deviation."""
    lines = [
        f"**{study.title}**",
        "",
        "| % | error | ECE | after T | T | AdaECE | after T | T |",
        "|---|" + "---:|" * 7,
    ]
    for column in study.columns:
        if not (done := runs.get(column.method, ())):
            continue
        theirs = " | ".join(f"{column.published[name]:.{1 if name[0] == 'T' else 2}f}" for name in FIGURES[:7])
        lines.append(f"| {column.title}, published | {theirs} |")
        seeds = f"{len(done)} seeds" if len(done) > 1 else "one seed"
        lines.append(f"| ours, {seeds} | {' | '.join(_cell(name, done) for name in FIGURES[:7])} |")
    every = [run for done in runs.values() for run in done]
    floor, rows = fmean(run["ece_T_floor"] for run in every), every[0]["rows"]
    chance = f"If the probabilities after T were right, chance would show an ECE of {floor:.2f} on these {rows:,} rows."
    return [*lines, "", chance, "What differs:", "", *(f"- {difference}" for difference in study.differs), ""]


def _cell(name: str, done: Sequence[dict[str, Any]]) -> str:
    values, digits = [run[name] for run in done], 1 if name[0] == "T" else 2
    mean = f"{fmean(values):.{digits}f}"
    if len(values) > 1:
        return f"{mean} ± {stdev(values):.{digits}f}"
    if f"{name}_interval" in done[0]:
        low, high = done[0][f"{name}_interval"]
        return f"{mean} [{low:.2f}, {high:.2f}]"
    if name == "error":
        return f"{mean} ± {(values[0] * (100 - values[0]) / done[0]['rows']) ** 0.5:.2f}"
    return mean


def _done() -> dict[str, dict[str, list[dict[str, Any]]]]:
    return {
        name: {
            column.method: [figures_of(run.parent) for run in sorted((RUNS / name).glob(f"{column.method}-*/run.json"))]
            for column in study.columns
        }
        for name, study in STUDIES.items()
    }


def _commit() -> str:
    return subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=list(STUDIES))
    parser.add_argument("--methods", help="of the study's columns, such as ce,fl3 (default: all)")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="write the results of the runs that are done")
    options = parser.parse_args()
    if options.study:
        columns = {column.method: column for column in STUDIES[options.study].columns}
        chosen = options.methods.split(",") if options.methods else list(columns)
        if unknown := [name for name in chosen if name not in columns]:
            parser.error(f"{unknown[0]!r} is no column of {options.study}; its columns are {', '.join(columns)}")
        for seed in map(int, options.seeds.split(",")):
            for name in chosen:
                train(options.study, columns[name], seed, options.threads)
    if options.table or options.study:
        studies = _done()
        record = {
            "command": shlex.join(["python", "-m", "benchmarks.texts", *sys.argv[1:]]),
            "versions": {"python": platform.python_version()},
            "processor": processor(),
            "studies": studies,
        }
        if options.table:
            RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(markdown(record))


if __name__ == "__main__":
    main()
