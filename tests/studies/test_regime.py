"""The search for over-confident nets: its rule, its order, its data set, and the setting of the studies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.training import noisy_digits, regime, studies, subset
from benchmarks.training.regime import Candidate
from pipeline.data import embedded, npz
from pipeline.data.raw import Raw
from pipeline.studies import format as study_format
from pipeline.studies import runs
from pipeline.studies.runs import Place
from tests.conftest import ROOT
from tools.tables.results import FOLDER
from trueodds.files import read_json


def candidate(ece: float, train_error: float, **setting: Any) -> Candidate:
    return Candidate(setting, 1e9, 60.0, train_error, 0.4, 1.4, ece, 0.04)


@pytest.mark.parametrize(
    ("ece", "train_error", "holds"), [(0.1, 0.01, True), (0.099, 0.01, False), (0.1, 0.02, False), (0.5, 0.5, False)]
)
def test_the_rule(ece: float, train_error: float, holds: bool) -> None:
    assert candidate(ece, train_error).is_over_confident is holds


PARAMS = ROOT / "params.yaml"


def places() -> list[Place]:
    study = study_format.read(str(regime.SEARCHES[subset.NAME].file))
    expanded = runs.expand(study, ROOT / "params.yaml")
    return [Place(run, run.name, Path("none") / run.name) for run in expanded]


def test_the_search_tries_the_least_work_first_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout has no data set of this name before the first run, so the test has a small one."""
    (tmp_path / "datasets").mkdir()
    images_N = np.zeros((4, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "datasets" / f"{subset.NAME}.npz", x_train=images_N, y_train=np.arange(4) % 2)
    monkeypatch.chdir(tmp_path)
    of = places()
    assert {place.run.overrides["seed"] for place in of} == {100} and len(of) > 4
    tried: list[str] = []

    def measure(place: Place) -> Candidate:
        tried.append(place.key)
        return candidate(0.2, 0.0 if len(tried) == 3 else 0.3, **{leaf: place.run.overrides[leaf] for leaf in leaves})

    leaves = regime.LEAVES
    found = regime.search(of[::-1], measure, (3, 32, 32))
    assert len(found) == len(tried) == 3 and tried[0] == "train_size=5000 width=8 epochs=20 batch_size=128"
    work = [one.setting["train_size"] * one.setting["epochs"] * one.setting["width"] ** 2 for one in found]
    assert work == sorted(work)
    result = regime.result_of(found)
    assert result["chosen"] == found[-1].setting and [one["holds"] for one in result["tried"]] == [False, False, True]
    assert regime.result_of(found[:2])["chosen"] is None
    assert regime.markdown(result).count("does not hold") == 2


def test_the_studies_use_other_seeds_and_one_setting() -> None:
    held = []
    for name in studies.ORDER:
        study = study_format.read(str(studies.FILES / f"{name}.yaml"))
        assert 100 not in study.vary["seed"]
        if study.hold["dataset"] == subset.NAME:
            held.append(study.hold)
    assert len(held) > 4 and all(one == held[0] for one in held)


@pytest.mark.parametrize(("result", "name"), [("regime", "overfit"), ("noisy_digits_regime", "noisy-digits")])
def test_the_setting_of_the_studies_is_the_one_that_the_search_chose(result: str, name: str) -> None:
    assert name in studies.MAIN
    chosen = read_json(FOLDER / f"{result}.json")["chosen"]
    study = study_format.read(str(studies.FILES / f"{name}.yaml"))
    assert {leaf: study.hold[leaf] for leaf in chosen} == chosen


def test_the_subset_has_every_fifth_class(tmp_path: Path) -> None:
    labels = np.arange(30) % 15
    images = np.broadcast_to(labels[:, None, None, None], (30, 2, 2, 3)).astype(np.uint8)
    raw = Raw(images, labels, images[:15], labels[:15], tuple(f"c{k}" for k in range(15)))
    found = npz.read(subset.write(tmp_path / "x.npz", raw))
    assert found.classes == ("c0", "c5", "c10")
    assert (
        found.y_train.tolist() == [0, 1, 2, 0, 1, 2] and found.y_test is not None and found.y_test.tolist() == [0, 1, 2]
    )
    assert isinstance(found.x_train, np.ndarray) and found.x_train[:, 0, 0, 0].tolist() == [0, 5, 10, 0, 5, 10]


def test_one_label_in_ten_of_each_split_is_wrong(tmp_path: Path) -> None:
    found = npz.read(noisy_digits.prepare(tmp_path))
    clean = embedded.read_digits()
    assert found.classes == clean.classes
    assert np.array_equal(found.x_train, clean.x_train)  # type: ignore[arg-type]
    for ours, true in ((found.y_train, clean.y_train), (found.y_test, clean.y_test)):
        assert ours is not None
        assert true is not None
        assert (ours != true).sum() == round(0.1 * len(true))
    off = (found.y_train - clean.y_train)[found.y_train != clean.y_train] % 10
    assert set(off.tolist()) == set(range(1, 10)), "every other class occurs"


def test_the_plain_runs_of_ensembles_are_those_of_the_main_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal settings have equal keys, so these runs are not trained twice."""
    (tmp_path / "datasets").mkdir()
    np.savez(tmp_path / "datasets" / f"{subset.NAME}.npz", x_train=np.zeros((4, 32, 32, 3), np.uint8))
    monkeypatch.chdir(tmp_path)
    of = {
        name: [run.params for run in runs.expand(study_format.read(str(studies.FILES / f"{name}.yaml")), PARAMS)]
        for name in ("nets", "overfit")
    }
    assert sum(params in of["overfit"] for params in of["nets"]) == 5
