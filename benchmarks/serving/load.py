"""Load on an HTTP server by wrk, the memory of its processes (PSS and RSS), and process groups that end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

SCRIPT = Path(__file__).parent / "peers" / "post.lua"
READY_SECONDS = 60
JSON = "application/json"


class LoadError(RuntimeError):
    """A tool is missing, or a server does not do what is measured."""


@dataclass(frozen=True)
class Load:
    """One measurement. Latencies are as the client sees them, in milliseconds."""

    rps: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    requests: int
    failed: int
    """Number of answers with status 400 or more, and of connections that broke or timed out."""

    @classmethod
    def read(cls, line: str) -> Load:
        """Read a line of JSON as post.lua and raw_onnxruntime.py print it."""
        found = json.loads(line)
        failed = found["failed"] + found["broken"]
        good = found["requests"] - found["failed"]
        times = {key: found[key] for key in ("p50_ms", "p99_ms", "max_ms")}
        return cls(rps=good / found["seconds"], **times, requests=found["requests"], failed=failed)


@dataclass(frozen=True)
class Memory:
    """Memory of a process tree. PSS counts a page shared by k processes 1/k times in each."""

    pss_mb: float
    rss_mb: float
    processes: int


def wrk(url: str, body: Path, connections: int, seconds: float) -> Load:
    """Run wrk. Raises LoadError if it is missing or prints nothing."""
    if not shutil.which("wrk"):
        raise LoadError("wrk is not installed: apt-get install wrk (https://github.com/wg/wrk)")
    whole = max(1, round(seconds))
    command = ["wrk", "-t1", f"-c{connections}", f"-d{whole}s", "--timeout", "10s", "-s", str(SCRIPT), url, "--"]
    done = subprocess.run([*command, str(body), JSON], capture_output=True, text=True, timeout=whole + 30)
    if done.returncode or not done.stdout.strip().endswith("}"):
        raise LoadError(f"wrk on {url} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return Load.read(done.stdout.splitlines()[-1])


def post(url: str, body: bytes, timeout: float = 30) -> bytes:
    """Return the body of the answer to a POST request. Raises the errors of urllib."""
    request = urllib.request.Request(url, body, {"content-type": JSON})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        found: bytes = answer.read()
        return found


@contextlib.contextmanager
def process_group(
    command: list[str], environment: dict[str, str], cwd: Path, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a process group of its own, which ends with the block: SIGTERM, then SIGKILL after 5 seconds."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, cwd=cwd, stdout=out, stderr=out, start_new_session=True
        )
        try:
            yield process
        finally:
            members = _tree(process.pid)
            for number, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                _, members = psutil.wait_procs(members, seconds)
                for member in members:  # those that made a group of their own
                    with contextlib.suppress(psutil.NoSuchProcess):
                        member.send_signal(number)
            process.wait(5)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Give `pid` and its descendants no processor time during the block.

    A parent is stopped before its children and goes on after them. uvicorn's parent asks its workers every half second
    whether they live, and replaces one that is silent for 5 seconds: a new worker that started within the next turn
    was counted as the price of two workers.
    """
    members = _tree(pid)
    parents_first = sorted(members, key=lambda member: member.pid != pid)
    try:
        for member in parents_first:
            member.suspend()
        yield
    finally:
        for member in reversed(parents_first):
            with contextlib.suppress(psutil.NoSuchProcess):
                if member.pid == pid and len(members) > 1:
                    time.sleep(0.3)  # the workers answer their parent's question
                member.resume()


def until_answered(url: str, body: bytes, process: subprocess.Popen[bytes], log: Path) -> bytes:
    """Wait for the first successful answer.

    Raises:
        LoadError: The server ended, or gave no answer within a minute. The message has the end of its log.
    """
    deadline, reason = time.monotonic() + READY_SECONDS, ""
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return post(url, body, timeout=5)
        except urllib.error.HTTPError as error:
            reason = f"{error.code} {error.read()[:300]!r}"
        except OSError as error:
            reason = str(error)
        time.sleep(0.1)
    raise LoadError(f"{url} does not answer: {reason}\n{log.read_text(errors='replace')[-2000:]}")


def memory(pid: int) -> Memory:
    """Return the memory of `pid` and its descendants."""
    pss = rss = count = 0
    for process in _tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            found = process.memory_full_info()
            pss, rss, count = pss + getattr(found, "pss", found.rss), rss + found.rss, count + 1
    return Memory(pss / 1e6, rss / 1e6, count)


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
