"""Processes that end with another, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.service.hooks import has_ended, until
from trueodds.processes import binding

STAGE = """
import os, time
from trueodds.processes import binding
binding.obey()
print(os.getpid(), flush=True)
time.sleep(60)
"""
# A shell that stays between, as DVC may start one: its child has another parent than dvc.
DVC = f"import subprocess, sys; subprocess.run(['sh', '-c', sys.executable + ' -c \"$0\"; true', {STAGE!r}])"
ENGINE = (
    "import subprocess, sys; from trueodds.processes import binding;"
    f"p = subprocess.Popen(binding.command([sys.executable, '-c', {DVC!r}])); print(p.pid, flush=True); p.wait()"
)


@pytest.mark.parametrize("killed", ["engine", "dvc"])
def test_all_below_a_killed_process_end(killed: str) -> None:
    engine = subprocess.Popen([sys.executable, "-c", ENGINE], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    dvc, stage = int(engine.stdout.readline()), int(engine.stdout.readline())
    os.kill(engine.pid if killed == "engine" else dvc, signal.SIGKILL)
    until(lambda: has_ended(dvc) and has_ended(stage))
    engine.kill()
    engine.communicate()


def test_a_parent_that_is_gone_already(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "trueodds.processes.binding",
            "1",
            sys.executable,
            "-c",
            f"open({str(tmp_path / 'ran')!r}, 'w')",
        ],
        cwd=ROOT,
    )
    assert done.returncode == -signal.SIGKILL and not (tmp_path / "ran").exists()


def test_no_parent_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(binding.LIFELINE, raising=False)
    code = "import threading; from trueodds.processes import binding; binding.obey(); print(threading.active_count())"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "1\n"


def test_without_pidfd_the_process_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.setattr(binding, "_POLL_SECONDS", 0.01)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    messages: list[str] = []
    binding.when_gone(process.pid, lambda: messages.append("gone"))
    time.sleep(0.1)
    assert not messages
    process.communicate()
    until(lambda: messages == ["gone"])
