"""Serves the trained model, predicts the test images, sends their labels, checks the report and prints a summary.

The service runs in a process of its own and is reached over HTTP only. Its model directory and store are emptied at the
start. --live runs another demo: two minutes of traffic in which the model's calibration breaks.
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import stages
from pipeline.cli import common
from trueodds.cli import Subparsers

if TYPE_CHECKING:
    from pipeline.data.raw import Inputs, Labels
    from trueodds.client import Client
    from trueodds.sums.inputs import Array

BATCH = 100
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
    from pipeline.cli.live_demo import live_demo

    play, folder = (live_demo, "live") if arguments.live else (demo, "service")
    play(arguments.work or Path(".run", folder), arguments.artifacts)
    return 0


def demo(work: Path, artifacts: Path = stages.ARTIFACTS) -> None:
    """Publish, serve, predict the test images, send their labels, check the report and print the summary.

    Args:
        work: Folder for the service's files. It is emptied at the start.
        artifacts: Folder of the stages' results.

    Raises:
        DemoError: The service failed, or its numbers differ from ours. The message ends with the service's last log
            lines if there are any.
    """
    from pipeline import data
    from pipeline.cli.service_process import fresh, serving
    from trueodds import metrics
    from trueodds.bundle import open_models
    from trueodds.client import Client
    from trueodds.files import read_json, write_bytes
    from trueodds.metrics import CalibrationSums

    fresh(work)
    dataset = data.read(artifacts / stages.DATA.name)
    pictures = artifacts / stages.EVALUATION.name
    table = read_json(pictures / "metrics.json")
    published = open_models(work / "models").publish(artifacts / stages.BUNDLE.name, "default", default_model=True)
    inputs, labels = dataset.arrays["test"]
    query = {"bins": table["bins"], "level": table["level"]}
    with serving(work) as url, Client(url) as client:
        ids, probabilities_NC = _predict(client, inputs)
        _feedback(client, ids, labels)
        report, page = client.report(**query).model_dump(mode="json"), client.page(**query)
    write_bytes(work / "calibration-report.html", page)
    recomputed = metrics.ece(CalibrationSums.from_probabilities(probabilities_NC, labels), bins=table["bins"])
    _check(report, recomputed, table, len(labels))
    print(_summary(dataset.card["name"], table, report, recomputed))
    print(f"report    {work / 'calibration-report.html'}  (`make serve` keeps a live one up)")
    print(f"pictures  {pictures}: reliability, bins, classes, calibrators (.svg)\nbundle    {published}")


def _predict(client: Client, inputs: Inputs) -> tuple[list[str], Array]:
    """Predict the test rows in batches and return their ids and probabilities."""
    import numpy as np

    from trueodds.processes.progress import bar

    ids: list[str] = []
    answers: list[Array] = []
    with bar(len(inputs), "predict", "row") as progress:
        for start in range(0, len(inputs), BATCH):
            predictions = client.predict(inputs[start : start + BATCH])
            ids += predictions.ids
            answers.append(predictions.probabilities_NC)
            progress.update(len(predictions))
    return ids, np.concatenate(answers)


def _feedback(client: Client, ids: list[str], labels: Labels) -> None:
    """Send the labels in batches."""
    from trueodds.processes.progress import bar

    with bar(len(ids), "label", "label") as progress:
        for start in range(0, len(ids), BATCH):
            rows = slice(start, start + BATCH)
            client.feedback(ids[rows], index=labels[rows])
            progress.update(len(ids[rows]))


def _check(report: dict[str, Any], recomputed: float, table: dict[str, Any], rows: int) -> None:
    """Raise DemoError if the report differs from the answers, or from metrics.json by more than NEAR."""
    from pipeline.cli.service_process import DemoError

    live, offline = report["ece"], table["after"]["ece"]
    if report["labelled"] != rows:
        raise DemoError(f"the service counts {report['labelled']} labels; {rows} were sent")
    if not abs(live - recomputed) <= EXACT:
        raise DemoError(f"live ECE is {live!r}, but the answered probabilities give {recomputed!r}")
    if not abs(live - offline) <= NEAR:
        raise DemoError(f"live ECE is {live:.4f}, metrics.json says {offline:.4f}: they differ by more than {NEAR}")


def _summary(name: str, table: dict[str, Any], report: dict[str, Any], recomputed: float) -> str:
    """Return the table that the demo prints."""
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
    """Return the calibrator with its parameters, such as `temperature 0.81`."""
    numbers = [f"{value:.4g}" for value in calibrator.values() if isinstance(value, float)]
    return " ".join([calibrator["calibrator"], *numbers])
