"""The flow's view of DVC's graph."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from pipeline.flows import graph
from tests.conftest import ROOT
from trueodds.errors import ConfigError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    Repo.init(str(tmp_path), no_scm=True).close()
    return tmp_path


def write(folder: Path, stages: dict[str, object]) -> None:
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))


def test_the_projects_own_graph() -> None:
    stages = {stage.name: stage for stage in graph.read(ROOT)}
    assert list(stages) == ["fetch", "plan", "train", "calibrate", "shift", "evaluate", "export"]
    assert stages["export"].needs == ("calibrate", "evaluate", "fetch", "train")
    assert stages["train"].meta.tags == ["gpu"] and stages["train"].meta.concurrency == "gpu"
    assert stages["train"].meta.retries >= 1


def test_the_current_directory_does_not_matter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert graph.read(ROOT)[0].name == "fetch"


def test_matrix_data_files_and_nested_files(repository: Path) -> None:
    (repository / "raw.txt").write_text("raw")
    with Repo(str(repository)) as repo:
        repo.add(str(repository / "raw.txt"))
    each = {
        "matrix": {"k": [1, 2]},
        "cmd": "echo ${item.k} > out${item.k}",
        "deps": ["raw.txt"],
        "outs": ["out${item.k}"],
    }
    write(repository, {"each": each, "all": {"cmd": "cat out1 out2", "deps": ["out1", "out2"]}})
    (repository / "sub").mkdir()
    write(repository / "sub", {"late": {"cmd": "cat ../out1", "deps": ["../out1"], "meta": {"tags": ["x"]}}})
    stages = {stage.name: stage for stage in graph.read(repository)}
    assert set(stages) == {"each@1", "each@2", "all", "sub/dvc.yaml:late"}
    assert stages["all"].needs == ("each@1", "each@2") and stages["each@1"].needs == ()
    assert stages["sub/dvc.yaml:late"].needs == ("each@1",)
    order = list(stages)
    assert order.index("all") > order.index("each@2")


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"retry": 2}, "stage a, meta: unknown key 'retry'; allowed: tags, retries, .* Did you mean 'retries'"),
        ({"retries": -1}, "retries = -1: .*greater than or equal to 0"),
        ({"timeout_seconds": 0}, "timeout_seconds = 0: .*greater than 0"),
        ({"tags": "gpu"}, "tags = 'gpu': .*list"),
        (["gpu"], "meta = .*"),
    ],
)
def test_a_bad_meta_is_named(repository: Path, meta: object, message: str) -> None:
    write(repository, {"a": {"cmd": "true", "meta": meta}})
    with pytest.raises(ConfigError, match=message):
        graph.read(repository)


def test_a_bad_file_is_named(repository: Path) -> None:
    (repository / "dvc.yaml").write_text("stages: [")
    with pytest.raises(ConfigError, match=r"dvc\.yaml"):
        graph.read(repository)
