"""A function in its own process, which is ended if it makes no progress or uses too much memory.

It is for work on foreign files that prints for people, so the process shares the caller's output and errors. On such a
file a C++ library may loop, crash or fill the memory, and no exception can be caught in the process itself.

    end = run("package.module:function", [Path("a"), 2], ProcessLimits(seconds=120, memory=2**32))

In the process, `step("reading model.onnx")` announces the next step and restarts the time limit. `progress()` restarts
it within a step. After `step("")` there is no time limit. Outside such a process both do nothing.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trueodds.processes import binding

STEPS = "TRUEODDS_STEPS"
"""Environment variable of such a process: the file descriptor that receives its steps."""
SECONDS, SHARE = 120.0, 0.75
"""Usual limits: seconds without progress, and the share of the machine's memory."""
CGROUP = Path("/sys/fs/cgroup")
_POLL_SECONDS = 0.02
_PROGRAM = "import sys; from trueodds.processes import limited; sys.exit(limited.main(*sys.argv[1:]))"
_SAME, _NEW = b".", b">"


@dataclass(frozen=True)
class ProcessLimits:
    """Limits of a process. The memory limit needs Linux."""

    seconds: float
    """Longest time of a step without progress."""
    memory: int
    """Largest resident set in bytes."""


@dataclass(frozen=True)
class End:
    """End of such a process."""

    status: int
    """Return value of the function, or minus the number of the signal that ended the process."""
    step: str
    """Last step; empty if there was none, or one without limits."""
    limit: Literal["", "seconds", "memory"] = ""
    """Limit that was reached."""


def run(function: str, arguments: Sequence[object], limits: ProcessLimits) -> End:
    """Call `function` (`module:name`) in a process that ends with this one, and wait for its end.

    The arguments are pickled. The function returns an exit status.
    """
    reader, given = os.pipe()
    pickled = base64.b64encode(pickle.dumps(tuple(arguments))).decode()
    folders = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, function, str(os.getpid()), pickled],
            pass_fds=[given],
            env={**os.environ, STEPS: str(given), "PYTHONPATH": folders},
        )
    finally:
        os.close(given)
    try:
        return _watch(process, reader, limits)
    finally:
        process.kill()
        process.wait()
        os.close(reader)


def step(words: str) -> None:
    """Announce the next step; an empty text means one without a time limit."""
    _say(_NEW + words.replace("\n", " ").encode(errors="replace") + b"\n")


def progress() -> None:
    """Report that the step makes progress."""
    _say(_SAME + b"\n")


def memory_of_machine(cgroup: Path = CGROUP) -> int:
    """Return the bytes of memory of this machine, or of the container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in (cgroup / "memory.max", cgroup / "memory" / "memory.limit_in_bytes"):  # cgroup v2, v1
        with contextlib.suppress(OSError, ValueError):  # v2 says "max" where there is no limit
            total = min(total, int(file.read_text()))
    return total


def main(function: str, parent: str, arguments: str) -> int:
    """Run the function in the process that `run` has started."""
    binding.die_with_parent(signal.SIGKILL, int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the caller, which ends this process
    module, _, name = function.partition(":")
    status: int = getattr(importlib.import_module(module), name)(*pickle.loads(base64.b64decode(arguments)))
    return status


def _say(line: bytes) -> None:
    if descriptor := os.environ.get(STEPS):
        with contextlib.suppress(OSError):  # the reader has ended
            os.write(int(descriptor), line)


def _watch(process: subprocess.Popen[bytes], reader: int, limits: ProcessLimits) -> End:
    doing, began, rest, is_open = "", time.monotonic(), b"", True
    while process.poll() is None:
        if not is_open:
            time.sleep(_POLL_SECONDS)
        elif select.select([reader], [], [], _POLL_SECONDS)[0]:
            data = os.read(reader, 65536)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                began = time.monotonic()
                doing = line[1:].decode(errors="replace") if line.startswith(_NEW) else doing
            if not data:
                is_open = False
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
        if _resident(process.pid) > limits.memory:
            return End(-signal.SIGKILL, doing, "memory")
        if doing and time.monotonic() - began > limits.seconds:
            return End(-signal.SIGKILL, doing, "seconds")
    return End(process.wait(), doing)


def _resident(pid: int) -> int:
    """Return the bytes of a process's resident set; 0 if the system does not report it."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
