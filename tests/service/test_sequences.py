"""Any sequence of predictions, labels, repetitions, conflicts and corrections: the report is that of a plain model.

schemathesis (test_openapi.py) makes single requests, whose ids are never those of a prediction; here ids are.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from service.app import create_app
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.tiny_bundle import CLASSES, pictures, write_bundle
from trueodds import metrics
from trueodds.bundle import open_models
from trueodds.metrics import CalibrationSums

CLASS = st.integers(0, len(CLASSES) - 1)


class Sequence(RuleBasedStateMachine):
    ids = Bundle("ids")

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        here = Path(self.folder.name)
        open_models(here / "models").publish(write_bundle(here / "bundle"))
        self.client = Client(create_app(Settings(models=here / "models", store=here / "s.sqlite", threads=1)))
        self.client.__enter__()
        self.rows: dict[str, list[float]] = {}
        self.labels: dict[str, int] = {}

    @rule(target=ids, count=st.integers(1, 5), seed=st.integers(0, 1000))
    def predict(self, count: int, seed: int) -> Any:
        predictions = self.client.predict(pictures(count, seed=seed))
        assert not {p["id"] for p in predictions} & self.rows.keys()
        self.rows |= {p["id"]: p["probabilities"] for p in predictions}
        return multiple(*(p["id"] for p in predictions))

    @rule(id_=ids, label=CLASS, by_name=st.booleans(), correct=st.booleans())
    def label(self, id_: str, label: int, by_name: bool, correct: bool) -> None:
        known = self.labels.get(id_)
        class_ = {"label": CLASSES[label]} if by_name else {"index": label}
        row = {"id": id_, **class_, "correct": correct}
        answer = self.client.post("/feedback", json=row)
        if known not in (None, label) and not correct:
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflicting_label")
            return
        outcome = "stored" if known is None else "already_known" if known == label else "corrected"
        counts = {"stored": 0, "already_known": 0, "corrected": 0, "held": 0} | {outcome: 1}
        assert answer.json() == {**counts, "import_id": answer.headers["x-import-id"]}
        self.labels[id_] = label

    @rule(good=st.lists(ids, min_size=1, max_size=4), label=CLASS, bad=st.sampled_from(["id", "class", "shape"]))
    def a_batch_with_a_bad_row_changes_nothing(self, good: list[str], label: int, bad: str) -> None:
        rows: list[dict[str, Any]] = [{"id": id_, "index": label, "correct": True} for id_ in good]
        wrong: dict[str, dict[str, Any]] = {
            "id": {"id": "nobody", "index": 0},
            "class": {"id": good[0], "index": len(CLASSES)},
            "shape": {"id": good[0]},
        }
        rows.append(wrong[bad])
        answer = self.client.post("/feedback", json={"labels": rows})
        assert answer.status_code == (404 if bad == "id" else 422)
        assert answer.json()["error"]["problem_count"] == 1

    @precondition(lambda self: hasattr(self, "client"))
    @invariant()
    def the_report_is_that_of_the_model(self) -> None:
        report = self.client.report()
        assert (report["answers"], report["labelled"]) == (len(self.rows), len(self.labels))
        if not self.labels:
            return
        rows = [self.rows[id_] for id_ in self.labels]
        expected = metrics.summary(CalibrationSums.from_probabilities(rows, list(self.labels.values())))
        for name in ("accuracy", "mean_confidence", "ece", "nll", "brier"):
            assert abs(report[name] - expected[name]) < 1e-9

    def teardown(self) -> None:
        if hasattr(self, "client"):
            self.client.__exit__()
            self.folder.cleanup()


TestSequence = Sequence.TestCase
TestSequence.settings = settings(
    max_examples=6,
    stateful_step_count=15,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
