"""The papers' tables as studies: each can be meant, names what exists, and holds numbers that add up as printed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from pipeline.studies import names
from pipeline.studies.format import CALIBRATOR, Study, published_keys, read
from pipeline.studies.runs import expand, key_of
from tests.conftest import ROOT

PAPERS = ROOT / "pipeline/studies/papers"

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


def test_what_contradicts_another_table_is_named() -> None:
    """Gamma-net's Table 5 holds the differences of its Table 1; a misprint stands as printed, and is named."""
    table, differences = read("gamma-net/table1"), read("gamma-net/table5")
    assert table.published is not None and differences.published is not None
    plain = {
        (row["dataset"], row["method"]): row for row in table.published.rows if row["calibrator"] == "identity"
    }  # fmt: skip
    misprints = [
        printed
        for row in differences.published.rows
        for column in ("error_rate", "ece")
        if (printed := row[column])
        != pytest.approx(
            plain[row["dataset"], row["method"]][column] - plain[row["dataset"], "ce"][column], abs=0.0015
        )
    ]  # fmt: skip
    assert misprints == [-0.164] and any("CIFAR-100, -0.164" in line for line in differences.differs)
    assert [line for line in read("bsce-gra/table1").differs if "MMCE on Tiny-ImageNet, 14.58 and 2.99" in line]


def test_published_temperature_scaling_has_no_prior() -> None:
    """`temperature` alone shrinks by two pseudo-errors, which no paper does."""
    named = [
        f"{path.parent.name}/{path.stem}: {line}"
        for path in sorted(PAPERS.rglob("*.yaml"))
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"^  - temperature$|calibrator: temperature[,}]|calibrators: .*\btemperature[],]", line)
    ]
    assert not named


def test_figure_8_counts_right_and_wrong_rows_by_the_true_class() -> None:
    assert [figure.kind for figure in read("bsce-gra/figure8").figures] == ["outcomes"]


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
