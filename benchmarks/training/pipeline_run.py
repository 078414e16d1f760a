"""Records a whole run through its Prefect deployment: settings, machine, duration, results.

    python -m benchmarks.training.pipeline_run cifar100-resnet8-cpu cifar100
    python -m benchmarks.training.pipeline_run flow-overhead-digits digits --plain

The run takes place in a temporary clone of HEAD with its own DVC cache, server and worker, so that nothing is skipped
and the checkout is unchanged. It writes benchmarks/results/<name>.json and <name>.svg (the reliability diagram).
`--plain` runs the same by `dvc repro` in another clone, before and after, and each once more without changes. The
difference is the cost of scheduling, isolation, experiment and publishing.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from benchmarks.record import RESULTS, circumstances, options_parser, write
from pipeline.config import load
from pipeline.flows import server, workspace
from pipeline.flows.train import experiment_name
from pipeline.parameters import parse_overrides
from pipeline.studies.machine import processor

ROOT = Path(__file__).resolve().parents[2]


def machine() -> dict[str, Any]:
    """Return the processor's name, the cores that this process may use, and the installed packages."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "numpy", "dvc", "prefect")},
    }


def main(name: str, deployment: str, words: list[str], plain: bool) -> None:
    """Run the deployment, fetch its experiment, and write the record."""
    overrides = parse_overrides(words)
    load(ROOT / "params.yaml", overrides)
    with tempfile.TemporaryDirectory() as temporary, socket.create_server(("127.0.0.1", 0)) as free:
        home, port = clone(Path(temporary) / "scheduled"), free.getsockname()[1]
        free.close()
        os.environ |= {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api", "PREFECT_HOME": str(home / server.STATE)}
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        try:
            server.up(home, os.environ["PREFECT_API_URL"])
            run, seconds = scheduled(home, deployment, words)
            again = scheduled(home, deployment, words)[1] if plain else None
        finally:
            server.down(home)
        subprocess.run(["dvc", "exp", "apply", run["experiment"]], cwd=home, check=True)
        table = record(home / "artifacts", run["stages"])
        table["seconds_by_deployment"] = round(seconds, 1)
        if plain:
            other = clone(Path(temporary) / "plain")
            workspace.write_params(other / "params.yaml", {"dataset": deployment, **overrides})
            direct, direct_again = repro(other), repro(other)
            table |= {
                "seconds_by_dvc_repro": round(direct, 1),
                "overhead_seconds": round(seconds - direct, 1),
                "seconds_by_deployment_when_nothing_changed": round(again or 0, 1),
                "seconds_by_dvc_repro_when_nothing_changed": round(direct_again, 1),
                "overhead_seconds_when_nothing_changed": round((again or 0) - direct_again, 1),
            }
        shutil.copy(home / "artifacts" / "evaluation" / "reliability.svg", RESULTS / f"{name}.svg")
        write(RESULTS / f"{name}.json", table)
        print(markdown(table))


def clone(target: Path) -> Path:
    """Clone HEAD, without any build outputs."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(target)], check=True)
    return target


def scheduled(home: Path, deployment: str, words: list[str]) -> tuple[dict[str, Any], float]:
    """Run the deployment like a user, from the command to its return, polling every second."""
    arguments = [word for given in words for word in ("-p", given)]
    command = ["prefect", "deployment", "run", f"train/{deployment}", "--watch", "--watch-interval", "1", *arguments]
    begin = time.perf_counter()
    said = subprocess.run(command, cwd=home, check=True, capture_output=True, text=True).stdout
    seconds = time.perf_counter() - begin
    (run,) = re.findall(r"UUID: ([0-9a-f-]{36})", said)
    api = os.environ["PREFECT_API_URL"]
    name = httpx.get(f"{api}/flow_runs/{run}").json()["name"]
    tasks = httpx.post(f"{api}/task_runs/filter", json={"flow_runs": {"id": {"any_": [run]}}}).json()
    stages = {
        task["name"]: round(task["total_run_time"], 1) for task in sorted(tasks, key=lambda t: str(t["start_time"]))
    }
    return {"experiment": experiment_name(name, run), "stages": stages}, seconds


def repro(home: Path) -> float:
    """Return the seconds of `dvc repro`."""
    begin = time.perf_counter()
    subprocess.run(["dvc", "repro"], cwd=home, check=True, capture_output=True)
    return time.perf_counter() - begin


def record(artifacts: Path, seconds: dict[str, float]) -> dict[str, Any]:
    """Return the record, entirely from files and clocks."""

    def read(path: str) -> Any:
        return json.loads((artifacts / path).read_text(encoding="utf-8"))

    card, training = read("data/card.json"), read("model/training.json")
    images = card["splits"]["train"] * training["recipe"]["epochs"]
    return {
        **circumstances(),
        "machine": machine(),
        "data": {key: card[key] for key in ("name", "splits", "sha256")},
        "training": training,
        "seconds": seconds,
        "training_images_per_second": round(images / seconds["train"]),
        "metrics": read("evaluation/metrics.json"),
    }


def markdown(table: dict[str, Any]) -> str:
    """Return the record as docs/explanation/results.md shows it (tests/docs/test_generated.py compares the two)."""
    recipe, metrics, where = table["training"]["recipe"], table["metrics"], table["machine"]
    splits, minutes = table["data"]["splits"], table["seconds"]["train"] / 60
    lines = [
        f"{recipe['net']}, {recipe['epochs']} epochs on {splits['train']:,} images of {table['data']['name']}, method"
        f" {table['training']['method']['name']}: {minutes:.0f} minutes on {where['cores']} cores"
        f" ({where['processor']}), {table['training_images_per_second']:,} images/s; {metrics['n']:,} test images.",
        "",
        "| | before | after temperature scaling |",
        "|---|---|---|",
    ]
    both = metrics["before"], metrics["after"]
    for key, label in (("error_rate", "test error"), ("nll", "NLL"), ("brier", "Brier score"), ("ece", "ECE, 15 bins")):
        lines.append(f"| {label} | {both[0][key]:.4f} | {both[1][key]:.4f} |")
    cells = [f"{w['ece_estimate']:.4f} [{w['ece_lower']:.4f}, {w['ece_upper']:.4f}]" for w in both]
    lines.append(f"| ECE estimate and 95% interval | {cells[0]} | {cells[1]} |")
    cells = [f"{w['floor_mean']:.4f} ({w['floor_p95']:.4f})" for w in both]
    lines.append(f"| noise floor (95%) | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def overhead(table: dict[str, Any]) -> str:
    """Return, for a record made with `--plain`, the cost of a scheduled run compared with `dvc repro`."""
    where = table["machine"]
    lines = [
        f"| `train/{table['data']['name']}`, {where['cores']} cores | by the deployment | `dvc repro` |",
        "|---|---:|---:|",
    ]
    for words, suffix in (("everything runs", ""), ("nothing has changed", "_when_nothing_changed")):
        pair = (table[f"seconds_by_{way}{suffix}"] for way in ("deployment", "dvc_repro"))
        lines.append(f"| {words} | {' | '.join(f'{seconds:.0f} s' for seconds in pair)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = options_parser(__doc__)
    parser.add_argument("name", help="of the record")
    parser.add_argument("deployment", help="digits, cifar10, cifar100, own")
    parser.add_argument("parameters", nargs="*", metavar="leaf=value")
    parser.add_argument("--plain", action="store_true", help="measure `dvc repro` beside it")
    arguments = parser.parse_args()
    main(arguments.name, arguments.deployment, arguments.parameters, arguments.plain)
