"""Every command and every Python block of the README, in order, typed as a newcomer would.

The walk runs in a copy of the repository with this interpreter's environment. Two things differ from a newcomer's
terminal: the ports 8000 and 4200 become free ones, and CIFAR-100 is cut to a few rows and one epoch.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import readme
from pipeline.cli.tables import methods_table
from tests.conftest import ROOT, copy_of_repository, environment
from trueodds import calibrators, metrics

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHRINK = "sed -i 's/train_size: null/train_size: 600/; s/epochs: null/epochs: 1/' params.yaml"
RESTORE = "sed -i 's/train_size: 600/train_size: null/; s/epochs: 1/epochs: null/' params.yaml"


def blocks() -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(README)]


class Terminal:
    """A shell session: commands in a sandbox, `make serve` kept in the background."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.serving: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as second:
            self.port, prefect = free.getsockname()[1], second.getsockname()[1]
        self.environment = environment() | {
            "PREFECT_API_URL": f"http://127.0.0.1:{prefect}/api",
            "PREFECT_HOME": str(folder / ".prefect"),
            "TRUEODDS_SERVICE": f"http://127.0.0.1:{self.port}",
        }
        self.make = f"make -o {sys.prefix}/.installed VENV={sys.prefix} PORT={self.port}"

    def type(self, line: str) -> str:
        line = line.replace(":8000", f":{self.port}").replace(". .venv/bin/activate", "true")
        if line == "make serve":
            self._serve()
            return ""
        return self.run(["bash", "-euo", "pipefail", "-c", re.sub(r"^make\b", self.make, line)])

    def python(self, code: str) -> str:
        return self.run([sys.executable, "-c", code.replace(":8000", f":{self.port}")])

    def run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _serve(self) -> None:
        command = ["bash", "-c", f"exec {self.make} serve"]
        self.serving = subprocess.Popen(command, cwd=self.folder, env=self.environment, start_new_session=True)
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health/ready", timeout=5).close()
            except OSError:
                assert self.serving.poll() is None, "make serve ended"
                time.sleep(0.1)
            else:
                return
        pytest.fail("make serve is not ready after a minute")

    def close(self) -> None:
        if self.serving:
            os.killpg(self.serving.pid, signal.SIGTERM)
            self.serving.wait(20)
        if (self.folder / ".prefect").is_dir():
            self.type("make prefect-stop")


@pytest.fixture
def terminal(reproduced: Path, tmp_path: Path) -> Iterator[Terminal]:
    """A copy of the repository whose DVC cache is that of the run already done."""
    folder = copy_of_repository(tmp_path / "trueodds")
    shutil.copytree(reproduced / ".dvc" / "cache", folder / ".dvc" / "cache")
    shutil.copy(reproduced / "dvc.lock", folder / "dvc.lock")
    session = Terminal(folder)
    yield session
    session.close()


def test_make_lists_its_targets(terminal: Terminal) -> None:
    listed = terminal.type("make")
    assert all(f"make {target}" in listed for target in ("run", "serve", "test", "test-full", "lint"))


def test_make_run(terminal: Terminal) -> None:
    """The first command of all: the real pipeline, the real service, and a summary as the README shows it.

    Of the checkout as it is, with an edit that nobody has committed; nothing else in it changes.
    """
    params = terminal.folder / "params.yaml"
    params.write_text(params.read_text().replace("bins: 15", "bins: 20"))
    status = terminal.run(["git", "status", "--porcelain"])
    printed = terminal.type("make run")
    assert terminal.run(["git", "status", "--porcelain"]) == status and "ECE, 20 bins" in printed
    (shown,) = [text for kind, text in blocks() if kind == "text" and text.startswith("TrueOdds:")]

    def words(text: str) -> list[str]:
        return [
            re.split(r" {2,}", line.strip())[0] for line in text.splitlines() if not line.startswith(("ECE b", "("))
        ]

    numberless = [re.sub(r"[\d.]+", "#", line) for line in words(shown)]
    found = [re.sub(r"[\d.]+", "#", line) for line in words(printed)]
    assert [line for line in numberless if line in found] == numberless
    page = (terminal.folder / ".run" / "service" / "calibration-report.html").read_text(encoding="utf-8")
    assert "<svg" in page and "600" in page


def test_python_blocks_that_need_no_service(terminal: Terminal) -> None:
    ran = [terminal.python(text) for kind, text in blocks() if kind == "python" and "urllib" not in text]
    assert len(ran) == 5
    assert (terminal.folder / "datasets" / "scribbles" / "train" / "two").is_dir()


def test_the_figures_are_those_of_the_records() -> None:
    """Otherwise: python -m benchmarks.readme."""
    assert readme.refreshed(README) == README
    assert set(readme.BLOCK.findall(README)) == {*readme.TABLES, *readme.LISTS}


def test_every_calibrator_and_metric_is_named() -> None:
    """Those for a user; helpers and the types of answers apart."""
    functions = {n for n in metrics.__all__ if n.islower()} - {"blocks", "cell_of", "softmax", "summary", "whole_bins"}
    assert {
        n for n in [*calibrators.names(), *functions, "EProcess", "ShiryaevRoberts"] if f"`{n}`" not in README
    } == set()


def test_every_method_can_be_listed() -> None:
    assert {"ce", "focal", "fl3"} <= {name for name, _, _ in methods_table()}


@pytest.mark.full
def test_the_whole_readme(terminal: Terminal, development_data: Path) -> None:
    """From top to bottom. Left out: `make test`, which runs this; `make run` and `make demo`, which have their own."""
    typed, params = [], terminal.folder / "params.yaml"
    for kind, text in blocks():
        if kind == "python":
            terminal.python(text)
        elif kind == "console":
            for line in text.splitlines():
                assert line.startswith("$ "), f"{line!r} in a console block is not a command"
                if line in ("$ make test", "$ make run", "$ make demo"):
                    continue
                large = "train/cifar100" in line or (
                    line == "$ dvc repro" and "dataset: cifar100" in params.read_text()
                )
                if large:
                    terminal.type(SHRINK)
                terminal.type(line.removeprefix("$ "))
                if large:
                    terminal.type(RESTORE)
                typed.append(line)
    assert any("curl" in line for line in typed) and len(typed) > 8
    models = terminal.folder / "models"
    assert (models / "default").read_text().startswith("digits/"), "a new model takes nobody's place"
    assert (models / "scribbles" / "default").is_file() and (models / "cifar100" / "default").is_file()
