"""`make demo` after its stages: the service, the replay and their end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pipeline.cli import live_demo
from pipeline.cli.service_process import serving
from tests.conftest import ROOT, environment
from tests.service.hooks import until
from tests.service.tiny_bundle import write_bundle
from trueodds.bundle import open_models
from trueodds.client import Client


@pytest.fixture
def folder(reproduced: Path, tmp_path: Path) -> Path:
    shutil.copytree(reproduced / "artifacts", tmp_path / "artifacts")
    return tmp_path


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    """In a session of its own, as a terminal has one, and without a browser."""
    hidden = dict.fromkeys(("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"), "")
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env={**environment(), **hidden, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def left(folder: Path) -> list[psutil.Process]:
    """Processes that still run in the folder."""
    children = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                children.append(process)
        except psutil.Error:
            continue
    return children


def test_the_introduction_takes_its_numbers_from_the_service() -> None:
    report = {"alarm": {"nulls": [{"tolerance": 0.05, "threshold": 40.0}, {"tolerance": 1.0, "threshold": 1.0}]}}
    words = " ".join(live_demo.introduction("http://x", report, in_browser=True).split())
    assert "the evidence has reached 40. At most one in 40 models whose error stays below 0.05" in words
    assert not re.search(r"below 0?\.02|\{", words), "beside an ECE of .047, on few labels, that looked wrong"


@pytest.mark.full
def test_the_demos_service_takes_no_keys_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle"))
    monkeypatch.setenv("TRUEODDS_ADMIN_KEY", "of another service")
    monkeypatch.setenv("TRUEODDS_READ_KEY_HASH", "0" * 64)
    with serving(tmp_path) as url, Client(url, tries=1) as client:
        assert [one.model for one in client.models()] == ["tiny"]


@pytest.mark.full
def test_it_shows_what_it_says_it_will(folder: Path) -> None:
    code = "from pathlib import Path; from pipeline.cli.live_demo import live_demo; live_demo(Path('.demo'), speed=20)"
    process = start(folder, "-c", code)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, ""), out
    assert "The page to watch: http://127.0.0.1:" in out and "Open it in a browser." in out
    before, drift, after = out.partition(f"0:{live_demo.DRIFT_AT}   noise {live_demo.NOISE} from now on")
    assert drift and "THE ALARM HAS FIRED" not in before

    def accuracy(line: str) -> float:
        return float(line.split()[3])

    rows = [[line for line in part.splitlines() if "[" in line and line[4:5] == ":"] for part in (before, after)]
    if not rows[1][-1].endswith(" -"):  # the service keeps an alarm
        assert "THE ALARM HAS FIRED" in after and "The alarm fired after" in after
    for line in rows[0]:  # what the introduction says of the two columns
        ece, chance = (float(line.split()[at]) for at in (4, 7))
        assert ece < 1.5 * chance, line
    assert accuracy(rows[0][-1]) > 0.95 > 0.92 > accuracy(rows[1][-1])
    assert (folder / ".demo" / "calibration-report.html").read_text(encoding="utf-8").startswith("<!")
    assert "The page at the end: .demo/calibration-report.html" in out and not left(folder)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_it_is_stopped(folder: Path, number: signal.Signals) -> None:
    """Ctrl-C goes to all of a terminal's foreground; SIGKILL to the demo alone."""
    process = start(folder, "-m", "pipeline", "demo", "--live", "--work", ".demo")
    assert process.stdout
    seen = ""
    while "   0:05 " not in seen:
        line = process.stdout.readline()
        assert line, process.communicate()
        seen += line
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=300)
    if number == signal.SIGINT:
        assert (process.returncode, err) == (130, "stopped\n")
        assert "stopping: labels that are due are sent" in out and " labels sent" in out
    until(lambda: not left(folder))


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="a pipe without a reader is another error there")
def test_it_ends_quietly_when_nobody_reads_on(folder: Path) -> None:
    """`trueodds demo --live | head -40`: the replay's lines have no reader, then its own."""
    process = start(folder, "-m", "pipeline", "demo", "--live", "--work", ".demo")
    assert process.stdout and process.stderr
    while "   0:05 " not in (line := process.stdout.readline()):
        assert line, process.communicate()
    process.stdout.close()
    with process.stderr as errors:
        assert (process.wait(60), errors.read()) == (141, "")
    assert not left(folder)
