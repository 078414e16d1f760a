"""Makes the picture in docs/how-to/monitor.md: a real service whose model became over-confident ten days ago.

    python -m tools.page_picture                  # needs Chromium or Chrome on the PATH; half a minute
    python -m tools.page_picture --dark --out dark.png

Three weeks of answers are written to the store of a running service (100 classes, shape A of benchmarks/shapes.py).
They are calibrated at first; later the truth is softmax(z / 2.2). One answer in ten gets its label about a day later,
at a set clock. The picture is taken once the alarm has fired.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import subprocess
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path
from unittest import mock

import httpx
import numpy as np
from PIL import Image

from benchmarks import untrained
from benchmarks.shapes import chance_at, pool_logits
from service.ids import new_ids
from service.store import open_store
from service.store.rows import Label, PredictionBatch
from tools import chromium
from trueodds.metrics import softmax
from trueodds.sums.hours import HOUR_MS

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "calibration-report.png"
DAY_MS = 24 * HOUR_MS
DAYS, CHANGED, A_DAY, CLASSES = 21, 11, 1_500, 100
TRUTH, LABELLED, DELAY_DAYS = 2.2, 0.1, 1.0
WIDTH, MARGIN, COLOURS = 1200, 20, 40
MAX_BYTES = 200_000
SECONDS = 90.0

Labels = list[tuple[int, Label]]
"""Labels with their times of arrival in Unix milliseconds."""


def answers(model: str, version: str, now_ms: int, rng: np.random.Generator) -> tuple[list[PredictionBatch], Labels]:
    """Return the answers of three weeks, one batch per hour, and their labels by time of arrival."""
    batches, labels = [], []
    hours, rows = 24 * DAYS, A_DAY // 24
    logits_NC = pool_logits("A", hours * rows, 1)
    order_C = rng.permutation(CLASSES)
    for hour in range(hours):
        created = now_ms - (hours - hour) * HOUR_MS
        z_NC = logits_NC[hour * rows : (hour + 1) * rows][:, order_C]
        z_NC = (z_NC - z_NC.max(axis=1, keepdims=True)).astype(np.float32)
        probabilities_NC = softmax(z_NC.astype(np.float64))
        index_N = probabilities_NC.argmax(axis=1)
        confidence_N = probabilities_NC[np.arange(rows), index_N]
        ids = new_ids(rows, created)
        nothing: list[None] = [None] * rows
        batches.append(
            PredictionBatch(
                model, version, np.full(rows, created), ids, ["picture"] * rows, z_NC, probabilities_NC, index_N,
                confidence_N, confidence_N, list(nothing), list(nothing), list(nothing),
            )
        )  # fmt: skip
        right_N = rng.random(rows) < chance_at(z_NC.astype(np.float64), TRUTH if hour >= 24 * CHANGED else 1.0)
        given_N = rng.random(rows) < LABELLED
        arrival_N = created + rng.exponential(DELAY_DAYS * DAY_MS, rows)
        for k in np.flatnonzero(given_N & (arrival_N < now_ms)).tolist():
            truth = int(index_N[k]) if right_N[k] else int(index_N[k] + 1) % CLASSES
            labels.append((int(arrival_N[k]), Label(ids[k], truth)))
    return batches, sorted(labels, key=lambda label: label[0])


async def store(path: Path, batches: list[PredictionBatch], labels: Labels) -> None:
    """Write answers and labels to the service's own store, with the clock set to the times at which they came."""
    opened = await open_store(str(path))
    try:
        for batch in batches:
            await opened.put_predictions(batch)
        for hour, together in groupby(labels, lambda label: label[0] // HOUR_MS):
            with mock.patch("time.time_ns", return_value=(hour + 1) * HOUR_MS * 1_000_000):
                await opened.put_labels([label for _, label in together])
    finally:
        await opened.close()


def fill(client: httpx.Client, path: Path) -> None:
    """Write answers and labels, and wait until the alarm has fired.

    Raises:
        SystemExit: The alarm did not fire within 90 s.
    """
    asked = client.get("/calibration-report").json()
    batches, labels = answers(asked["model"], asked["version"], int(time.time() * 1000), np.random.default_rng(4))
    asyncio.run(store(path, batches, labels))
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        alarm = client.get("/calibration-report").json()["alarm"]
        if alarm and alarm["state"] == "fired" and alarm["nulls"][0]["labels"] >= len(labels) - 20:
            return
        time.sleep(0.5)
    raise SystemExit(f"no alarm after {len(labels):,} labels in {SECONDS:g} s; the report's alarm is {alarm}")


def save(picture: bytes, out: Path) -> None:
    """Save the picture with few colours, because the page has few.

    Raises:
        SystemExit: The file would have 200 kB or more.
    """
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, kmeans=1, dither=Image.Dither.NONE)
    out.parent.mkdir(parents=True, exist_ok=True)
    image.save(out, optimize=True)
    size = out.stat().st_size
    print(f"{out}: {image.width} x {image.height}, {size:,} bytes")
    if size >= MAX_BYTES:
        raise SystemExit(f"{out} has {size:,} bytes; allowed are fewer than {MAX_BYTES:,}: lower WIDTH or COLOURS")


def main() -> None:
    """Start a service, fill it and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    executable = chromium.find()
    if executable is None:
        raise SystemExit("no Chromium or Chrome on the PATH; install one, or set the variable CHROMIUM to its path")
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        untrained.publish("resnet8", here / "models", classes=CLASSES, width=4)
        command = [sys.executable, "-m", "service", "--port", "0", "--models", str(here / "models")]
        command += ["--store", str(here / "store.sqlite"), "--url-file", str(here / "url")]
        environment = {**os.environ, "TRUEODDS_ALARM_WEBHOOK": ""}
        service = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        try:
            while not (here / "url").exists():
                if service.poll() is not None:
                    raise SystemExit(f"the service ended with {service.returncode}")
                time.sleep(0.05)
            url = (here / "url").read_text().strip()
            with httpx.Client(base_url=url, timeout=60) as client:
                fill(client, here / "store.sqlite")
            with chromium.Chromium(executable) as browser:
                browser.screen(WIDTH, dark=options.dark)
                browser.open(f"{url}/calibration-report?format=html&trend=day")
                end = browser.run("document.querySelector('#time').getBoundingClientRect().bottom")
                browser.picture(here / "page.png", height=round(end) + MARGIN)
            save((here / "page.png").read_bytes(), options.out)
        finally:
            service.terminate()
            service.wait(20)


if __name__ == "__main__":
    main()
