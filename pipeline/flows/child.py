"""Runs a stage's process, passes on its output line by line, and makes sure that it ends."""

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trueodds.processes import binding

GRACE_SECONDS = 10.0
_running: set[subprocess.Popen[str]] = set()
_lock = threading.Lock()


class StageTimeoutError(TimeoutError):
    """The stage took longer than its `timeout_seconds`. Its process was stopped."""


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    line: Callable[[str], None],
    timeout_seconds: float | None = None,
) -> int:
    """Run a command in a session of its own, pass each line of its output to `line`, and return its exit status.

    The process and its descendants end with this call, however it ends, and with this process, however that ends.

    Raises:
        StageTimeoutError: The command took longer than `timeout_seconds`.
    """
    process = subprocess.Popen(
        binding.command(command),
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        bufsize=1,
        start_new_session=True,
    )
    with _lock:
        _running.add(process)
    # A thread reads the output, because an orphaned grandchild can hold the pipe open after the process has ended. It
    # runs in the caller's context, from which Prefect knows to which run the log and artifacts belong.
    reader = threading.Thread(target=contextvars.copy_context().run, args=(_read, process, line), daemon=True)
    reader.start()
    try:
        return process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        raise StageTimeoutError(
            f"stopped after timeout_seconds = {timeout_seconds:g}; raise it in the stage's meta in dvc.yaml"
        ) from None
    finally:
        stop(process)
        reader.join(GRACE_SECONDS)
        with _lock:
            _running.discard(process)


def stop_all() -> None:
    """Stop every process that `run` waits for in another thread."""
    with _lock:
        running = list(_running)
    for process in running:
        stop(process)


def stop(process: subprocess.Popen[str]) -> None:
    """End the process and the rest of its group by SIGTERM, then by SIGKILL."""
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to the process group."""
    with suppress(ProcessLookupError, PermissionError):  # macOS raises the latter for a group of zombies
        os.killpg(process.pid, number)


def _read(process: subprocess.Popen[str], line: Callable[[str], None]) -> None:
    """Pass on the output line by line."""
    assert process.stdout is not None
    with process.stdout as output:
        for text in output:
            if text := text.rstrip():
                line(text)
