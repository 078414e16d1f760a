"""A calibrated and a drifting stream through two real workers: late and few labels, a kill -9 in the middle."""

from __future__ import annotations

import asyncio
import heapq
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from benchmarks.faults.process import Service
from service.alarm import ALARM, AlarmState
from service.settings import Settings
from service.store import open_store
from service.store.rows import LabelBlock
from tests.service.alarms import ACKNOWLEDGE
from tests.service.hooks import Hook, until
from tests.service.tiny_bundle import CLASSES, pictures, write_bundle
from trueodds.bundle import open_models
from trueodds.metrics import EProcess, blocks

IMAGES, LABELLED, DELAY = 256, 0.05, 5.0
"""Images in a call, share of the answers that get a label, and after how many calls on average."""


@dataclass
class Stream:
    """Answers of one model, a few of which get labels, late and in another order."""

    model: str
    seed: int
    gap: float = 0.0
    """How much less often an answer is right than it says."""
    calls: int = 0
    waiting: list[tuple[float, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def go_on(self, service: Service, calls: int) -> None:
        for _ in range(calls):
            self.calls += 1
            body = {"instances": pictures(IMAGES, seed=1000 * self.seed + self.calls)}
            answer = service.post(f"/predict?model={self.model}", body)
            assert answer.status == 200, answer.body
            for prediction in answer.json()["predictions"]:
                if self._rng.random() < LABELLED:
                    right = self._rng.random() < prediction["confidence"] - self.gap
                    label = (prediction["index"] + (0 if right else 1)) % len(CLASSES)
                    heapq.heappush(self.waiting, (self.calls + self._rng.exponential(DELAY), prediction["id"], label))
            due = []
            while self.waiting and self.waiting[0][0] <= self.calls:
                due.append(heapq.heappop(self.waiting))
            if due:
                rows = [{"id": id_, "index": label} for _, id_, label in due]
                assert service.post("/feedback", {"labels": rows}).status == 200


def alarm(service: Service, model: str) -> dict[str, Any]:
    part: dict[str, Any] = service.get(f"/calibration-report?model={model}").json()["alarm"]
    return part


def kill_all(service: Service) -> None:
    """The supervisor first, so that it starts no new workers."""
    workers = psutil.Process(service.pid).children(recursive=True)
    service.kill()
    for worker in workers:
        worker.kill()
    psutil.wait_procs(workers, 10)


async def logged(store: str, model: str, version: str) -> tuple[LabelBlock, AlarmState]:
    opened = await open_store(store)
    try:
        tree = await opened.read_state(model, version, ALARM)
        return await opened.read_labels(model, version), AlarmState.read(tree, Settings())
    finally:
        await opened.close()


@pytest.mark.full
def test_two_streams_through_a_kill(tmp_path: Path) -> None:
    for seed, name in enumerate(("sound", "drift")):
        open_models(tmp_path / "models").publish(write_bundle(tmp_path / f"bundle-{name}", name=name, seed=seed))
    sound, drift = Stream("sound", 1), Stream("drift", 2)
    with Hook(answers=[500]) as hook:
        options = ("--workers", "2", "--alarm-webhook", hook.url)
        with Service(tmp_path, tmp_path / "models", *options) as service:
            service.start().until(200)
            for stream in (sound, drift):
                stream.go_on(service, 30)
            assert alarm(service, "drift")["state"] == "quiet" == alarm(service, "sound")["state"]
            drift.gap = 0.35
            while not hook.calls:
                drift.go_on(service, 2)
                assert drift.calls < 200
            kill_all(service)  # the news is not taken yet, and a worker may have claimed it
            service.start().until(200)
            fired = alarm(service, "drift")
            assert fired["state"] == "fired"
            for stream in (sound, drift):
                stream.go_on(service, 20)
            until(lambda: len(hook.calls) >= 2)
            body = {"model": "drift", "version": hook.calls[0].body["version"], "who": "Ada", "why": "recalibrating"}
            acknowledged = service.post(ACKNOWLEDGE, body)
            assert acknowledged.status == 200 and acknowledged.json()["state"] == "acknowledged"
            kill_all(service)
            service.start().until(200)
            drift.go_on(service, 10)
            labels = {m: service.get(f"/calibration-report?model={m}").json()["labelled"] for m in ("sound", "drift")}
            until(lambda: {m: alarm(service, m)["nulls"][0]["labels"] for m in labels} == labels)
            after, quiet = alarm(service, "drift"), alarm(service, "sound")
            metrics = service.get("/metrics").body.decode()
            versions = {m: service.get(f"/calibration-report?model={m}").json()["version"] for m in labels}
            log = service.log()
    assert quiet["state"] == "quiet" and labels["sound"] > 400
    assert (after["state"], after["nulls"][0]["acknowledged"]["who"]) == ("acknowledged", "Ada")
    assert after["nulls"][0]["fired_at"] == fired["nulls"][0]["fired_at"]
    assert f'trueodds_calibration_alarm{{model="drift",version="{versions["drift"]}"}} 3.0' in metrics
    assert f'trueodds_calibration_alarm{{model="sound",version="{versions["sound"]}"}} 0.0' in metrics
    assert len(hook.calls) == 2 and len({call.body["id"] for call in hook.calls}) == 1
    assert hook.calls[0].ended <= hook.calls[1].began and hook.calls[1].body["model"] == "drift"
    assert "Traceback" not in log
    for model, version in versions.items():
        log_block, state = asyncio.run(logged(service.store, model, version))
        assert len(log_block) == labels[model] == state.labels
        for null in ("ece", "point"):
            process, first = EProcess.start(null), None
            for block in blocks(log_block.confidence_L, log_block.first_correct_L):
                process = process.advance(block)
                if first is None and block.n == 20 and process.is_alarmed():
                    first = process.labels
            assert state.log_e(null) == pytest.approx(process.log_e, abs=1e-9)
            firing = state.nulls[null].fired
            assert (firing.after if firing else None) == first
    assert hook.calls[0].body["log_e"] >= math.log(20)
