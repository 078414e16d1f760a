"""Processes that must not outlive another one, however that one ends (SIGKILL included).

    engine of a scheduled run -> dvc -> (a shell) -> the stage

The kernel kills dvc when the engine has ended (`python -m trueodds.processes.binding PID COMMAND ...`). The stage may
have a shell as its parent, so it watches dvc itself (`obey`). Otherwise a killed dvc would leave its training running.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

LIFELINE = "TRUEODDS_LIFELINE"
"""Environment variable with the id of the process that this process must not outlive."""
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 1.0


def die_with_parent(number: signal.Signals, parent: int) -> None:
    """Ask Linux to send this process the signal when its parent ends; on other systems a thread sends it.

    `parent` is the id of the parent that started this process. If it has already ended, the signal comes at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))
    else:
        when_gone(parent, lambda: os.kill(os.getpid(), number))
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def when_gone(pid: int, act: Callable[[], None]) -> None:
    """Call `act` from a daemon thread when the process has ended. A zombie has ended."""

    def follow() -> None:
        _wait(pid)
        act()

    threading.Thread(target=follow, name=f"end-of-{pid}", daemon=True).start()


def obey() -> None:
    """End when the process that TRUEODDS_LIFELINE names ends, if it names one. Every stage calls this first."""
    if named := os.environ.get(LIFELINE):
        when_gone(int(named), lambda: os.kill(os.getpid(), signal.SIGKILL))


def command(arguments: Sequence[str]) -> list[str]:
    """Wrap `arguments` in a command whose process the kernel kills with the calling one."""
    return [sys.executable, "-m", "trueodds.processes.binding", str(os.getpid()), *arguments]


def _wait(pid: int) -> None:
    try:
        if hasattr(os, "pidfd_open"):
            descriptor = os.pidfd_open(pid)
            select.select([descriptor], [], [])
            os.close(descriptor)
            return
        while True:  # without pidfd (macOS) a zombie counts as alive until its parent has waited for it
            os.kill(pid, 0)
            time.sleep(_POLL_SECONDS)
    except ProcessLookupError:
        return


def main(parent: str, *arguments: str) -> None:
    """Become the command, bound to `parent`. Its children find its process id in TRUEODDS_LIFELINE."""
    die_with_parent(signal.SIGKILL, int(parent))
    os.environ[LIFELINE] = str(os.getpid())
    os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
