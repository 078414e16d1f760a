"""Parts that learn by looking ahead, on 20 real classes of CIFAR-100: five methods, three seeds, one table.

    python -m benchmarks.training.meta_learning --data FOLDER/cifar100.npz      # half an hour on two cores
    python -m benchmarks.training.meta_learning --data FOLDER/cifar100.npz --methods fl1 flg_sece --epochs 5

It uses the gamma-net paper's recipe and its 8:1:1 split on every fifth class: 8,000 rows to learn from, 1,000 to choose
the epoch and fit the temperature, 1,000 that only the meta parts learn from, and 2,000 for the test. The net is small
(resnet8) and the run short, so these are not the paper's numbers. Nothing is tuned on this data. Finished runs are
stored in the result file after every run, and are not repeated with the same settings.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import RESULTS, circumstances, options_parser, write
from benchmarks.training import subset
from pipeline import data
from pipeline.config import Data, Evaluation, Training
from pipeline.data import npz
from pipeline.data.splitting.sampling import OF_RECIPES
from pipeline.training.loop import train
from pipeline.training.plan import Plan
from pipeline.training.resolution import plan_of
from trueodds import calibrators
from trueodds.evaluation.measurement import measure

RESULT = RESULTS / "meta-learning-cifar100-subset.json"
METHODS = ("ce", "fl1", "flg", "flg_sece", "ce_meta_sece")
RECIPE = "gamma-net"
SHOWN = {
    "error_rate": ("test error", None),
    "nll": ("NLL", None),
    "ece": ("ECE", "floor"),
    "adaptive_ece": ("AdaECE", "adaptive_floor"),
    "classwise_ece": ("class-wise ECE", "classwise_floor"),
    "mce": ("MCE", "mce_floor"),
}
"""Column of each value, and the key of its noise floor's 95th percentile."""
GAMMA = ("mean", "std", "q05", "q95")


def spread(values: list[float], digits: int = 3) -> str:
    """Return a mean, and ± the standard deviation of several values."""
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"


def planned(method: str, seed: int, epochs: int, width: int) -> Plan:
    """Return the plan of one run."""
    training = Training(
        method=method, seed=seed, epochs=epochs, width=width, recipe=RECIPE, net="resnet8", device="cpu", threads=1
    )
    return plan_of(training, "cifar100-subset", "image", held_out=True)


def dataset_of(source: Path) -> data.DataSet:
    """Return every fifth class, split by the recipe."""
    with tempfile.TemporaryDirectory() as folder:
        subset.write(Path(folder) / "cifar100-subset.npz", npz.read(source))
        return data.load(Data(dataset="cifar100-subset", path=folder), OF_RECIPES[RECIPE])


def one(source: Path, method: str, seed: int, plan: Plan) -> dict[str, Any]:
    """Train, fit the temperature on the validation rows, and measure on the test rows."""
    torch.set_num_threads(1)
    dataset = dataset_of(source)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        trained = train(dataset, plan, Path(folder))
    measured: dict[str, Any] = {
        "method": method,
        "seed": seed,
        "seconds_per_epoch": round((time.perf_counter() - begin) / plan.recipe.epochs, 2),
        "code_sha256": trained.settings["code_sha256"],
        "selected": trained.settings["selection"]["epoch"],
        "meta": trained.settings["meta"],
        "gamma": [
            {name: round(row[f"test_gamma_{name}"], 4) for name in GAMMA}
            for row in trained.history
            if row.get("test_gamma_mean") is not None  # of a method without gamma the column is empty
        ],
    }
    calibrator = calibrators.fit(trained.logits["val"], dataset.arrays["val"][1], "temperature")
    measured["temperature"] = calibrator.to_json()["temperature"]
    for when, applied in (("before", calibrators.Identity()), ("after", calibrator)):
        values = measure(applied, trained.logits["test"], dataset.arrays["test"][1], Evaluation()).values
        measured[when] = {name: values[name] for name in kept()}
    return measured


def kept() -> list[str]:
    """Return the values of metrics.json that a run's record has."""
    floors = [f"{floor}_p95" for _, floor in SHOWN.values() if floor]
    return [*(f"{name}{end}" for name in SHOWN for end in ("", "_lower", "_upper")), "ece_estimate", *floors]


