"""`trueodds init`: a folder of one's own, in which `dvc repro` runs the installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipeline import starter
from pipeline.stages import STAGES
from tests.conftest import NO_PART, ROOT, copy_of_repository, environment
from tests.test_stages import hashes
from tools.starter import FOLDER, texts


def test_its_files_are_those_of_the_repository() -> None:
    shown = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.yaml")}
    assert shown == texts(), "stale: make docs"


def test_its_graph_has_every_stage_and_no_source_file() -> None:
    graph = yaml.safe_load((FOLDER / starter.FILES["dvc.yaml"]).read_text(encoding="utf-8"))["stages"]
    ours = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert list(graph) == ["code", *STAGES]
    for name in STAGES:
        code = [dep for dep in ours[name]["deps"] if dep.startswith(("pipeline", "trueodds"))]
        hashes = [f"artifacts/code/{name}"] if code else []
        command = "trueodds fit" if name == "calibrate" else f"trueodds {name}"
        deps = [*(dep for dep in ours[name]["deps"] if dep not in code), *hashes]
        assert graph[name] == ours[name] | {"cmd": command, "deps": deps}


def test_it_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("mine")
    with pytest.raises(starter.StarterError, match=r"^params.yaml exists in .*init overwrites no file"):
        starter.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


def test_ignore_files_and_data_that_exist_stay(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine")
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "README.md").write_text("mine")
    assert [path.name for path in starter.write(tmp_path)] == ["params.yaml", "dvc.yaml", ".dvcignore"]
    assert (tmp_path / ".gitignore").read_text() == (tmp_path / "datasets" / "README.md").read_text() == "mine"


@pytest.mark.full
def test_dvc_repro_in_an_empty_folder_and_after_an_upgrade(reproduced: Path, tmp_path: Path) -> None:
    """It makes, byte for byte, what the default run of the repository made: all is trained again, from nothing.

    An upgrade runs the stages whose code it changes, and `code`, which runs every time.
    """
    installed, folder = copy_of_repository(tmp_path / "installed", NO_PART), tmp_path / "own"
    folder.mkdir()

    def type_in(*words: str) -> str:
        env = environment() | {"PYTHONPATH": str(installed)}
        done = subprocess.run([sys.executable, "-m", *words], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stages_run() -> list[str]:
        lines = type_in("dvc", "repro").splitlines()
        return [line.split("'")[1] for line in lines if line.startswith("Running stage")]

    assert "dvc repro" in type_in("trueodds", "init")
    type_in("dvc", "init", "--no-scm")
    assert sorted(stages_run()) == sorted(["code", *STAGES])
    made, expected = hashes(folder), hashes(reproduced)
    assert "artifacts/bundle" in expected and {path: made[path] for path in expected} == expected
    with (installed / "trueodds" / "evaluation" / "results.py").open("a") as file:
        file.write("# a later version\n")
    assert stages_run() == ["code", "plan", "evaluate"], "the same metrics: export has nothing to do"
    assert stages_run() == ["code"]
