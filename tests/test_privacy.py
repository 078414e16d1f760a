"""What dependencies tell their vendors: nothing, unless somebody wants it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.service.test_process import server
from tests.service.tiny_bundle import SHAPE, write_bundle
from trueodds.bundle import open_models
from trueodds.processes import privacy


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty home of the processes that a test starts, whose environment says nothing about telemetry."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in {*privacy.SWITCHES, "XDG_CACHE_HOME"}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return folder


def written(home: Path) -> list[str]:
    """onnxruntime keeps a device id and its reports in ~/.cache/Microsoft/DeveloperTools/.onnxruntime."""
    return [str(path.relative_to(home)) for path in home.rglob("*") if "onnxruntime" in path.name]


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.full)])
def test_the_service_reports_nothing(home: Path, tmp_path: Path, workers: str) -> None:
    open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle"))
    with server(tmp_path, "--workers", workers) as (client, _):
        assert client.get("/health/ready").status_code == 200
    assert not written(home)


@pytest.mark.full
def test_the_pipeline_reports_nothing(home: Path, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle")
    code = (
        "import numpy, pathlib, sys; from pipeline.export import to_bundle;"
        f"print(to_bundle.run(pathlib.Path(sys.argv[1]), 'logits', numpy.zeros((1, *{SHAPE}), 'uint8')))"
    )
    command = [sys.executable, "-c", code, str(bundle / "model.onnx")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("[["), done.stderr
    assert not written(home)


@pytest.mark.parametrize("package", ["pipeline", "service"])
def test_importing_a_package_switches_off_what_nobody_has_switched_on(
    home: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    code = f"import os, {package}; print(*map(os.environ.get, {list(privacy.SWITCHES)}))"
    monkeypatch.setenv("DO_NOT_TRACK", "0")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1", "false", "0"]


@pytest.mark.parametrize("option", ["analytics", "check_update"])
def test_dvc_is_told_so_in_the_project_too(option: str) -> None:
    """For `dvc` typed in the checkout, where no code of ours runs before it."""
    done = subprocess.run([sys.executable, "-m", "dvc", "config", f"core.{option}"], cwd=ROOT, capture_output=True)
    assert done.stdout.strip() == b"false"