def markdown(record: dict[str, Any]) -> str:
    """Return two tables, before and after temperature scaling, gamma over time, and conclusions from the intervals."""
    runs = record["runs"]
    by_method = {m: [run for run in runs if run["method"] == m] for m in dict.fromkeys(run["method"] for run in runs)}
    lines = []
    for when, words in (("before", "as trained"), ("after", "after temperature scaling")):
        lines += [f"| {words} | {' | '.join(title for title, _ in SHOWN.values())} |", "|---|" + "---:|" * len(SHOWN)]
        for method, mine in by_method.items():
            lines.append(f"| `{method}` | {' | '.join(_cell(mine, when, name) for name in SHOWN)} |")
        floors = [
            f"{_mean(runs, when, f'{floor}_p95'):.{_digits(name)}f}" if floor else ""
            for name, (_, floor) in SHOWN.items()
        ]
        lines += [f"| a calibrated model, up to | {' | '.join(floors)} |", ""]
    lines += [
        "| γ of the test rows | first epoch | half time | last epoch | seconds an epoch, least |",
        "|---|---:|---:|---:|---:|",
    ]
    for method, mine in by_method.items():
        cost = min(run["seconds_per_epoch"] for run in mine)  # what else ran at the time only adds
        epochs = len(mine[0]["gamma"])
        gammas = [_gamma(mine, place) for place in (0, epochs // 2, epochs - 1)] if epochs else ["none"] * 3
        lines.append(f"| `{method}` | {' | '.join(gammas)} | {cost:.1f} |")
    splits, seeds = record["data"]["splits"], sorted({run["seed"] for run in runs})
    lines += [
        "",
        f"{record['net']} of width {record['width']}, {record['epochs']} epochs on {splits['train']:,} images of"
        f" {record['classes']} classes, {splits['held_out']:,} to look ahead at, {splits['test']:,} test images,"
        f" {len(seeds)} seeds: mean ± standard deviation over them, and the 95% interval of one run (means of its ends;"
        " of what all images of this kind would show, in the same bins). What a calibrated model shows on as many rows"
        " is the 95th percentile of its noise floor. A measured value holds the noise of few rows and its interval does"
        " not, so it may lie above: the class-wise one does. γ: mean over the rows and, in brackets, their standard"
        " deviation."
        f" {verdict(by_method)}",
    ]
    return "\n".join(lines)


def verdict(by_method: dict[str, list[dict[str, Any]]]) -> str:
    """Return the conclusions from the intervals as trained, for each method compared with its base method."""
    sentences = []
    for method, origin in (("flg", "fl1"), ("flg_sece", "fl1"), ("ce_meta_sece", "ce")):
        if {method, origin} - by_method.keys():
            continue
        better, worse = list[str](), list[str]()
        for name, (title, floor) in SHOWN.items():
            if floor is not None:
                low, high = (_mean(by_method[method], "before", f"{name}_{end}") for end in ("lower", "upper"))
                least, most = (_mean(by_method[origin], "before", f"{name}_{end}") for end in ("lower", "upper"))
                (better if high < least else worse if most < low else []).append(title)
        for side, titles in (("better", better), ("worse", worse)):
            if titles:
                sentences.append(
                    f"As trained, `{method}` is {side} calibrated than `{origin}` by {' and '.join(titles)}: their"
                    " intervals are apart."
                )
        if not better + worse:
            sentences.append(
                f"Of `{method}` and `{origin}` as trained the intervals of every calibration error overlap: no"
                " difference is shown."
            )
    return " ".join(sentences)


def _digits(name: str) -> int:
    return 4 if name == "classwise_ece" else 3  # a mean over classes that mostly say next to nothing


def _cell(runs: list[dict[str, Any]], when: str, name: str) -> str:
    digits = _digits(name)
    ends = ", ".join(f"{_mean(runs, when, f'{name}_{end}'):.{digits}f}" for end in ("lower", "upper"))
    return f"{spread([run[when][name] for run in runs], digits)} [{ends}]"


def _mean(runs: list[dict[str, Any]], when: str, name: str) -> float:
    return float(np.mean([run[when][name] for run in runs]))


def _gamma(runs: list[dict[str, Any]], place: int) -> str:
    mean, std = (float(np.mean([run["gamma"][place][name] for run in runs])) for name in ("mean", "std"))
    return f"{mean:.2f} ({std:.3f})"


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--data", type=Path, required=True, help="cifar100.npz")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help=f"default: {' '.join(METHODS)}")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--width", type=int, default=8, help="channels of the first layer; resnet8 has 16")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="runs side by side")
    options = parser.parse_args()
    keys = [(method, seed) for seed in options.seeds for method in options.methods]
    wanted = {key: planned(*key, options.epochs, options.width) for key in keys}
    dataset = dataset_of(options.data)
    record: dict[str, Any] = {
        **circumstances("torch"),
        "command": circumstances()["command"].replace(str(options.data), "cifar100.npz"),
        "data": {"sha256": dataset.card["sha256"], "splits": dataset.card["splits"]},
        "classes": len(dataset.card["classes"]),
        "net": "resnet8",
        "width": options.width,
        "epochs": options.epochs,
        "runs": [],
    }
    runs: dict[tuple[str, int], dict[str, Any]] = {}
    if options.out.exists():
        earlier = json.loads(options.out.read_text(encoding="utf-8"))
        if all(earlier[key] == record[key] for key in ("data", "epochs", "width", "versions")):
            whole = [run for run in earlier["runs"] if run["before"].keys() == set(kept())]
            runs = {(run["method"], run["seed"]): run for run in whole}
    codes = {key: plan.result_settings()["code_sha256"] for key, plan in wanted.items()}
    stale = [key for key in keys if key not in runs or runs[key]["code_sha256"] != codes[key]]
    place = {method: index for index, method in enumerate(options.methods)}
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(one, options.data, *key, wanted[key]) for key in stale]):
            run = future.result()
            runs[run["method"], run["seed"]] = run
            record["runs"] = [
                runs[key] for key in sorted(runs, key=lambda key: (place.get(key[0], len(place)), key[1]))
            ]
            write(options.out, record)
            print(json.dumps({name: value for name, value in run.items() if name != "gamma"}), flush=True)
    record["runs"] = record["runs"] or list(runs.values())
    print(markdown(record))


if __name__ == "__main__":
    main()
