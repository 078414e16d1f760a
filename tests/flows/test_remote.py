"""Runs on machines that share nothing but a bucket: DVC's remote, on a real S3 server of this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.faults.buckets import URL, Store, served
from benchmarks.faults.process import Service
from pipeline.flows import remote
from pipeline.flows.workspace import Workspace
from tests.flows.conftest import Prefect, free_port
from tests.flows.test_train import STAGES

pytestmark = pytest.mark.full
SETTINGS = "[core]\nremote = shared\n['remote \"shared\"']\nurl = s3://{name}/dvc\n"
FLOW = """
import sys
from pipeline.flows.train import train
state = train(epochs=1, seed=11, publish="default", return_state=True)
print("RUN", state.state_details.flow_run_id, state.type.value)
"""


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store() as store:
        yield store


@dataclass
class Machine:
    """A copy of the repository as it is in the image of the worker: no git, no dvc.lock, an empty cache."""

    home: Path
    settings: Path
    prefect: Prefect

    def train(self, **environment: str) -> tuple[str, str]:
        """A run's id and state; DVC's settings lie where the pod of deploy/prefect mounts them."""
        self.settings.mkdir(exist_ok=True)
        (self.settings / "config").write_text(SETTINGS.format(name="bucket"))
        done = subprocess.run(
            [sys.executable, "-c", FLOW],
            cwd=self.home,
            env=self.prefect.environment()
            | environment
            | {"DVC_GLOBAL_CONFIG_DIR": str(self.settings), "PYTHONPATH": str(self.home)},
            capture_output=True,
            text=True,
            timeout=500,
        )
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith("RUN ")]
        assert lines, done.stdout + done.stderr
        return lines[0][1], lines[0][2]

    def bundles(self) -> set[str]:
        return {path.parent.name for path in (self.home / "models").glob("*/*/model.onnx")}


@pytest.fixture(scope="module")
def machines(reproduced: Path, prefect: Prefect, tmp_path_factory: pytest.TempPathFactory) -> tuple[Machine, Machine]:
    made = []
    for name in ("one", "other"):
        folder = tmp_path_factory.mktemp(name)
        ignored = shutil.ignore_patterns(".git", "dvc.lock", "cache", "tmp", "artifacts", ".runs", ".run")
        home = Path(shutil.copytree(reproduced, folder / "home", ignore=ignored))
        (home / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n")
        made.append(Machine(home, folder / "dvc", prefect))
    return made[0], made[1]


def test_what_one_machine_has_made_another_takes_and_publishes_to_a_bucket(
    machines: tuple[Machine, Machine], store: Store, prefect: Prefect, tmp_path: Path
) -> None:
    one, other = machines
    first, state = one.train(**store.environment)
    assert state == "COMPLETED" and prefect.stages(first) == dict.fromkeys(STAGES, "Completed")
    assert "has all outputs of this run" in prefect.artifacts(first)["remote"]

    models = {"TRUEODDS_MODELS": URL, "TRUEODDS_MODELS_CACHE": str(tmp_path / "cache")}
    second, state = other.train(**store.environment, **models)
    assert state == "COMPLETED" and prefect.stages(second) == dict.fromkeys(STAGES, "Skipped"), prefect.logs(second)
    assert f"{len(STAGES)} new entries of the run cache" in prefect.logs(second)
    assert "0 new files and 0 new entries of the run cache pushed" in prefect.logs(second)
    assert prefect.artifacts(first)["calibration"] == prefect.artifacts(second)["calibration"]
    assert f"{URL}/" in prefect.artifacts(second)["bundle"] and not other.bundles()

    (version,) = one.bundles()
    options = ("--models-cache", str(tmp_path / "served"))
    with Service(tmp_path, URL, *options, environment=store.environment) as service:
        service.start()
        assert served(service) == version


def test_a_remote_that_cannot_be_reached_takes_no_result_away(
    machines: tuple[Machine, Machine], store: Store, prefect: Prefect
) -> None:
    """On the machine that has made everything already, so that no stage runs."""
    run, state = machines[0].train(**store.environment | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"})
    assert state == "COMPLETED", prefect.logs(run)
    assert set(prefect.stages(run).values()) == {"Skipped"} and "bundle" in prefect.artifacts(run)
    words = prefect.artifacts(run)["remote"]
    assert words.startswith("DVC's remote shared does not have the outputs of this run: ")
    assert "repeat the run: its stages are skipped and its outputs are pushed" in words
    assert words.strip() in prefect.logs(run) and "The run continues without it" in prefect.logs(run)


@pytest.mark.parametrize("verb", ["take", "give"])
def test_why_nothing_was_exchanged_is_the_last_line(
    machines: tuple[Machine, Machine], store: Store, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A bucket that is not there has nothing, and takes nothing."""
    home = machines[0].home
    for name, value in {**store.environment, "DVC_GLOBAL_CONFIG_DIR": str(home.parent / "gone")}.items():
        monkeypatch.setenv(name, value)
    (home.parent / "gone").mkdir(exist_ok=True)
    (home.parent / "gone" / "config").write_text(SETTINGS.format(name="no-such-bucket"))
    lines: list[str] = []
    place = Workspace(home, home, home, None, ())
    why = remote.exchange(place, verb, lines.append, 60)
    assert (why, lines[-1]) == (None, "0 new entries of the run cache") if verb == "take" else why == lines[-1]


def test_without_a_remote_nothing_is_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(tmp_path / "nowhere"))
    (tmp_path / ".dvc").mkdir()
    assert remote.name_of(tmp_path) is None
    (tmp_path / ".dvc" / "config").write_text("[core]\nremote = shared\n")
    assert remote.name_of(tmp_path) == "shared"
