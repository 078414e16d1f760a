"""The service as a process that can be killed, and a minimal client from the standard library."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psutil

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60
DEAD = (OSError, http.client.HTTPException)
"""Errors by which a client notices that the server died."""


class Answer:
    """Status, headers and parsed body."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    def json(self) -> Any:
        return json.loads(self.body)


IDLE_SECONDS = 3.0
"""Idle seconds after which a connection is not reused. uvicorn closes one that is idle for 5 seconds."""


class Client:
    """One connection, opened when needed. Any failure closes it."""

    def __init__(self, base: str, timeout: float = 30) -> None:
        self.base, parts = base, urllib.parse.urlsplit(base)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        self._answered = time.monotonic()

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        """Send a request. Raises one of DEAD without an answer."""
        if time.monotonic() - self._answered > IDLE_SECONDS:
            self.close()
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            self._answered = time.monotonic()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        except BaseException:
            self.close()
            raise

    def post(self, path: str, tree: Any) -> Answer:
        return self.send("POST", path, json.dumps(tree).encode(), {"content-type": "application/json"})

    def get(self, path: str) -> Answer:
        return self.send("GET", path)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Service:
    """`python -m service` with its store in `folder`, which can be started, killed and stopped repeatedly.

    As a context manager it leaves no process behind.
    """

    def __init__(
        self,
        folder: Path,
        models: Path | str,
        *options: str,
        store: str | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder, self.models, self.options = folder, Path(models), options
        self._place = str(models)  # a URL is no path
        self.store = store or str(folder / "store.sqlite")
        self.environment = environment or {}
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._url_file, self._log = folder / "url", folder / "service.log"

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the service without waiting."""
        self._url_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "service", "--port", "0", "--models", self._place]
        command += ["--store", self.store, "--url-file", str(self._url_file), "--threads", "1", *self.options]
        path = os.pathsep.join(p for p in (self.environment.get("PYTHONPATH"), str(ROOT)) if p)
        environment = {**os.environ, **self.environment, "PYTHONPATH": path}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        self.starts += 1
        return self._process

    def start(self) -> Self:
        """Start the service and wait until it listens.

        Raises:
            RuntimeError: It ended, or does not listen. The message has the end of its log.
        """
        process, deadline = self.launch(), time.monotonic() + START_SECONDS
        while not self._url_file.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if not self._url_file.exists():
            raise RuntimeError(f"the service did not start (exit status {process.poll()}): {self.log()[-2000:]}")
        return self

    def until(self, status: int, path: str = "/health/ready", seconds: float = 20) -> Answer:
        """Repeat a request until the answer has this status.

        Raises:
            RuntimeError: The status did not come.
        """
        deadline = time.monotonic() + seconds
        with self.client() as client:
            while (answer := client.get(path)).status != status:
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"{path} answers {answer.status}, not {status}, for {seconds} s: {answer.body!r}"
                    )
                time.sleep(0.05)
        return answer

    def get(self, path: str) -> Answer:
        """Send a GET request on a connection of its own."""
        with self.client() as client:
            return client.get(path)

    def post(self, path: str, tree: Any) -> Answer:
        """Send a POST request on a connection of its own."""
        with self.client() as client:
            return client.post(path, tree)

    @property
    def url(self) -> str:
        return self._url_file.read_text(encoding="utf-8").strip()

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def client(self, timeout: float = 30) -> Client:
        return Client(self.url, timeout)

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def resident_mb(self) -> float:
        return float(psutil.Process(self.pid).memory_info().rss / 1e6)

    def open_files(self) -> int:
        return int(psutil.Process(self.pid).num_fds())

    def kill(self) -> None:
        """Send SIGKILL. Raises ProcessLookupError if the process is already dead, as then something else killed it."""
        assert self._process
        if self._process.poll() is not None:
            raise ProcessLookupError(f"the service had ended by itself: {self.log()[-2000:]}")
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after 20 seconds."""
        if self._process and self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
                return
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


@contextlib.contextmanager
def without_model(folder: Path, *options: str, store: str | None = None) -> Iterator[Service]:
    """Run a service that has no model until the block ends. Its store is in `folder`, unless `store` names another."""
    with Service(folder, folder / "none", *options, store=store) as service:
        yield service.start()
