"""How long the runs that are left take: by their work from measured ones, or not known; and what attempts took."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import config
from pipeline.studies import command, duration, running
from pipeline.studies.duration import Attempts
from pipeline.studies.format import parse
from pipeline.studies.kept_runs import KEY
from pipeline.studies.runs import FOLDER, RUN, Place, Run, expand
from tests.conftest import ROOT
from trueodds.errors import UserError
from trueodds.files import read_json, write_json


def runs(**vary: list[Any]) -> list[Run]:
    return expand(parse({"title": "small", "vary": vary}), ROOT / "params.yaml")


def places(home: Path, of: list[Run], done: int, seconds: float = 60.0) -> list[Place]:
    found = [Place(run, f"key{k}", home / FOLDER / f"key{k}") for k, run in enumerate(of)]
    for place in found[:done]:
        place.folder.mkdir(parents=True)
        work = duration.work_of(place.run.params, None)
        assert work is not None
        write_json(place.folder / RUN, {"seconds": seconds, "work": vars(work)})
    return found


def test_by_flops_rows_and_epochs(tmp_path: Path) -> None:
    of = runs(epochs=[10, 20, 5], train_size=[None])
    found = running.estimate(tmp_path, places(tmp_path, of, 1))
    assert (found.runs, found.n_done, found.unknown) == (3, 1, 0) and found.seconds == pytest.approx(60 * 2 + 60 / 2)
    wider = runs(epochs=[10], width=[16, 32])
    two = places(tmp_path / "wider", wider, 1)
    works = [duration.work_of(place.run.params, None) for place in two]
    assert works[0] and works[1] and 3 < works[1].total / works[0].total < 4.5, "FLOPs grow with the width's square"
    assert running.estimate(tmp_path / "wider", two).seconds == pytest.approx(60 * works[1].total / works[0].total)


def test_weeks_are_not_scaled_from_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One digits run of a minute says nothing of a ResNet-50 on CIFAR-100 for 350 epochs."""
    small = places(tmp_path, runs(epochs=[10, 20]), 1)
    big = runs(dataset=["cifar100"], net=["resnet50"], recipe=["papers-350"], seed=[0, 1])
    far = running.estimate(tmp_path, [*small, *(Place(run, run.name, tmp_path / run.name) for run in big)])
    assert (far.runs, far.n_done, far.unknown) == (4, 1, 2) and far.seconds == pytest.approx(120)
    words = command.plan_words(far)
    assert "1 of the others will take about 2 minutes" in words and "for 2 it is unknown: no similar run" in words
    assert "is unknown" in command.plan_words(running.estimate(tmp_path / "empty", small[1:]))


def test_another_device_or_kind_of_rows_is_no_measure(tmp_path: Path) -> None:
    (place,) = places(tmp_path, runs(epochs=[10]), 1)
    record = place.record()
    assert duration.seconds_of(place.run.params, [record]) == 60
    for change in ({"device": "another"}, {"kind": "vector"}, {"rows": 1}):
        assert duration.seconds_of(place.run.params, [{**record, "work": {**record["work"], **change}}]) is None
    cached = {**record, "seconds": None}
    assert duration.seconds_of(place.run.params, [cached]) is None, "DVC's cache had the net"


def test_the_nearest_work_counts_and_then_the_method(tmp_path: Path) -> None:
    (place,) = places(tmp_path, runs(epochs=[10]), 1)
    record = place.record()

    def other(seconds: float, **work: Any) -> dict[str, Any]:
        return {"seconds": seconds, "work": {**record["work"], **work}}

    records = [other(10, epochs=5), other(90, method="meta"), other(60), other(70)]
    assert duration.seconds_of(place.run.params, records) == 65
    assert duration.seconds_of(place.run.params, records[:2]) == 90
    assert duration.seconds_of(place.run.params, records[:1]) == 20


def test_own_data_are_known_by_a_run_of_them(workspace: Path) -> None:
    np.savez(workspace / "datasets" / "mine.npz", x_train=np.zeros((8, 4, 4, 1), np.uint8), y_train=np.arange(8) % 2)
    of = [config.load("params.yaml", {"dataset": "mine", "seed": seed}) for seed in (0, 1)]
    assert duration.work_of(of[1], None) is None
    card = {"input": {"kind": "image", "channels": 3, "height": 16, "width": 16}, "splits": {"train": 500}}
    found = duration.to_record(of[0], card)
    assert found is not None and found["rows"] == 500
    assert duration.seconds_of(of[1], [{"seconds": 9.0, "work": found}]) == 9
    part = config.load("params.yaml", {"dataset": "mine", "train_size": 250})
    found_part = {**found, "whole": False, "rows": 250}
    assert duration.seconds_of(part, [{"seconds": 4.0, "work": found_part}]) == 4
    assert duration.seconds_of(of[1], [{"seconds": 4.0, "work": found_part}]) is None, "the number of rows is unknown"


def test_all_attempts_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log = [1000.0], tmp_path / "log"
    monkeypatch.setattr("pipeline.studies.duration.time.time", lambda: clock[0])
    Attempts(tmp_path / "a", log)
    log.touch()
    os.utime(log, (1030, 1030))  # killed after 30 seconds
    clock[0] = 5000
    second = Attempts(tmp_path / "a", log)
    clock[0] = 5010
    second.stop()
    clock[0] = 9000
    third = Attempts(tmp_path / "a", log)
    clock[0] = 9005
    assert third.seconds() == 45


def test_a_failed_attempt_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place,) = places(tmp_path, runs(epochs=[10]), 0)
    monkeypatch.setattr("pipeline.flows.workspace.open_workspace", lambda *_: (_ for _ in ()).throw(UserError("no")))
    for _ in range(2):
        with pytest.raises(UserError):
            running.run_one(tmp_path, place)
    assert 0 < read_json(place.folder.with_suffix(".attempts.json"))["spent"] < 5


def test_only_a_kept_run_of_another_processor_asks_for_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask loads torch, which takes longer than the rest of a dry run."""
    asked: list[str] = []

    def processor(device: str = "cpu") -> str:
        asked.append(device)
        return "a CPU"

    monkeypatch.setattr(running, "processor", processor)
    of = places(tmp_path, runs(epochs=[10, 20]), 1)
    running.estimate(tmp_path, of)
    assert not asked
    for made_on, devices in (("a CPU", ["cpu"]), ("a GPU", ["cpu", "auto"])):
        record = read_json(of[0].folder / RUN)
        write_json(of[0].folder / RUN, {**record, KEY: "key0", "machine": {"processor": made_on}})
        asked.clear()
        running.estimate(tmp_path, of)
        assert asked == devices
