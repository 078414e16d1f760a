"""The papers' tables as studies: each can be meant, names what exists, and holds numbers that add up as printed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeline.studies.expansion import expand
from pipeline.studies.format import CALIBRATOR, Study, names, published_keys, read
from pipeline.studies.keys import key_of
from tests.conftest import ROOT

FAST = "gamma-net/table1"
"""The one that `make test` reads; all take half a minute."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name != FAST else ()) for name in names()]
)
def test_a_paper_s_table(name: str) -> None:
    study = read(name)
    assert study.source is not None and f"{study.source.paper}/{study.source.place}" == name
    runs = expand(study, ROOT / "params.yaml")
    if study.published is None:
        assert not study.source.place.startswith("table") and (study.figures or study.choose)
        return
    assert study.published is not None
    numbers = {column for row in study.published.rows for column in row if column in study.report}
    assert numbers and set(study.published.sums) == numbers
    for row in study.published.rows:
        leaves = {key: value for key, value in row.items() if key not in published_keys(study)}
        assert any(run.matches(leaves) for run in runs), f"nothing is run for {row}"
    assert len({_place(study, row) for row in study.published.rows}) == len(study.published.rows)


def _place(study: Study, row: dict[str, object]) -> tuple[object, ...]:
    numbers = set(published_keys(study)) - {CALIBRATOR}
    return tuple(sorted((key, str(value)) for key, value in row.items() if key not in numbers))


@pytest.mark.full
def test_every_run_of_every_table_can_be_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of one paper share their runs: what one has run, another finds done. ImageNet is the user's own folder."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TRUEODDS_DATA", str(tmp_path))
    (tmp_path / "imagenet" / "train" / "n01440764").mkdir(parents=True)
    keys: Counter[str] = Counter()
    for name in names():
        of_study = [key_of(run.params) for run in expand(read(name))]
        assert len(set(of_study)) == len(of_study), name
        keys.update(of_study)
    assert max(keys.values()) > 5


def test_the_numbers_are_those_of_the_paper() -> None:
    study = read("focal/table1")
    assert study.published is not None
    row = {"dataset": "cifar100", "net": "resnet50", "method": "fla53", "calibrator": "temperature objective=ece"}
    assert {**row, "ece": 2.0, "temperature": 1.1} in study.published.rows
