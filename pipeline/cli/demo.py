"""Serves the trained model, predicts the test images, sends their labels and checks the report: one summary.

The service is a process of its own, reached over HTTP only, with a model directory and a store of its own that are
emptied at the start. --live is another demo: two minutes of traffic in which the model's calibration breaks.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import data, stages
from pipeline.cli import common
from pipeline.cli.live_demo import live_demo
from pipeline.cli.service_process import DemoError, call, fresh, serving
from pipeline.data.raw import Inputs, Labels
from trueodds import metrics
from trueodds.bundle import open_models
from trueodds.cli import Subparsers
from trueodds.files import read_json, write_bytes
from trueodds.metrics import CalibrationSums
from trueodds.processes.progress import bar
from trueodds.sums.inputs import Array

BATCH = 100
BATCH_VALUES = 1_000_000  # pixels x channels in one request: as JSON some 4 MB, well below the service's limit
EXACT = 1e-9
NEAR = 0.005


def add_parser(commands: Subparsers) -> None:
    epilog = common.examples("demo", "demo --live")
    parser = commands.add_parser("demo", description=__doc__, epilog=epilog)
    live = "two minutes of traffic in which the model's calibration breaks and the alarm fires, with the page open"
    parser.add_argument("--live", action="store_true", help=live)
    work = "folder of the demo, emptied at the start (default: .run/service; with --live: .run/live)"
    parser.add_argument("--work", type=Path, metavar="FOLDER", help=work)
    artifacts = f"folder of the stages' results (default: {stages.ARTIFACTS})"
    parser.add_argument("--artifacts", type=Path, default=stages.ARTIFACTS, metavar="FOLDER", help=artifacts)


def run(arguments: argparse.Namespace) -> int:
    play, folder = (live_demo, "live") if arguments.live else (demo, "service")
    play(arguments.work or Path(".run", folder), arguments.artifacts)
    return 0


def demo(work: Path, artifacts: Path = stages.ARTIFACTS) -> None:
    """Publishes, serves, predicts the test images, sends their labels, checks the report and prints the summary.

    `artifacts` is what the stages made; `work` is emptied, and holds the service's files.

    Raises:
        DemoError: with the service's own last words where there are any.
    """
    fresh(work)
    dataset = data.read(artifacts / stages.DATA.name)
    pictures = artifacts / stages.EVALUATION.name
    table = read_json(pictures / "metrics.json")
    published = open_models(work / "models").publish(artifacts / stages.BUNDLE.name, "default", unnamed=True)
    inputs, labels = dataset.arrays["test"]
    with serving(work) as url:
        ids, probabilities_NC = _predict(url, inputs)
        _feedback(url, ids, labels)
        address = f"{url}/calibration-report?bins={table['bins']}&level={table['level']}"
        report, page = json.loads(call(address)), call(address, accept="text/html")
    write_bytes(work / "calibration-report.html", page)
    recomputed = metrics.ece(CalibrationSums.from_probabilities(probabilities_NC, labels), bins=table["bins"])
    _check(report, recomputed, table, len(labels))
    print(_summary(dataset.card["name"], table, report, recomputed))
    print(f"report    {work / 'calibration-report.html'}  (`make serve` keeps a live one up)")
    print(f"pictures  {pictures}: reliability, bins, classes, calibrators (.svg)\nbundle    {published}")


def _predict(url: str, inputs: Inputs) -> tuple[list[str], Array]:
    ids: list[str] = []
    answers: list[list[float]] = []
    with bar(len(inputs), "predict", "row") as progress:
        size = max(1, min(BATCH, BATCH_VALUES // inputs[0].size))
        for start in range(0, len(inputs), size):
            rows = inputs[start : start + size]
            instances = rows.astype(object)
            instances[np.isnan(rows)] = None  # JSON has no NaN
            body = {"instances": instances.tolist()}
            predictions = json.loads(call(f"{url}/predict", body))["predictions"]
            ids += [prediction["id"] for prediction in predictions]
            answers += [prediction["probabilities"] for prediction in predictions]
            progress.update(len(predictions))
    return ids, np.asarray(answers)


def _feedback(url: str, ids: list[str], labels: Labels) -> None:
    pairs = [{"id": i, "index": int(label)} for i, label in zip(ids, labels, strict=True)]
    with bar(len(pairs), "label", "label") as progress:
        for start in range(0, len(pairs), BATCH):
            call(f"{url}/feedback", {"labels": pairs[start : start + BATCH]})
            progress.update(len(pairs[start : start + BATCH]))


def _check(report: dict[str, Any], recomputed: float, table: dict[str, Any], rows: int) -> None:
    live, offline = report["ece"], table["after"]["ece"]
    if report["labelled"] != rows:
        raise DemoError(f"the service counts {report['labelled']} labels; {rows} were sent")
    if not abs(live - recomputed) <= EXACT:
        raise DemoError(f"live ECE is {live!r}, but the answered probabilities give {recomputed!r}")
    if not abs(live - offline) <= NEAR:
        raise DemoError(f"live ECE is {live:.4f}, metrics.json says {offline:.4f}: they differ by more than {NEAR}")


def _summary(name: str, table: dict[str, Any], report: dict[str, Any], recomputed: float) -> str:
    both = (table["before"], table["after"])
    rows: list[tuple[str, ...]] = [("", "before", "after calibration")]
    names = {"error_rate": "test error", "nll": "NLL (nats)", "brier": "Brier score"}
    names["ece"] = f"ECE, {table['bins']} bins"
    rows += [(label, *(f"{when[key]:.4f}" for when in both)) for key, label in names.items()]
    rows.append(("  estimate", *(f"{when['ece_estimate']:.4f}" for when in both)))
    percent = f"  {table['level']:.0%} interval"
    rows.append((percent, *(f"{w['ece_lower']:.4f} .. {w['ece_upper']:.4f}" for w in both)))
    rows.append(("  noise floor (95%)", *(f"{w['floor_mean']:.4f} ({w['floor_p95']:.4f})" for w in both)))
    live, interval = report["ece"], f"{report['ece_lower']:.4f} .. {report['ece_upper']:.4f}"
    rule = "-" * 64
    lines = [
        "",
        f"TrueOdds: {name}, {table['n']:,} test rows, {_fitted(table['calibrator'])}",
        rule,
        *(f"{label:<22}{left:<22}{right}".rstrip() for label, left, right in rows),
        rule,
        f"{'live ECE (service)':<22}{live:<22.4f}{report['labelled']:,} labels",
        f"{percent:<22}{interval}",
        f"{'  from the answers':<22}{recomputed:<22.4f}differs by {abs(live - recomputed):.0e}",
        f"{'  in metrics.json':<22}{table['after']['ece']:<22.4f}differs by {abs(live - table['after']['ece']):.0e}",
        rule,
        *(textwrap.fill(note, 78) for note in table["notes"]),
    ]
    return "\n".join(lines)


def _fitted(calibrator: dict[str, Any]) -> str:
    """`temperature 0.81`: the calibrator and its fitted numbers."""
    numbers = [f"{value:.4g}" for value in calibrator.values() if isinstance(value, float)]
    return " ".join([calibrator["calibrator"], *numbers])
