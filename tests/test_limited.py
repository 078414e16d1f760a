"""A function in a process with limits: what ends it, what is said of its end, and that nothing of it is left."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.service.hooks import has_ended, until
from trueodds.processes import limited
from trueodds.processes.limited import End, ProcessLimits

PLENTY = ProcessLimits(30, 10**10)


def run(what: str, *words: str, limits: ProcessLimits = PLENTY) -> End:
    return limited.run("tests.limited_work:work", [what, *words], limits)


@pytest.mark.parametrize(
    ("what", "end"),
    [
        ("return", End(3, "doing return")),
        ("exit", End(7, "doing exit")),
        ("abort", End(-signal.SIGABRT, "doing abort")),
    ],
)
def test_an_end_of_its_own(what: str, end: End) -> None:
    assert run(what) == end


def test_a_step_without_progress_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    assert run("loop", str(file), limits=ProcessLimits(0.2, 10**10)) == End(-signal.SIGKILL, "doing loop", "seconds")
    assert has_ended(int(file.read_text()))


def test_progress_and_steps_without_a_name_are_not_ended() -> None:
    """Half a second in steps of a tenth, and then half a second of something that has no limit."""
    assert run("go on", limits=ProcessLimits(0.4, 10**10)) == End(3, "")


@pytest.mark.skipif(sys.platform != "linux", reason="resident sets are read from /proc")
def test_too_much_memory_is_ended() -> None:
    """The process alone takes some ten million bytes."""
    assert run("allocate", limits=ProcessLimits(30, 3 * 10**8)) == End(-signal.SIGKILL, "doing allocate", "memory")


def test_it_ends_with_its_caller(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = f"from tests.test_limited import run; run('loop', {str(file)!r})"
    caller = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    while not (file.exists() and file.read_text()):
        assert caller.poll() is None
        time.sleep(0.02)
    caller.kill()
    caller.wait()
    pid = int(file.read_text())
    until(lambda: has_ended(pid))


def test_outside_such_a_process_steps_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(limited.STEPS, raising=False)
    limited.step("reading")
    limited.progress()


def test_the_memory_of_a_container(tmp_path: Path) -> None:
    total = limited.memory_of_machine(tmp_path)
    assert total > 10**8
    (tmp_path / "memory.max").write_text("max\n")
    assert limited.memory_of_machine(tmp_path) == total
    (tmp_path / "memory.max").write_text("50000000\n")
    assert limited.memory_of_machine(tmp_path) == 50_000_000
