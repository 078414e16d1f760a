"""A whole run through `dvc repro` with other parameters, recorded: what was run, where, how long, what came out.

    python benchmarks/pipeline_run.py cifar100-resnet8-cpu dataset=cifar100

runs in a temporary git worktree of HEAD, so the checkout is left alone, and writes benchmarks/results/<name>.json and
<name>.png (the reliability diagram).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from pipeline.config import SECTION_OF, parse, parse_overrides
from pipeline.stages import STAGES

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def machine() -> dict[str, Any]:
    """The processor by its own name, the cores this process may use, and what was installed."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "numpy", "dvc")},
    }


def main(name: str, words: list[str]) -> None:
    """Run every stage by `dvc repro -s`, timing each, and write the record."""
    tree = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    for leaf, value in parse_overrides(words).items():
        tree[SECTION_OF[leaf]][leaf] = value
    parse(tree)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary) / "run"
        subprocess.run(["git", "worktree", "add", "--detach", "-q", str(work), commit], cwd=ROOT, check=True)
        try:
            (work / "params.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
            seconds = {}
            for stage in STAGES:
                begin = time.perf_counter()
                subprocess.run([sys.executable, "-m", "dvc", "repro", "-s", stage], cwd=work, check=True)
                seconds[stage] = round(time.perf_counter() - begin, 1)
            record(name, words, commit, work / "artifacts", seconds)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(work)], cwd=ROOT, check=True)


def record(name: str, words: list[str], commit: str, artifacts: Path, seconds: dict[str, float]) -> None:
    """Everything from files and clocks; nothing typed in by hand."""

    def read(path: str) -> Any:
        return json.loads((artifacts / path).read_text(encoding="utf-8"))

    card, training = read("data/card.json"), read("model/training.json")
    images = card["splits"]["train"] * training["recipe"]["epochs"]
    table = {
        "command": f"python benchmarks/pipeline_run.py {name} {' '.join(words)}",
        "commit": commit,
        "machine": machine(),
        "data": {key: card[key] for key in ("name", "splits", "sha256")},
        "training": training,
        "seconds": seconds,
        "training_images_per_second": round(images / seconds["train"]),
        "metrics": read("evaluation/metrics.json"),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    shutil.copy(artifacts / "evaluation" / "reliability.png", RESULTS / f"{name}.png")
    print(markdown(table))


def markdown(table: dict[str, Any]) -> str:
    """The record as the README shows it (tests/test_readme.py holds the README to that)."""
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
    for key, label in (("error", "test error"), ("nll", "NLL"), ("brier", "Brier score"), ("ece", "ECE, 15 bins")):
        lines.append(f"| {label} | {both[0][key]:.4f} | {both[1][key]:.4f} |")
    cells = [f"{w['ece_estimate']:.4f} [{w['ece_lower']:.4f}, {w['ece_upper']:.4f}]" for w in both]
    lines.append(f"| ECE estimate and 95% interval | {cells[0]} | {cells[1]} |")
    cells = [f"{w['floor_mean']:.4f} ({w['floor_p95']:.4f})" for w in both]
    lines.append(f"| noise floor (95%) | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) < 2 or "=" in sys.argv[1]:
        sys.exit("usage: python benchmarks/pipeline_run.py NAME [leaf=value ...]")
    main(sys.argv[1], sys.argv[2:])
