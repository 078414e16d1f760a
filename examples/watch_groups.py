"""Watch groups of answers: an alarm for each tag and class, and an audit that looks for the worst group.

    python examples/watch_groups.py

A model of breast tumours has a small error as a whole. At one clinic an old scanner makes its confidence too high. The
service marks that clinic. The audit looks for the worst group by itself, among columns of a table.
docs/how-to/monitor.md and docs/explanation/alarm.md say more.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import trueodds

CLASSES = ["malignant", "benign"]
REPEATS = 6
"""Number of times that each test row is seen, with new noise."""


@contextmanager
def service(folder: Path) -> Iterator[trueodds.Client]:
    """Run a service that only watches, and return its client."""
    command = [sys.executable, "-m", "trueodds", "serve", "--port", "0", "--models", str(folder / "none")]
    command += ["--store", str(folder / "watch.sqlite"), "--url-file", str(folder / "url")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (folder / "url").exists():
            if process.poll() is not None:
                raise SystemExit(f"The service did not start. To see why, run: {' '.join(command)}")
            time.sleep(0.1)
        with trueodds.Client((folder / "url").read_text().strip()) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def watched(client: trueodds.Client, labels: int) -> Any:
    """Return the report, once the watch has read all labels."""
    while True:
        report: Any = client.report(model="tumours")
        if report.groups.labels == labels:
            return report
        time.sleep(0.1)


def main() -> None:
    """Send answers of three clinics with their labels, print the marks, and audit a table of the same answers."""
    rng = np.random.default_rng(0)
    data = load_breast_cancer()
    order_N = rng.permutation(len(data.target))
    x_NF = ((data.data - data.data.mean(axis=0)) / data.data.std(axis=0))[order_N][:, :4]
    y_N = data.target[order_N]
    net = LogisticRegression(C=0.1).fit(x_NF[:200], y_N[:200])

    x_NF, y_N = np.tile(x_NF[200:], (REPEATS, 1)), np.tile(y_N[200:], REPEATS)
    clinic_N = rng.choice(["north", "south", "west"], len(y_N), p=[0.4, 0.4, 0.2])
    noise_N = np.where(clinic_N == "west", 2.0, 0.1)  # an old scanner
    p_NC = net.predict_proba(x_NF + rng.normal(size=x_NF.shape) * noise_N[:, None])
    ids = [f"t-{n}" for n in range(len(y_N))]

    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        with service(where) as client:
            client.observe(ids, p_NC, tags=clinic_N.tolist(), model="tumours", version="1", classes=CLASSES)
            client.feedback(ids, index=y_N, model="tumours")
            report = watched(client, len(ids))
            print(f"All answers: ECE {report.ece:.3f}")
            for one in report.groups.groups:
                print(f"{one.about} {one.name}: {one.labels} labels, {'MARKED' if one.is_marked else 'not marked'}")

        table = where / "tumours.csv"
        with table.open("w", newline="") as file:
            rows = zip(
                *p_NC.T.tolist(), [CLASSES[k] for k in y_N], clinic_N, rng.integers(30, 80, len(y_N)), strict=True
            )
            csv.writer(file).writerows([(*CLASSES, "label", "clinic", "age"), *rows])
        audit = [sys.executable, "-m", "trueodds", "audit", str(table), "--features", "clinic,age"]
        audit += ["--classes", ",".join(CLASSES)]
        print(subprocess.run(audit, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
