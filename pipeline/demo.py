"""What `make run` does after `dvc repro`: the trained model behind the real service, labels taken back, one summary.

The service is a process of its own, reached over HTTP only, with a model directory and a store of its own that are
emptied at the start.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import data, metrics, stages
from pipeline.bundle import publish
from pipeline.data.raw import Images, Labels
from pipeline.errors import UserError
from pipeline.files import read_json
from pipeline.metrics import CalibrationSums
from pipeline.metrics.inputs import Array
from pipeline.progress import bar

BATCH = 100
BATCH_VALUES = 1_000_000  # pixels x channels in one request: as JSON some 4 MB, well below the service's limit
MARKER = ".trueodds-demo"
START_SECONDS = 60
EXACT = 1e-9
NEAR = 0.005


class DemoError(UserError, RuntimeError):
    """The service did not start, did not answer, or its numbers do not agree with ours."""


def demo(work: Path) -> None:
    """Publish, serve, predict the test images, send their labels, read the report, check it, print the summary.

    Raises:
        DemoError: with the service's own last words where there are any.
    """
    _empty(work)
    dataset, table = data.read(stages.DATA), read_json(stages.EVALUATION / "metrics.json")
    published = publish(stages.BUNDLE, work / "models")
    images, labels = dataset.arrays["test"]
    with _service(work) as url:
        ids, probabilities_NC = _predict(url, images)
        _feedback(url, ids, labels)
        asked = f"{url}/calibration-report?bins={table['bins']}&level={table['level']}"
        report, page = json.loads(_call(asked)), _call(asked, accept="text/html")
    (work / "calibration-report.html").write_bytes(page)
    recomputed = metrics.ece(CalibrationSums.from_probabilities(probabilities_NC, labels), bins=table["bins"])
    _check(report, recomputed, table, len(labels))
    print(_summary(dataset.card["name"], table, report, recomputed, published, work))


def _empty(work: Path) -> None:
    """A fresh folder; what is there is removed only if an earlier demo made it."""
    if work.exists() and not (work / MARKER).exists() and (not work.is_dir() or any(work.iterdir())):
        raise DemoError(f"{work} exists, is not empty and was not made by a demo; name another folder: --work DIR")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / MARKER).touch()


def _predict(url: str, images: Images) -> tuple[list[str], Array]:
    ids: list[str] = []
    rows: list[list[float]] = []
    with bar(len(images), "predict", "image") as shown:
        size = max(1, min(BATCH, BATCH_VALUES // images[0].size))
        for start in range(0, len(images), size):
            body = {"instances": images[start : start + size].tolist()}
            predictions = json.loads(_call(f"{url}/predict", body))["predictions"]
            ids += [prediction["id"] for prediction in predictions]
            rows += [prediction["probabilities"] for prediction in predictions]
            shown.update(len(predictions))
    return ids, np.asarray(rows)


def _feedback(url: str, ids: list[str], labels: Labels) -> None:
    pairs = [{"id": i, "label": int(label)} for i, label in zip(ids, labels, strict=True)]
    with bar(len(pairs), "label", "label") as shown:
        for start in range(0, len(pairs), BATCH):
            _call(f"{url}/feedback", {"labels": pairs[start : start + BATCH]})
            shown.update(len(pairs[start : start + BATCH]))


def _check(report: dict[str, Any], recomputed: float, table: dict[str, Any], rows: int) -> None:
    live, offline = report["ece"], table["after"]["ece"]
    if report["labelled"] != rows:
        raise DemoError(f"the service counts {report['labelled']} labels; {rows} were sent")
    if not abs(live - recomputed) <= EXACT:
        raise DemoError(f"live ECE is {live!r}, but the answered probabilities give {recomputed!r}")
    if not abs(live - offline) <= NEAR:
        raise DemoError(f"live ECE is {live:.4f}, metrics.json says {offline:.4f}: they differ by more than {NEAR}")


def _summary(
    name: str, table: dict[str, Any], report: dict[str, Any], recomputed: float, published: Path, work: Path
) -> str:
    both = (table["before"], table["after"])
    rows: list[tuple[str, ...]] = [("", "before", "after calibration")]
    names = {"error": "test error", "nll": "NLL (nats)", "brier": "Brier score", "ece": f"ECE, {table['bins']} bins"}
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
        f"report    {work / 'calibration-report.html'}  (`make serve` keeps a live one up)",
        f"pictures  {stages.EVALUATION}: reliability, bins, classes, calibrators (.svg)",
        f"bundle    {published}",
    ]
    return "\n".join(lines)


def _fitted(calibrator: dict[str, Any]) -> str:
    """`temperature 0.81`: the calibrator and its fitted numbers."""
    numbers = [f"{value:.4g}" for value in calibrator.values() if isinstance(value, float)]
    return " ".join([calibrator["calibrator"], *numbers])


@contextmanager
def _service(work: Path) -> Iterator[str]:
    """The service on a free port; its URL once it is ready; ended with the block."""
    url_file, log_file = work / "url", work / "service.log"
    command = [sys.executable, "-m", "service", "--port", "0", "--url-file", str(url_file)]
    command += ["--models", str(work / "models"), "--store", str(work / "store.sqlite")]
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield _wait_until_ready(process, url_file, log_file)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], url_file: Path, log_file: Path) -> str:
    reason = "it did not say where it listens"
    for _ in range(10 * START_SECONDS):
        if process.poll() is not None:
            reason = f"it ended with exit status {process.returncode}"
            break
        if url_file.exists() and (url := url_file.read_text(encoding="utf-8").strip()):
            try:
                _call(f"{url}/health/ready")
            except DemoError as error:
                reason = str(error)
            else:
                return url
        time.sleep(0.1)
    last = "\n".join(log_file.read_text(errors="replace").splitlines()[-15:])
    raise DemoError(f"the service is not ready after {START_SECONDS} s: {reason}\n{log_file} ends with:\n{last}")


def _call(url: str, body: Any = None, *, accept: str = "application/json") -> bytes:
    request = urllib.request.Request(url, headers={"accept": accept, "content-type": "application/json"})
    if body is not None:
        request.data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: bytes = response.read()
            return answer
    except urllib.error.HTTPError as error:
        raise DemoError(f"{url} answered {error.code}: {error.read().decode(errors='replace')[:500]}") from None
    except OSError as error:
        raise DemoError(f"{url} did not answer: {error}") from None
