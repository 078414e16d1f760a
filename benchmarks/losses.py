"""The papers' losses on a real subset of CIFAR-100 with a small net, several seeds: one table.

    python -m benchmarks.losses --data FOLDER/cifar100.npz      # half an hour on one core
    python -m benchmarks.losses --data FOLDER/cifar100.npz --methods ce focal+sb_ece --seeds 0 1

The subset: every fifth class; 5,000 training images, 1,000 for calibration and 2,000 for the test show 20 classes well
enough to learn and to become over-confident on. Every run is the pipeline's own loop, temperature scaling and
evaluation; penalties have their default weights, nothing is tuned on this data. What is done is kept in the result
file after every run, and a run that is there with the same settings is not repeated.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.interval_coverage import processor
from pipeline import data, methods
from pipeline.config import Data, Evaluation, Training
from pipeline.training.loop import train
from pipeline.training.plan import Plan
from pipeline.training.resolution import plan_of
from trueodds import calibrators
from trueodds.evaluation.measurement import measure

RESULT = Path(__file__).parent / "results" / "losses-cifar100-subset.json"
METHODS = ("ce", "flsd53", "bsce_gra", "focal_sb_ece", "focal_s_avuc", "mmce_kumar", "ls05", "mixup")
EVERY, TRAIN, VALIDATION = 5, 5000, 1000
"""One class in so many is kept; rows."""
SHOWN = (
    *("error_rate", "nll", "brier", "ece", "ece_estimate", "ece_lower", "ece_upper", "floor_mean", "floor_p95"),
    *("smooth_ece", "classwise_ece", "signed_gap"),
)


def subset(source: Path, out: Path) -> Path:
    """Every fifth class of an .npz of CIFAR-100, labelled 0..19."""
    with np.load(source, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    chosen = {"class_names": arrays["class_names"][::EVERY]}
    for split in ("train", "test"):
        rows = arrays[f"y_{split}"] % EVERY == 0
        chosen |= {f"x_{split}": arrays[f"x_{split}"][rows], f"y_{split}": arrays[f"y_{split}"][rows] // EVERY}
    np.savez(out / "cifar100-subset.npz", **chosen)
    return out


def planned(method: str, seed: int, epochs: int, width: int) -> Plan:
    """The plan of one run."""
    training = Training(method=method, seed=seed, epochs=epochs, width=width, recipe="cpu", device="cpu")
    return plan_of(training, "cifar100-subset", "image", held_out=False)


def one(dataset: data.DataSet, method: str, seed: int, plan: Plan) -> dict[str, Any]:
    """Train, scale the temperature on the validation rows, measure on the test rows."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        trained = train(dataset, plan, Path(folder))
    seconds = time.perf_counter() - begin
    calibrator = calibrators.fit(trained.logits["val"], dataset.arrays["val"][1], "temperature")
    measured: dict[str, Any] = {"method": method, "seed": seed, "seconds": round(seconds, 1)}
    measured["code_sha256"] = trained.settings["code_sha256"]
    measured["temperature"] = calibrator.to_json()["temperature"]
    for when, applied in (("before", calibrators.Identity()), ("after", calibrator)):
        values = measure(applied, trained.logits["test"], dataset.arrays["test"][1], Evaluation()).values
        measured[when] = {name: values[name] for name in SHOWN}
    return measured


def markdown(record: dict[str, Any]) -> str:
    """One row a method: means over the seeds, and ± the standard deviation over them."""
    head = "| method | test error | NLL | ECE | estimate [95% interval] | temperature | NLL after | ECE after |"
    lines = [f"{head} estimate [95% interval] |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    runs = record["runs"]
    for method in dict.fromkeys(run["method"] for run in runs):
        mine = [run for run in runs if run["method"] == method]
        cells = [f"`{method}`", spread([run["before"]["error_rate"] for run in mine])]
        for when in ("before", "after"):
            cells += [spread([run[when][name] for run in mine]) for name in ("nll", "ece")]
            ends = (
                float(np.mean([run[when][f"ece_{name}"] for run in mine])) for name in ("estimate", "lower", "upper")
            )
            cells.append("{:.3f} [{:.3f}, {:.3f}]".format(*ends))
            if when == "before":
                cells.append(spread([run["temperature"] for run in mine], 2))
        lines.append(f"| {' | '.join(cells)} |")
    floors = [run[when][name] for name in ("floor_mean", "floor_p95") for when in ("before", "after") for run in runs]
    mean, high = np.mean(floors[: 2 * len(runs)]), np.mean(floors[2 * len(runs) :])
    splits, seeds = record["data"]["splits"], sorted({run["seed"] for run in runs})
    lines += [
        "",
        f"{record['net']} of width {record['width']}, {record['epochs']} epochs on {splits['train']:,} images of"
        f" {record['classes']} classes,"
        f" {splits['test']:,} test images, {len(seeds)} seeds: mean ± standard deviation over them (intervals: means"
        f" of their ends). The noise floor of the ECE is {mean:.3f} on average, {high:.3f} at its 95th percentile.",
    ]
    return "\n".join(lines)


def spread(values: list[float], digits: int = 3) -> str:
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="cifar100.npz")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help=f"default: {' '.join(METHODS)}")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--width", type=int, default=8, help="channels of the first layer; resnet8 has 16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    for method in options.methods:
        methods.build(method)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        place = subset(options.data, Path(folder))
        dataset = data.load(
            Data(dataset="cifar100-subset", path=str(place), train_size=TRAIN, validation_size=VALIDATION)
        )
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty", "--exclude=*"], text=True).strip()
    record: dict[str, Any] = {
        "command": shlex.join(["python", "-m", "benchmarks.losses", "--data", "cifar100.npz", *words(options)]),
        "commit": commit,
        "processor": processor(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "threads": options.threads,
        "data": {"sha256": dataset.card["sha256"], "splits": dataset.card["splits"]},
        "classes": len(dataset.card["classes"]),
        "net": "resnet8",
        "width": options.width,
        "epochs": options.epochs,
        "runs": [],
    }
    if options.out.exists():
        earlier = json.loads(options.out.read_text(encoding="utf-8"))
        if all(earlier[key] == record[key] for key in ("data", "epochs", "width", "threads", "versions")):
            record["runs"] = earlier["runs"]
    for method in options.methods:
        for seed in options.seeds:
            plan = planned(method, seed, options.epochs, options.width)
            wanted = (method, seed, plan.result_settings()["code_sha256"])
            if not any((run["method"], run["seed"], run.get("code_sha256")) == wanted for run in record["runs"]):
                record["runs"] = [run for run in record["runs"] if (run["method"], run["seed"]) != wanted[:2]]
                record["runs"].append(one(dataset, method, seed, plan))
                options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
                print(json.dumps(record["runs"][-1]), flush=True)
    print(markdown(record))


def words(options: argparse.Namespace) -> list[str]:
    """The arguments that are not the default, without --data."""
    return [word for word in sys.argv[1:] if word not in ("--data", str(options.data))]


if __name__ == "__main__":
    main()
