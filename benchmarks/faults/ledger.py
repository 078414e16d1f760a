"""The client's own record: every acknowledged prediction and label, and everything sent without an answer.

`Ledger.settle` asks the service whether it knows the same, down to the last label.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.faults.process import DEAD, Answer, Client, Service
from trueodds import metrics
from trueodds.metrics import CalibrationSums

COMPARED = ("accuracy", "mean_confidence", "ece", "nll", "brier")
PAGE = 5_000


class LostError(AssertionError):
    """Something acknowledged is missing, or counts twice."""


class Ledger:
    """The record that the client threads share. `counts` shows that a check did not pass by doing nothing.

    Each thread waits for `pause` seconds after an answer.
    """

    def __init__(self, seed: int, classes: int, shape: tuple[int, int, int], pause: float = 0.0) -> None:
        self.probabilities: dict[str, list[float]] = {}
        self.labels: dict[str, int] = {}
        self.versions: dict[str, tuple[str, str]] = {}
        """Model and version that answered, by id."""
        self.answered_by: dict[str, str] = {}
        self.labelled_by: dict[str, str] = {}
        """URLs of the services that answered and that took the first label, by id."""
        self.unsure: dict[str, int] = {}
        """Labels sent without an answer, which may be stored or not until `settle` sends them again."""
        self.ambiguous_refusals = False
        """Whether a 503 may have been stored after all, because the database was cut off after a commit."""
        self.counts: Counter[str] = Counter()
        self.surprises: list[str] = []
        self._free: list[str] = []
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._seed, self._classes, self._shape, self._pause = seed, classes, shape, pause

    # The load.

    @contextmanager
    def load(self, *services: Service, predicting: int = 2, labelling: int = 2) -> Iterator[None]:
        """Run threads that predict and label, some for each service, until the block ends. All label all answers."""
        self._stop.clear()
        self._seed += 1
        work = [self._predict] * predicting + [self._label] * labelling
        places = [(task, service.url) for service in services for task in work]
        threads = [
            threading.Thread(target=task, args=(Client(url), random.Random(1000 * self._seed + k)))
            for k, (task, url) in enumerate(places)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _predict(self, client: Client, rng: random.Random) -> None:
        pixels = np.random.default_rng(rng.randrange(2**32))
        while not self._stop.is_set():
            size = rng.randint(1, 4)
            try:
                answer = client.post("/predict", {"instances": pixels.integers(0, 256, (size, *self._shape)).tolist()})
            except DEAD:
                with self._lock:
                    self.counts["images_without_answer"] += size
                if self._stop.wait(0.02):
                    break
                continue
            if answer.status == 200:
                tree = answer.json()
                with self._lock:
                    for prediction in tree["predictions"]:
                        if prediction["id"] in self.probabilities:
                            self.surprises.append(f"the id {prediction['id']} was given twice")
                        self.probabilities[prediction["id"]] = prediction["probabilities"]
                        self.versions[prediction["id"]] = tree["model"], tree["version"]
                        self.answered_by[prediction["id"]] = client.base
                        self._free.append(prediction["id"])
                self._stop.wait(self._pause)
            else:
                if self.ambiguous_refusals:
                    with self._lock:
                        self.counts["images_without_answer"] += size
                self._refused("predict", answer)
                self._stop.wait(0.01)
        client.close()

    def _label(self, client: Client, rng: random.Random) -> None:
        while not self._stop.is_set():
            rows, expected = self._take(rng)
            if not rows:
                self._stop.wait(0.002)
                continue
            given = {row["id"]: int(row["index"]) for row in rows}
            try:
                answer = client.post("/feedback", {"labels": rows})
            except DEAD:
                self._unanswered(given)
                if self._stop.wait(0.02):
                    break
                continue
            if self.ambiguous_refusals and answer.status == 503:
                self._unanswered(given)
                given = {}
            with self._lock:
                if answer.status == 200:
                    if _counts(answer) != expected:
                        self.surprises.append(f"/feedback counted {answer.body!r}, the ledger {expected}")
                    self.labels.update(given)
                    self.labelled_by = dict.fromkeys(given, client.base) | self.labelled_by
                self._free.extend(given)
            if answer.status == 200:
                self._stop.wait(self._pause)
            else:
                self._refused("feedback", answer)
                self._stop.wait(0.01)
        client.close()

    def _unanswered(self, labels: dict[str, int]) -> None:
        with self._lock:
            self.unsure.update(labels)
            self.counts["labels_without_answer"] += len(labels)

    def _take(self, rng: random.Random) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """Return ids that no other thread has, unlabelled, repeated or corrected, and the expected outcome."""
        expected = {"stored": 0, "already_known": 0, "corrected": 0, "held": 0}
        with self._lock:
            taken = [self._free.pop(rng.randrange(len(self._free))) for _ in range(min(8, len(self._free)))]
            rows: list[dict[str, Any]] = []
            for id_ in taken:
                known, label = self.labels.get(id_), rng.randrange(self._classes)
                if known is None:
                    expected["stored"] += 1
                    rows.append({"id": id_, "index": label})
                elif rng.random() < 0.2:
                    expected["already_known" if label == known else "corrected"] += 1
                    rows.append({"id": id_, "index": label, "correct": True})
                else:
                    expected["already_known"] += 1
                    rows.append({"id": id_, "index": known})
            return rows, expected

    def _refused(self, what: str, answer: Answer) -> None:
        with self._lock:
            self.counts[f"{what}_{answer.status}"] += 1
            if answer.status != 503 or "retry-after" not in answer.headers:
                self.surprises.append(f"/{what} answered {answer.status}: {answer.body[:300]!r}")

    # The reckoning.

    def settle(self, service: Service) -> None:
        """Compare with the service: every label and prediction one by one, then the sums.

        Raises:
            LostError: Something acknowledged is missing, or counts twice.
        """
        if self.surprises:
            raise LostError("; ".join(self.surprises[:5]))
        with service.client(timeout=60) as client:
            self._settle(client)
        self.counts.update(settled=1, labels_checked=len(self.labels), predictions_checked=len(self.probabilities))

    def _settle(self, client: Client) -> None:
        sure = {id_: label for id_, label in self.labels.items() if id_ not in self.unsure}
        self._agree(self._send(client, sure), {"stored": 0, "already_known": len(sure), "corrected": 0, "held": 0})
        if sum(self._send(client, self.unsure, correct=True).values()) != len(self.unsure):
            raise LostError("labels that had no answer were not taken again")
        self.labels.update(self.unsure)
        self.unsure.clear()
        late = {i: k % self._classes for k, i in enumerate(self.probabilities) if i not in self.labels}
        self._agree(self._send(client, late), {"stored": len(late), "already_known": 0, "corrected": 0, "held": 0})
        self.labels.update(late)
        self._free = list(self.labels)[-500:]  # to be repeated and corrected in the next round
        self._compare(client)

    def _send(self, client: Client, labels: dict[str, int], *, correct: bool = False) -> Counter[str]:
        rows, found = [{"id": i, "index": y, "correct": correct} for i, y in labels.items()], Counter[str]()
        for start in range(0, len(rows), PAGE):
            answer = client.post("/feedback", {"labels": rows[start : start + PAGE]})
            if answer.status != 200:
                raise LostError(f"labels of acknowledged predictions: {answer.status} {answer.body[:500]!r}")
            found.update(_counts(answer))
        return found

    def _agree(self, found: Counter[str], expected: dict[str, int]) -> None:
        if any(found[key] != expected[key] for key in expected):
            raise LostError(f"the service counted {dict(found)}, the ledger {expected}")

    def _compare(self, client: Client) -> None:
        answers, most = 0, len(self.probabilities) + self.counts["images_without_answer"]
        for key in sorted(set(self.versions.values())):
            report = client.get(f"/calibration-report?model={key[0]}&version={key[1]}").json()
            answers += report["answers"]
            self._compare_labels(report, [i for i in self.labels if self.versions[i] == key])
        if not len(self.probabilities) <= answers <= most:
            raise LostError(f"{answers} answers; the ledger has {len(self.probabilities)} to {most}")

    def _compare_labels(self, report: dict[str, Any], ids: list[str]) -> None:
        """Compare the report on one version with its labelled answers."""
        if report["labelled"] != len(ids):
            raise LostError(f"{report['labelled']} labels; the ledger has {len(ids)}")
        if not ids:
            return
        rows_NC = np.array([self.probabilities[i] for i in ids])
        expected = metrics.summary(CalibrationSums.from_probabilities(rows_NC, [self.labels[i] for i in ids]))
        for name in COMPARED:
            if not abs(report[name] - expected[name]) <= 1e-9 * max(1.0, abs(expected[name])):
                raise LostError(f"{name} is {report[name]!r}, from the ledger {expected[name]!r}")


def _counts(answer: Answer) -> dict[str, int]:
    """Return the outcomes of labels that /feedback counts."""
    return {name: count for name, count in answer.json().items() if name != "import_id"}
