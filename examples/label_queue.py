"""Label few answers: draw which ones, let a person label them from a queue, and add the labels of a judge.

    python examples/label_queue.py

A classifier of digits gives 1,200 answers, and nobody knows their labels. The service draws about 150 of them. A person
labels these, here by looking up the truth. A judge, here a larger classifier, labels all answers, with errors. The
report combines both.
docs/how-to/label-few-answers.md and docs/how-to/judges-labels.md say more.
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
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import trueodds

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


def main() -> None:
    """Observe answers, draw some, label them, add a judge's labels, and print what both say about all answers."""
    rng = np.random.default_rng(0)
    pictures_NF, digits_N = load_digits(return_X_y=True)
    order_N = rng.permutation(len(digits_N))
    x_NF, y_N = pictures_NF[order_N] / 16, digits_N[order_N]
    net = LogisticRegression(max_iter=1000).fit(x_NF[:80], y_N[:80])
    larger = LogisticRegression(max_iter=1000).fit(x_NF[:597], y_N[:597])
    x_NF, y_N = x_NF[597:], y_N[597:]
    p_NC, ids = net.predict_proba(x_NF), [f"d-{n}" for n in range(len(x_NF))]
    truth = dict(zip(ids, [CLASSES[k] for k in y_N], strict=True))

    with service() as client:
        whose: Any = {"model": "digits", "version": "1"}
        client.observe(ids, p_NC, classes=CLASSES, **whose)
        drawn = client.draw_label_queue(150, who="Ada", goal="ece", **whose)
        print(
            f"{drawn['sample_size']} of {drawn['answers']} answers drawn, with propensities from"
            f" {drawn['smallest_propensity']:.3f} to {drawn['largest_propensity']:.3f}"
        )
        leased = client.lease_answers("Ada", count=1000, **whose)["answers"]
        client.label_answers({one["id"]: truth[one["id"]] for one in leased}, who="Ada", **whose)
        client.judge(dict(zip(ids, [CLASSES[k] for k in larger.predict(x_NF)], strict=True)), model="digits")

        report: Any = client.report(**whose)
        weighted, both = report.labelling.weighted[0], report.judge.accuracy
        ece = f"{weighted.ece_estimate:.3f} ({weighted.ece_lower:.3f} to {weighted.ece_upper:.3f})"
        print(f"ECE of all answers, by weighted human labels: {ece}")
        alone = f"{both.human_value:.1%} ({both.human_lower:.1%} to {both.human_upper:.1%})"
        print(f"Accuracy, by human labels alone: {alone}")
        print(f"With the judge's labels: {both.value:.1%} ({both.lower:.1%} to {both.upper:.1%})")
        print(f"They are worth {both.saving:.1f} times as many human labels.")
        print(f"The judge agrees with {report.judge.agreement:.1%} of the human labels.")
        print(f"In truth, {(p_NC.argmax(axis=1) == y_N).mean():.1%} of the answers are right.")


if __name__ == "__main__":
    main()
