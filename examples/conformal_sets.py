"""Return sets of classes that hold the true one, and watch whether they still do.

    python examples/conformal_sets.py

A small classifier of digits learns from 120 pictures. Some rows fit its calibrator, others the thresholds of the sets.
A service then watches the sets of later answers: first of clean pictures, then of noisy ones.
docs/how-to/conformal-sets.md says more.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import trueodds
from trueodds.calibrators import conformal

LEVEL = 0.9
CLASSES = [str(k) for k in range(10)]


@contextmanager
def service() -> Iterator[trueodds.Client]:
    """Run a service that only watches, and return its client."""
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        command = [sys.executable, "-m", "trueodds", "serve", "--port", "0", "--models", str(where / "none")]
        command += ["--store", str(where / "watch.sqlite"), "--url-file", str(where / "url")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not (where / "url").exists():
                if process.poll() is not None:
                    raise SystemExit(f"The service did not start. To see why, run: {' '.join(command)}")
                time.sleep(0.1)
            with trueodds.Client((where / "url").read_text().strip()) as client:
                yield client
        finally:
            process.terminate()
            process.wait()


def watched(client: trueodds.Client, name: str, labels: int) -> Any:
    """Return the report of a model, once the watch has read all labels of its sets."""
    while True:
        report: Any = client.report(model=name)
        if report.sets.levels[0].labels == labels:
            return report
        time.sleep(0.1)


def main() -> None:
    """Fit a classifier, its calibrator and its sets, and watch the sets on clean and on noisy pictures."""
    rng = np.random.default_rng(0)
    pictures_NF, digits_N = load_digits(return_X_y=True)
    order_N = rng.permutation(len(digits_N))
    x_NF, y_N = pictures_NF[order_N] / 16, digits_N[order_N]
    net = LogisticRegression(max_iter=1000).fit(x_NF[:120], y_N[:120])

    def logits(rows_NF: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return trueodds.logits_of(net.predict_proba(rows_NF))

    calibrator = trueodds.fit(logits(x_NF[120:520]), y_N[120:520], "temperature")
    own_NC, own_N = calibrator(logits(x_NF[520:1020])), y_N[520:1020]
    test_NF, test_N = x_NF[1020:], y_N[1020:]
    test_NC, inside = calibrator(logits(test_NF)), {}
    for method in ("lac", "aps", "class"):
        rule = conformal.fit(own_NC, own_N, method).at(LEVEL)
        inside[method] = rule.sets(test_NC)
        found = conformal.measure(rule, test_NC, test_N)
        lower, upper = found.interval()
        print(
            f"{method}: {found.coverage:.1%} of {found.rows} sets hold the digit ({lower:.1%} to {upper:.1%}),"
            f" {found.mean_size:.2f} digits a set; sound ones cover at least {min(rule.floors):.1%}"
        )

    one_threshold = {method: inside[method] for method in ("lac", "aps")}  # "class" has one for each digit
    models = dict.fromkeys(one_threshold, test_NC)  # one model; only its sets differ
    compared = trueodds.compare(models, test_N, sets=one_threshold, set_level=LEVEL, set_rows=len(own_N))
    print(compared.sets)

    rule = conformal.fit(own_NC, own_N, "lac").at(LEVEL)
    with service() as client:
        for name, noise in (("clean", 0.0), ("noisy", 0.35)):
            p_NC = calibrator(logits(test_NF + rng.normal(0, noise, test_NF.shape)))
            ids = [f"{name}-{n}" for n in range(len(p_NC))]
            sets = [[CLASSES[k] for k in np.flatnonzero(inside_C)] for inside_C in rule.sets(p_NC)]
            whose: Any = {"model": name, "version": "1", "classes": CLASSES}
            client.observe(ids, p_NC, sets=sets, set_level=LEVEL, set_rows=len(own_N), **whose)
            client.feedback(ids, index=test_N, model=name)
            report = watched(client, name, len(ids))
            part = report.sets.levels[0]
            print(
                f"{name} pictures: {part.coverage:.1%} covered; the alarm is {part.alarm.state}; ECE {report.ece:.3f}"
            )


if __name__ == "__main__":
    main()
