"""The file of a study: its runs, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.studies.format import StudyError, columns, parse, read
from pipeline.studies.runs import expand
from tests.conftest import ROOT
from trueodds.errors import ConfigError

PARAMS = ROOT / "params.yaml"
SMALL: dict[str, Any] = {"title": "small", "vary": {"method": ["ce", "fl3"], "seed": [0, 1]}}


def names(**changes: Any) -> list[str]:
    return [run.name for run in expand(parse({**SMALL, **changes}), PARAMS)]


def test_runs_are_the_product_of_the_axes() -> None:
    assert names() == ["method=ce seed=0", "method=ce seed=1", "method=fl3 seed=0", "method=fl3 seed=1"]
    joint = {"vary": {"dataset, net": [["cifar10", "resnet8"], ["digits", "resnet20"]], "seed": [3]}}
    assert names(**joint) == ["dataset=cifar10 net=resnet8 seed=3", "dataset=digits net=resnet20 seed=3"]
    assert names(**{"except": [{"method": "fl3", "seed": 1}]}) == names()[:3]
    assert names(runs=[{"method": "brier", "epochs": 2}])[-1] == "method=brier epochs=2"
    options = {"vary": {"method_options.gamma": [1, 2.5]}, "hold": {"method": "focal"}}
    runs = expand(parse({**SMALL, **options}), PARAMS)
    assert [run.params.training.method_options for run in runs] == [{"gamma": 1}, {"gamma": 2.5}]
    assert runs[0].matches({"method": "focal"}) and not runs[0].matches({"method": "ce"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vary": {"methd": ["ce"]}}, r"unknown parameter 'methd'; .* Did you mean 'method'\?"),
        ({"hold": {"epoch": 3}}, r"unknown parameter 'epoch'; .* Did you mean 'epochs'\?"),
        ({"vary": {"seed": []}}, "vary: seed has no value, so there is no run; add a value or remove it"),
        ({"vary": {}}, "neither vary nor runs, so there is no run"),
        ({"vary": {"dataset, net": [["digits"]]}}, r"vary: dataset, net has \['digits'\]; allowed are lists of 2"),
        ({"vary": {"seed": [1], "net, seed": [["resnet8", 2]]}}, "vary has 'seed' in two axes; list it once"),
        ({"vary": {"seed": [1, 1]}}, "the runs 'seed=1' and 'seed=1' have the same settings; remove one"),
        ({"runs": [{"seed": 0, "method": "ce"}]}, "'method=ce seed=0' and 'seed=0 method=ce' have the same settings"),
        ({"except": [{"seed": 0}, {"seed": 1}]}, "except leaves out every run; leave out fewer"),
        ({"baseline": {"method": "brier"}}, r"no run has the baseline's \{'method': 'brier'\}"),
        ({"report": ["ecee"]}, r"unknown column in report 'ecee'; .* Did you mean 'ece'\?"),
        ({"calibrators": ["temprature"]}, r"unknown calibrator in compare 'temprature'.* Did you mean 'temperature'\?"),
        ({"colour": 1}, r"unknown key 'colour'; allowed: title, .*except"),
        ({"title": ""}, "title: String should have at least 1 character"),
        ({"vary": {"epochs": ["many"]}}, "training.epochs = 'many': allowed is a whole number"),
        (
            {"published": {"rows": [{"method": "ce", "ece": 1.5}, {"method": "fl3", "ece": 2}], "sums": {"ece": 3}}},
            "the published ece add up to 3.5, but sums gives 3; correct one",
        ),
        ({"published": {"rows": [{"method": "ce", "mce": 1}]}}, "published row 0: unknown key 'mce'"),
        (
            {"published": {"rows": [{"method": "ce", "calibrator": "vector", "ece": 1}]}},
            "published row 0: unknown calibrator 'vector'; allowed: identity",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        names(**changes)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"nothing\.yaml does not exist; give the \.yaml file of a study"):
        read(str(tmp_path / "nothing.yaml"))
    with pytest.raises(StudyError, match=r"unknown study 'focal/tabel1'; .* Did you mean 'focal/table1'\? Or give a"):
        read("focal/tabel1")
    path = tmp_path / "a.yaml"
    for text, message in (
        ("- 1", "must contain keys such as title"),
        ("a: [", "cannot be read as YAML"),
        ("", "must contain keys such as title"),
    ):
        path.write_text(text)
        with pytest.raises(StudyError, match=message):
            read(str(path))


def test_columns_are_those_of_a_measurement() -> None:
    assert {"ece", "error_rate", "nll", "adaptive_ece", "classwise_ece", "mce", "temperature", "sweep_ece"} <= columns()
